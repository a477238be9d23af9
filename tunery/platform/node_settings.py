"""Settings that an operator gives a new node, sealed with the second half of its token.

The gateway sees only the first half and passes on what is sealed. The second half never leaves
the operator and the node, so neither gateway nor log can open it.
"""

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from schemas.enrolment import SEALED_SETTINGS_MAX
from tunery.platform.seal.abstract import SealBroken

SEPARATOR: Final = "."  # between the halves of a token
NONCE_BYTES: Final = 12
LABEL: Final = b"tunery settings of a node"
#: variables that may be given: how the node reaches its servers
PREFIXES: Final = ("TUNERY_KAFKA_", "TUNERY_S3_")


def halves_of(token: str) -> tuple[str, str]:
    """Split a token into the half for the gateway and the secret one, which may be empty."""
    shown, _, kept = token.partition(SEPARATOR)
    return shown, kept


def seal_settings(node_id: str, kept: str, variables: Mapping[str, str]) -> str:
    """Variables of a node's environment in Base64. kept: random, the second half of its token.

    Raises ValueError for variables that may not be given, or too many of them.
    """
    if others := [name for name in variables if not name.startswith(PREFIXES)]:
        raise ValueError(f"{', '.join(others)}: only {' and '.join(PREFIXES)}… can be given")
    nonce = os.urandom(NONCE_BYTES)
    text = msgspec.json.encode(variables)
    sealed = b64encode(nonce + _cipher(kept).encrypt(nonce, text, node_id.encode())).decode()
    if len(sealed) > SEALED_SETTINGS_MAX:
        raise ValueError(f"the settings of a node have at most {SEALED_SETTINGS_MAX} characters")
    return sealed


def open_settings(node_id: str, kept: str, sealed: str) -> dict[str, str]:
    """The variables. Raises SealBroken for what was not sealed for this node with this half."""
    try:
        box = b64decode(sealed, validate=True)
        nonce, body = box[:NONCE_BYTES], box[NONCE_BYTES:]
        text = _cipher(kept).decrypt(nonce, body, node_id.encode())
        return msgspec.json.decode(text, type=dict[str, str])
    except (InvalidTag, ValueError) as error:
        raise SealBroken("the settings of the node do not open with this token") from error


def _cipher(kept: str) -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, salt=None, info=LABEL).derive(kept.encode()))
