"""Rules for which sender may send which command, and the reason for a refusal. Pure."""

from typing import Any, NamedTuple

from immutables import Map

from schemas import errors
from schemas.envelope import Envelope, Reason, Rejected
from schemas.reasons import refusing
from schemas.streams import Stream, key_number_of, node_of, service_of
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.signing import SenderKeys, Unproven
from tunery.runtime.journal.refusals import OPERATOR


class CheckedSender(NamedTuple):
    """Result of checking who sent a command."""

    name: str | None  # the proven sender; None: not checked, or not proven
    refused: Reason | None = None  # why it may not have sent this command; None: it may


def check_sender(
    stream: Stream, envelope: Envelope, body: Any, record: Record, keys: SenderKeys
) -> CheckedSender:
    """Check the sender of a command. body: as decoded; None: it cannot be read."""
    try:
        sender = keys.sender_of(stream.name, record.value, record.timestamp)
    except Unproven:
        return CheckedSender(None, refusing("sender_unproven"))
    if sender in (None, OPERATOR):  # operators have the secret from which all keys derive
        return CheckedSender(sender)
    service, source, command = service_of(sender), envelope.source, type(body)
    if source is not None and not stream.may_name(service, source.stream, command):
        named = source.stream if source.stream in stream.sources else ""  # not any text of theirs
        reaction = refusing("sender_of_reaction", sender=sender, stream=named)
        return CheckedSender(sender, reaction)
    if body is not None and not stream.may_send(service, command):
        other = refusing("sender_not_permitted", sender=sender, command=command.__name__)
        return CheckedSender(sender, other)
    return CheckedSender(sender)


def refuse_withdrawn(withdrawn: Map[str, int], sender: str | None) -> Rejected | None:
    """The refusal of a node whose key an operator has withdrawn; None for all others.

    withdrawn: number of the last key that is, by node id.
    """
    node_id = None if sender is None else node_of(sender)
    if sender is None or node_id is None or key_number_of(sender) > withdrawn.get(node_id, 0):
        return None
    reason = refusing("sender_withdrawn", sender=sender)
    return Rejected(code=errors.SENDER_REFUSED, reason=reason)
