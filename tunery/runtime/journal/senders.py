"""Who has sent a command, and why that sender may not have sent it. Pure."""

from typing import Any, NamedTuple

from immutables import Map

from schemas import errors
from schemas.answers import NUMBERED_ANSWERS, CountAnswers
from schemas.envelope import Envelope, Reason, Rejected, Source
from schemas.reasons import refusing
from schemas.topics import STREAMS, Stream, key_number_of, node_of
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.grants import service_of
from tunery.runtime.bus.signing import SenderKeys, Unproven


class CheckedSender(NamedTuple):
    """name: who has proven to have sent it; None: that was not checked, or is not proven.

    refused: why it may not have sent this command; None: it may.
    """

    name: str | None
    refused: Reason | None = None


def check_sender(
    stream: Stream, envelope: Envelope, body: Any, record: Record, keys: SenderKeys
) -> CheckedSender:
    """Check the sender of a command. body: as decoded; None: it cannot be read."""
    try:
        sender = keys.sender_of(stream.name, record.value, record.timestamp)
    except Unproven:
        return CheckedSender(None, refusing("sender_unproven"))
    if sender is None:
        return CheckedSender(None)
    service, source, command = service_of(sender), envelope.source, type(body)
    if source is not None and not _may_name(stream, service, source, body):
        named = source.stream if source.stream in STREAMS else ""  # not any text of theirs
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


def _may_name(stream: Stream, service: str, source: Source, body: Any) -> bool:
    """Whether a service reacts to the source's stream. With a false source it would make others'
    reactions be dropped, and one that cannot be decided stops the partition.

    Counts of answers have numbers of their own, below a name that nobody can guess.
    """
    if source.stream.startswith(NUMBERED_ANSWERS):
        return isinstance(body, CountAnswers)
    reacted = STREAMS.get(source.stream)
    return not stream.permits or (reacted is not None and reacted.owner == service)
