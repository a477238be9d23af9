"""Orders of leases, sealed to the node that has to run them.

The key follows from the one by which a node proves its name, which the scheduler can make, too.
"""

import hmac
import zlib
from base64 import b64decode, b64encode
from typing import Final

import msgspec

from schemas.assignments import LeaseOrder
from schemas.topics import POOL
from tunery.platform.seal.abstract import SealBroken
from tunery.platform.seal.boxes import open_box, public_key_of, seal_to
from tunery.runtime.bus.signing import SenderKeys

ORDER_BYTES_MAX: Final = 4_000_000  # of the text: more than a record of the log can hold


def seal_order(order: LeaseOrder, keys: SenderKeys) -> str:
    """Return the order in Base64. keys: of the node. The same order gives the same text."""
    private_key = keys.box_key(POOL.name)
    text = zlib.compress(msgspec.json.encode(order))
    seed = hmac.digest(private_key, text, "sha256")
    return b64encode(seal_to(public_key_of(private_key), text, seed)).decode()


def open_order(sealed: str, keys: SenderKeys) -> LeaseOrder:
    """Return the order. Raises SealBroken where it was sealed to another node, or is damaged."""
    try:
        packed = open_box(keys.box_key(POOL.name), b64decode(sealed))
        text = zlib.decompressobj().decompress(packed, ORDER_BYTES_MAX)
        return msgspec.json.decode(text, type=LeaseOrder)
    except (KeyError, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise SealBroken(f"the order of a lease does not open: {error}") from error
