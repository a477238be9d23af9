"""Journal records for people: what is in one, whether it counts, and why not.

The verdict is that of the acceptance rule, which every reader applies; this only puts it in words.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, field

from schemas.envelope import Claim, Entry, JournalRecord, RefusalOrder
from schemas.sealed import Sealed
from schemas.streams import Stream
from schemas.units import Ms
from tunery.runtime.bus.abstract import Record
from tunery.runtime.journal.acceptance import Acceptance, Divergence, PartitionStopped
from tunery.runtime.journal.codec import (
    MALFORMED,
    Undecodable,
    codec_of,
    decode_envelope,
    decode_record,
)
from tunery.runtime.journal.decision import read_command
from tunery.runtime.journal.reader import START, Position, read_record

#: `unreached`: readers stop before it, so it is not known whether it counts;
#: `readable`, `refused`: of a command, which counts for nothing until it is decided
Verdict: TypeAlias = Literal[
    "accepted", "claim", "void", "divergent", "unreadable", "unreached", "readable", "refused"
]
SEALED_FIELDS: Final = frozenset(Sealed.__struct_fields__)
BYTES_SHOWN: Final = 400
RESTORE: Final = "restore the stream from an export made before this (`tunery journal import`)"
FIXES: Final[dict[Verdict, str]] = {
    "refused": "of a client: none, the journal says that it was rejected; of a reaction: start a "
    "version that can take it, or `tunery journal refuse`",
    "divergent": f"this log was changed, or is not the one it was: {RESTORE}, or from a replica",
    "unreadable": "start a version that can read it (readers are deployed before writers); if its "
    f"bytes are damaged, {RESTORE}",
}


class RecordReport(Struct, frozen=True, kw_only=True):
    """One record. `why` is empty for what counts; `fix` is set where readers stop."""

    stream: str
    partition: int
    offset: int
    timestamp: Ms
    verdict: Verdict
    why: str = ""
    fix: str = ""
    # the record decoded, events included, sealed fields as `show` said; null when it cannot be
    # decoded, and then `bytes` shows the beginning of what is there
    content: Any = None
    bytes: str | None = None
    key: str | None = None


def mention(sealed: Sealed) -> str:
    """The placeholder for a sealed field whose text must not be shown."""
    return f"[sealed with {sealed.key_id}]"


def unsealed(value: Any, show: Callable[[Sealed], Any]) -> Any:
    """Decoded JSON with each sealed field replaced by what `show` makes of it. Pure."""
    match value:
        case dict() if value.keys() == SEALED_FIELDS:
            return show(msgspec.convert(value, Sealed))
        case dict():
            return {name: unsealed(element, show) for name, element in value.items()}
        case list() | tuple():
            return [unsealed(element, show) for element in value]
        case _:
            return value


class Inspector:
    """Walks one partition, and never further than a reader would.

    position: where to go on from, verified before; by default the first record.
    """

    def __init__(
        self, stream: Stream, show: Callable[[Sealed], Any] = mention, position: Position = START
    ) -> None:
        self.position = position
        self._stream, self._codec, self._show = stream, codec_of(stream), show
        self._owner = "no owner"  # of the current epoch
        self._stopped = ""

    def judge(self, record: Record) -> tuple[Verdict, str]:
        """The verdict and its reason."""
        if self._stopped:
            return "unreached", self._stopped
        before = self.position.acceptance
        try:
            judged = read_record(self._stream, self._codec, self.position, record)
        except PartitionStopped as stopped:
            self._stopped = f"readers stop at offset {record.offset}: {stopped.why}"
            return "divergent" if isinstance(stopped, Divergence) else "unreadable", stopped.why
        self.position = judged.position
        if judged.claim is not None:
            self._owner = judged.claim.owner
            return "claim", _claims(judged.claim, record.offset)
        if judged.accepted is not None:
            return "accepted", ""
        return "void", self._void(before, record)

    def look(self, record: Record) -> RecordReport:
        return self.describe(record, *self.judge(record))

    def describe(self, record: Record, verdict: Verdict, why: str) -> RecordReport:
        content = contents(decode_record, record, self._show)
        return _looked(self._stream.name, record, verdict, why, content)

    def _void(self, state: Acceptance, record: Record) -> str:
        entry = decode_record(record.value)
        if not isinstance(entry, Entry):
            raise TypeError("only entries are void")
        if entry.epoch < state.epoch:
            return (
                f"written under epoch {entry.epoch}, after {self._owner} had claimed the partition "
                f"at offset {state.epoch}"
            )
        return f"it decides command {entry.cause}, and command {state.cause + 1} is the next"


def _claims(claim: Claim, offset: int) -> str:
    claimed = f"{claim.owner} takes the partition: epoch {offset}"
    if claim.refusal is not UNSET:
        refusal = msgspec.json.decode(claim.refusal, type=RefusalOrder)
        said = refusal.reason.params
        return f"{claimed}; {said['operator']} refuses command {refusal.cause}: {said['why']}"
    if claim.base is None:
        return claimed
    return f"{claimed}; an operator's claim: command {claim.base} is at physical offset 0"


def look_at_command(
    stream: Stream, record: Record, show: Callable[[Sealed], Any] = mention
) -> RecordReport:
    """A record of a commands topic, as its owner reads it."""
    refused = read_command(stream, record, record.offset).refused
    content = contents(decode_envelope, record, show)
    name = f"{stream.name} (commands)"
    if refused is None:
        return _looked(name, record, "readable", "", content)
    return _looked(name, record, "refused", refused.why, content)


def _looked(stream: str, record: Record, verdict: Verdict, why: str, content: Any) -> RecordReport:
    return RecordReport(
        stream=stream,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        verdict=verdict,
        why=why,
        fix=FIXES.get(verdict, ""),
        content=content,
        bytes=repr(record.value[:BYTES_SHOWN]) if content is None else None,
        key=record.key.decode(errors="replace") or None,
    )


def contents(
    decode: Callable[[bytes], object], record: Record, show: Callable[[Sealed], Any]
) -> Any:
    """The record as builtins, events or body included; None when `decode` cannot read its frame.

    An event or a body of a type that this version does not know is shown as it stands.
    """
    try:
        decode(record.value)
        return unsealed(msgspec.json.decode(record.value), show)
    except (Undecodable, *MALFORMED):
        return None


class PartitionReport(Struct, kw_only=True):
    """Result of a walk over a partition: counts, and the acceptance rule's state at its end."""

    stream: str
    partition: int
    records: int = 0
    end: int = 0
    accepted: int = 0
    void: int = 0
    claims: int = 0
    epoch: int = -1
    cause: int = -1
    incarnation: int = 0
    base: int = 0
    head: str = ""  # hash of the last accepted record
    command_id: str = ""  # the command that it decided
    # newest offset in other journals that caused a record here, by "stream/partition"
    causes: dict[str, int] = field(default_factory=dict)
    bad: RecordReport | None = None

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.partition}"


def missing_causes(tallies: Iterable[PartitionReport]) -> Iterator[str]:
    """Yield what journals of different moments lack: a record that follows from one which is gone.

    A journal that is cut off before its neighbours verifies by itself, and yet the jobs whose
    placements another one has would be trained and billed without existing.
    """
    known = {tally.name: tally for tally in tallies}
    for tally in known.values():
        for name, offset in sorted(tally.causes.items()):
            if name in known and offset >= (end := known[name].end):
                yield (
                    f"{tally.name} has a record that follows from {name} at offset {offset}, and "
                    f"{name} ends at {end}"
                )


class PartitionScan:
    """Verifies one partition: feed it all records in order; `tally` is up to date at any time.

    position: where to go on from, verified before; the tally counts what comes after it.
    """

    def __init__(self, stream: Stream, partition: int, position: Position = START) -> None:
        self.tally = PartitionReport(stream=stream.name, partition=partition, end=position.offset)
        self._inspector = Inspector(stream, position=position)
        self.take(())

    @property
    def position(self) -> Position:
        return self._inspector.position

    def take(self, records: Iterable[Record]) -> None:
        """The next records of the partition, in order; those after a bad one are ignored."""
        tally, last = self.tally, None
        for record in records:
            if tally.bad is not None:
                break
            verdict, why = self._inspector.judge(record)
            match verdict:
                case "accepted":
                    tally.accepted += 1
                    last = decode_record(record.value)
                    self._note_cause(last)
                case "claim":
                    tally.claims += 1
                case "void":
                    tally.void += 1
                case _:
                    tally.bad = self._inspector.describe(record, verdict, why)
            tally.records += 1
            tally.end = record.offset + 1
        acceptance = self._inspector.position.acceptance
        tally.epoch, tally.cause = acceptance.epoch, acceptance.cause
        tally.incarnation, tally.base = acceptance.incarnation, acceptance.base
        tally.head = acceptance.prev.hex()
        if isinstance(last, Entry):
            tally.command_id = last.command_id

    def _note_cause(self, record: JournalRecord) -> None:
        if isinstance(record, Entry) and record.source is not None:
            source = record.source
            name = f"{source.stream}/{source.partition}"
            self.tally.causes[name] = max(source.offset, self.tally.causes.get(name, -1))
