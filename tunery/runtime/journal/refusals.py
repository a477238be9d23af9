"""An operator's order to refuse a command that its owner cannot decide. Pure.

The order is a claim in the journal, so it is kept with what followed from it: the owner gives way,
claims the partition again, and writes that the command is rejected.
"""

from typing import Final

import msgspec
from msgspec import UNSET

from schemas.envelope import Claim, RefusalOrder
from schemas.reasons import refusing
from schemas.streams import Stream
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.signing import SenderKeys, Unproven
from tunery.runtime.journal.acceptance import record_hash
from tunery.runtime.journal.codec import Undecodable, decode_record

OPERATOR: Final = "operator"
WHY_CHARS_MAX: Final = 500


def refusal_of(command: Record, cause: int, operator: str, why: str) -> RefusalOrder:
    """The order to refuse a command, with an operator's own words."""
    return RefusalOrder(
        cause=cause,
        command_hash=record_hash(command.value).hex(),
        reason=refusing("operator_refused", operator=operator, why=why[:WHY_CHARS_MAX]),
    )


def refusing_claim(
    stream: Stream, refusal: RefusalOrder, owner: str, nonce: str, keys: SenderKeys
) -> Claim:
    """The claim that gives the order. keys: an operator's."""
    signed = keys.sign(stream.name, msgspec.json.encode(refusal))
    return Claim(owner=owner, nonce=nonce, refusal=msgspec.Raw(signed))


def read_refusal(stream: Stream, claim: Record, keys: SenderKeys) -> RefusalOrder | None:
    """The order in a claim's record; None: there is none, or no operator has proven to give it."""
    try:
        parsed = decode_record(claim.value)
        if not isinstance(parsed, Claim) or parsed.refusal is UNSET:
            return None
        signed = bytes(parsed.refusal)
        if keys.sender_of(stream.name, signed, claim.timestamp) not in (None, OPERATOR):
            return None
        return msgspec.json.decode(signed, type=RefusalOrder)
    except (Undecodable, Unproven, msgspec.MsgspecError):
        return None


def refuses(refusal: RefusalOrder, command: Record, cause: int) -> bool:
    """Return whether the order names this command: by its offset and its hash."""
    return refusal.cause == cause and refusal.command_hash == record_hash(command.value).hex()
