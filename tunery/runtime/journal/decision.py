"""Decides one command record: computes the journal record for it. Pure.

The decided entry is encoded, decoded again and folded before it is appended: what cannot be
read back must never be written.
"""

import re
from typing import Any, Final, Generic, TypeVar
from uuid import UUID, uuid5

from msgspec import Raw, Struct
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import (
    FIRST_LEVEL,
    Context,
    Entry,
    Envelope,
    Message,
    Reason,
    RefusalOrder,
    Rejected,
    Repeated,
    Tick,
)
from schemas.ids import NAMESPACE
from schemas.levels import level_of
from schemas.reasons import refusing
from schemas.streams import GLOBAL, MESSAGE_BYTES_MAX, Stream
from schemas.units import Ms
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.journal.acceptance import Poison, judge, record_hash
from tunery.runtime.journal.codec import (
    Codec,
    Undecodable,
    codec_of,
    decode_envelope,
    decode_record,
    encode,
    raw_events,
)
from tunery.runtime.journal.dedupe import Conflict, Repeat, recognise
from tunery.runtime.journal.fold import Fold, advance
from tunery.runtime.journal.reader import Position
from tunery.runtime.journal.refusals import refuses
from tunery.runtime.journal.senders import check_sender
from tunery.runtime.verbs import Aggregate

KEY_CHARS_MAX: Final = 256
WHY_CHARS_MAX: Final = 300
PATH: Final = re.compile(r"- at `(\$[^`]*)`")  # as msgspec names where a value is wrong
# As `new_id` writes them; any other form is left to UUID, which takes five times as long.
USUAL_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
NO_ENVELOPE: Final = Envelope(id="", key="", tenant="", body=Raw())  # of an unreadable command

S = TypeVar("S")


class CommandRefusal(Struct, frozen=True):
    """A command that never reaches the decider."""

    reason: Reason  # goes on the log
    why: str  # for operators, in words; it may quote the command
    code: str = errors.MALFORMED  # what kind of refusal it is


class Incoming(Struct, frozen=True, gc=False):
    """A decoded command record. Without an envelope it counts as a client's; its id is derived."""

    id: str
    envelope: Envelope | None
    body: Any
    refused: CommandRefusal | None
    sender: str | None = None  # who has proven to have sent it; None: that was not checked

    @property
    def must_not_fail(self) -> bool:
        """True for ticks and commands of a saga: a refusal would leave their sender waiting."""
        from_saga = self.envelope is not None and self.envelope.source is not None
        return from_saga or isinstance(self.body, Tick)


class Decided(Struct, Generic[S], frozen=True, gc=False):
    """A record to append."""

    key: bytes
    value: bytes
    fold: Fold[S]  # state once the record is accepted at the expected offset
    # entry, events: what `value` is decoded to
    entry: Entry
    events: tuple[Message, ...]


def read_command(stream: Stream, record: Record, cause: int) -> Incoming:
    """Decode a command. `refused` says what is wrong with it."""
    try:
        envelope = decode_envelope(record.value)
        if USUAL_ID.fullmatch(envelope.id) is None:
            UUID(envelope.id)
    except (Undecodable, ValueError) as error:
        derived = str(uuid5(NAMESPACE, f"{cause}/{record_hash(record.value).hex()}"))
        unreadable = refusing("envelope_unreadable", path=_path(error))
        return Incoming(derived, None, None, CommandRefusal(unreadable, _shown(error)))
    if (misrouted := _misrouted(stream, record.partition, envelope)) is not None:
        return Incoming(envelope.id, None, None, misrouted)
    try:
        body = codec_of(stream).command(envelope)
    except Undecodable as error:
        unreadable = refusing("body_unreadable", path=_path(error))
        refused = CommandRefusal(unreadable, f"body: {_shown(error)}")
        return Incoming(envelope.id, envelope, None, refused)
    return Incoming(envelope.id, envelope, body, None)


def decide_record(
    aggregate: Aggregate[S],
    fold: Fold[S],
    record: Record,
    expected: int,
    keys: SenderKeys = UNSIGNED,
    refusal: RefusalOrder | None = None,
    level: int = FIRST_LEVEL,
) -> Decided[S]:
    """Decide one command; `expected` is the journal offset that the record should get.

    refusal: an operator's order; the command that it names is rejected and never decided.
    level: of the log, as operators have raised it. A command that needs an event of a later level
    is refused.
    keys: keys that prove its sender. A command of a sender who may not send it is refused, and
    nothing of it but its id reaches the log. Raises Poison when a command of a saga, or a tick,
    cannot be decided.
    """
    fold = _at_level(fold, level)
    cause = fold.position.acceptance.cause + 1
    incoming = _of_sender(
        aggregate.stream, read_command(aggregate.stream, record, cause), record, keys
    )
    at = max(fold.at, record.timestamp)
    if refusal is not None and refuses(refusal, record, cause):
        rejected = Rejected(code=errors.OPERATOR_REFUSED, reason=refusal.reason)
        return _write(aggregate, fold, _bare(incoming), at, (rejected,), expected)
    if incoming.refused is not None and incoming.must_not_fail:
        raise _poison(aggregate.stream, record, incoming.refused.why)
    try:
        events = _events(aggregate, fold, incoming, _context(fold, incoming, at))
        return _write(aggregate, fold, incoming, at, events, expected)
    except Exception as error:
        if incoming.must_not_fail:
            raise _poison(aggregate.stream, record, repr(error)) from error
        rejected = _failed(error)
    try:
        return _write(aggregate, fold, incoming, at, (rejected,), expected)
    except _EntryTooLarge:  # the envelope's own fields are too large already
        bare = Incoming(incoming.id, None, None, incoming.refused, incoming.sender)
        return _write(aggregate, fold, bare, at, (rejected,), expected)


def _at_level(fold: Fold[S], level: int) -> Fold[S]:
    """The fold as the next entry finds it: once raised, the level of a partition never falls."""
    acceptance = fold.position.acceptance
    if level <= acceptance.level:
        return fold
    return replace(fold, position=Position(fold.position.offset, replace(acceptance, level=level)))


def _bare(incoming: Incoming) -> Incoming:
    """The command by its key and its source alone: a repeat of it is recognised."""
    if incoming.envelope is None:
        return incoming
    tenant = incoming.envelope.tenant
    envelope = replace(
        NO_ENVELOPE,
        id=incoming.id,
        key=incoming.envelope.key,
        tenant=tenant if len(tenant) <= KEY_CHARS_MAX else "",
        source=incoming.envelope.source,
    )
    return Incoming(incoming.id, envelope, None, None, incoming.sender)


def _events(
    aggregate: Aggregate[S], fold: Fold[S], incoming: Incoming, context: Context
) -> tuple[Message, ...]:
    if incoming.envelope is not None:
        match recognise(fold.seen, incoming.envelope, context.at):
            case None:
                pass
            case Repeat(of=of):
                return (Repeated(of=of),)
            case Conflict():
                reused = refusing("idempotency_key_reused")
                return (Rejected(code=errors.IDEMPOTENCY_CONFLICT, reason=reused),)
    if incoming.refused is not None:
        return (Rejected(code=incoming.refused.code, reason=incoming.refused.reason),)
    events = aggregate.decide(fold.state, incoming.body, context)
    needed = max(map(level_of, events), default=FIRST_LEVEL)
    if needed > context.level:
        raise _LevelTooLow(needed, context.level)
    return events


class _EntryTooLarge(Exception):
    pass


class _LevelTooLow(Exception):
    """Refuse a decision that an older release, which may still take over, could not read."""

    def __init__(self, needed: int, level: int) -> None:
        super().__init__(
            f"the decision needs level {needed} of the log, which is at {level}: finish the "
            "upgrade with `tunery upgrade finalize`"
        )
        self.needed, self.level = needed, level


def _write(
    aggregate: Aggregate[S],
    fold: Fold[S],
    incoming: Incoming,
    at: Ms,
    events: tuple[Message, ...],
    expected: int,
) -> Decided[S]:
    entry = _entry(fold, incoming, at, events)
    value = encode(entry)
    if len(value) > MESSAGE_BYTES_MAX:
        raise _EntryTooLarge
    codec: Codec = codec_of(aggregate.stream)
    parsed = decode_record(value)
    if not isinstance(parsed, Entry):
        raise TypeError("an entry came back as a claim")
    acceptance, reason = judge(fold.position.acceptance, expected, parsed, value)
    if reason is not None:
        raise RuntimeError(f"the record would be void: {reason}")
    position = Position(expected + 1, acceptance)
    decoded = codec.events(parsed)
    after = advance(aggregate, fold, parsed, decoded, position)
    return Decided(entry.key.encode(), value, after, parsed, decoded)


def _entry(fold: Fold[S], incoming: Incoming, at: Ms, events: tuple[Message, ...]) -> Entry:
    acceptance, envelope = fold.position.acceptance, incoming.envelope or NO_ENVELOPE
    return Entry(
        epoch=acceptance.epoch,
        cause=acceptance.cause + 1,
        prev=acceptance.prev,
        at=at,
        command_id=incoming.id,
        key=envelope.key,
        tenant=envelope.tenant,
        seq=fold.seqs.get(envelope.key, 0) + 1,
        events=raw_events(events),
        source=envelope.source,
        idempotency=envelope.idempotency,
        actor=envelope.actor,
        causation=envelope.causation,
        correlation=envelope.correlation,
        traceparent=envelope.traceparent,
        opened=acceptance.opened,
        sender=incoming.sender,
        level=acceptance.level,
        skippable=tuple(index for index, event in enumerate(events) if event.SKIPPABLE),
    )


def _context(fold: Fold[S], incoming: Incoming, at: Ms) -> Context:
    envelope = incoming.envelope or NO_ENVELOPE
    return Context(
        at=at,
        key=envelope.key,
        tenant=envelope.tenant,
        command_id=incoming.id,
        seq=fold.seqs.get(envelope.key, 0) + 1,
        sender=incoming.sender,
        level=fold.position.acceptance.level,
    )


def _of_sender(stream: Stream, incoming: Incoming, record: Record, keys: SenderKeys) -> Incoming:
    """The command with its sender; of one that may not send it only the id is left."""
    if incoming.envelope is None:
        return incoming
    sender, reason = check_sender(stream, incoming.envelope, incoming.body, record, keys)
    if reason is None:
        return replace(incoming, sender=sender)
    refusal = CommandRefusal(reason, reason.code, errors.SENDER_REFUSED)
    return Incoming(incoming.id, None, None, refusal, sender)


def _misrouted(stream: Stream, partition: int, envelope: Envelope) -> CommandRefusal | None:
    if not 0 < len(envelope.key) <= KEY_CHARS_MAX:
        why = f"the key must have 1 to {KEY_CHARS_MAX} characters"
        return CommandRefusal(refusing("key_length", limit=KEY_CHARS_MAX), why)
    if envelope.key == GLOBAL:
        if envelope.tenant == GLOBAL:
            return None
        return CommandRefusal(refusing("tenant_not_global"), "a global command has the tenant *")
    if partition_of(envelope.key.encode()) != partition:
        why = "the key belongs to another partition"
        return CommandRefusal(refusing("partition_wrong"), why)
    if stream.key == "tenant" and envelope.tenant != envelope.key:
        return CommandRefusal(refusing("tenant_not_key"), "the tenant is not the key")
    return None


def _failed(error: Exception) -> Rejected:
    """Return the refusal for a decision that raised. Texts of errors are left out: they may quote
    the tenant.
    """
    if isinstance(error, _EntryTooLarge):
        above = refusing("record_too_large", limit_bytes=MESSAGE_BYTES_MAX)
        return Rejected(code=errors.TOO_LARGE, reason=above)
    if isinstance(error, _LevelTooLow):
        low = refusing("level_too_low", needed=error.needed, level=error.level)
        return Rejected(code=errors.LEVEL_TOO_LOW, reason=low)
    undecided = refusing("decision_failed", error=type(error).__name__)
    return Rejected(code=errors.INTERNAL, reason=undecided)


def _poison(stream: Stream, record: Record, why: str) -> Poison:
    return Poison(f"{stream.name} (commands)", record.partition, record.offset, why)


def _path(error: Exception) -> str:
    """Return the path of what cannot be decoded in a record; never its value: it may be secret."""
    named = PATH.search(str(error))
    return named[1] if named else "$"


def _shown(error: Exception) -> str:
    return str(error)[:WHY_CHARS_MAX]
