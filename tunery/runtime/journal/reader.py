"""Reads journals in order, applies the acceptance rule, and reports gaps."""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from schemas.envelope import Claim, Entry, Header
from schemas.streams import Stream
from schemas.units import Ms
from tunery.runtime.bus.abstract import Log, OutOfRange, Reader, Record
from tunery.runtime.journal.acceptance import (
    INITIAL,
    Acceptance,
    Diverged,
    Divergence,
    PartitionStopped,
    Reason,
    Unreadable,
    judge,
)
from tunery.runtime.journal.codec import Codec, Undecodable, codec_of, decode_record

BATCH_RECORDS_MAX: Final = 500  # more at once is slower: what was made first has left the caches


class Position(Struct, frozen=True, array_like=True, gc=False):
    """Next offset to read, and the state of the acceptance rule just before it."""

    offset: int = 0
    acceptance: Acceptance = INITIAL

    def dump(self) -> str:
        """JSON text, for readers that keep positions in a column or as commit metadata."""
        return msgspec.json.encode(self).decode()


START: Final = Position()


def load_position(text: str) -> Position:
    """Inverse of `Position.dump`. Raises msgspec.DecodeError."""
    return msgspec.json.decode(text, type=Position)


class Accepted(Struct, frozen=True, gc=False):
    """An entry that counts."""

    stream: str
    partition: int
    entry: Entry
    events: tuple[Any, ...]
    position: Position  # where to continue after it
    value: bytes  # its bytes in the log

    @property
    def header(self) -> Header:
        """The header, computed on demand: a replay reads millions of entries without it."""
        entry = self.entry
        return Header(
            stream=self.stream,
            partition=self.partition,
            offset=self.position.offset - 1,
            at=entry.at,
            key=entry.key,
            tenant=entry.tenant,
            seq=entry.seq,
            command_id=entry.command_id,
            incarnation=self.position.acceptance.incarnation,
            correlation=entry.correlation,
            traceparent=entry.traceparent,
            actor=entry.actor,
            level=entry.level,
        )


class JournalBatch(Struct, frozen=True):
    """The result of one read for one partition."""

    accepted: tuple[Accepted, ...]  # the entries that count
    position: Position  # also past claims and void records


class Judged(Struct, frozen=True, gc=False):
    """One record as the rule judges it: accepted, or void for `reason` (claims count as void)."""

    accepted: Accepted | None
    reason: Reason | None
    position: Position
    claim: Claim | None = None


def read_record(stream: Stream, codec: Codec, position: Position, record: Record) -> Judged:
    """Take one record. Raises Divergence or Unreadable, which name the place. Pure."""
    try:
        if record.offset != position.offset:
            raise Diverged(f"expected offset {position.offset}; records are missing")
        parsed = decode_record(record.value)
        acceptance, reason = judge(position.acceptance, record.offset, parsed, record.value)
        after = Position(record.offset + 1, acceptance)
        if not isinstance(parsed, Entry):  # a test that most often says yes is five times quicker
            return Judged(None, reason, after, parsed)
        if reason is not None:
            return Judged(None, reason, after)
        if parsed.level > stream.level:
            raise Undecodable(
                f"the log is at level {parsed.level}, and this release reads up to {stream.level}: "
                "start a newer release"
            )
        events = codec.events(parsed)
    except Undecodable as error:
        raise Unreadable(stream.name, record.partition, record.offset, str(error)) from error
    except Diverged as error:
        raise Divergence(stream.name, record.partition, record.offset, str(error)) from error
    accepted = Accepted(stream.name, record.partition, parsed, events, after, record.value)
    return Judged(accepted, None, after)


class JournalReader:
    """Follows partitions of one stream's journal. Open it, then call `read` for ever.

    A partition that stops (Divergence, Unreadable) delivers what was good before; then `read`
    raises, once for that partition. After catching it, read on: the other partitions continue.
    """

    def __init__(self, log: Log, stream: Stream, positions: Mapping[int, Position]) -> None:
        self.positions = dict(positions)
        self.stopped: dict[int, PartitionStopped] = {}
        self.claims: dict[int, tuple[int, Claim]] = {}  # offset and content of the last one read
        # Records of operators' claims that refuse a command, since the last entry that counts.
        self.refusing: dict[int, list[Record]] = {}
        self._log, self._stream, self._codec = log, stream, codec_of(stream)
        self._unraised: deque[PartitionStopped] = deque()
        self._ends: dict[int, int] = {}
        self._reader: Reader | None = None

    async def open(self) -> None:
        """Connect and note where the log ends now. Raises Unavailable."""
        topic = self._stream.journal.name
        for partition, position in self.positions.items():
            start, end = await self._log.bounds(topic, partition)
            self._ends[partition] = end
            if not start <= position.offset <= end:
                self._stop_outside(OutOfRange(topic, partition, position.offset, start, end))
        await self._reopen()

    def caught_up(self, partition: int) -> bool:
        """Return whether the position has reached the end that the log had at `open`."""
        return self.positions[partition].offset >= self._ends[partition]

    async def read(
        self, wait_ms: Ms, records_max: int = BATCH_RECORDS_MAX
    ) -> dict[int, JournalBatch]:
        """Next batches by partition; empty after `wait_ms` without records.

        Raises Divergence, Unreadable, Unavailable.
        """
        if self._unraised:
            raise self._unraised.popleft()
        if self._reader is None:
            raise RuntimeError("open the reader first")
        try:
            records = await self._reader.poll(wait_ms, records_max)
        except OutOfRange as error:
            self._stop_outside(error)
            await self._reopen()
            return {}
        return self._take(records)

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()

    def _take(self, records: Any) -> dict[int, JournalBatch]:
        accepted: dict[int, list[Accepted]] = {}
        for record in records:
            partition = record.partition
            if partition in self.stopped:
                continue
            entries = accepted.setdefault(partition, [])
            try:
                judged = read_record(self._stream, self._codec, self.positions[partition], record)
            except PartitionStopped as stopped:
                self._stop(stopped)
                continue
            self.positions[partition] = judged.position
            if judged.accepted is not None:
                entries.append(judged.accepted)
                self.refusing.pop(partition, None)
            elif judged.claim is not None:
                self.claims[partition] = (record.offset, judged.claim)
                if judged.claim.refusal is not UNSET:
                    self.refusing.setdefault(partition, []).append(record)
        return {
            partition: JournalBatch(tuple(entries), self.positions[partition])
            for partition, entries in accepted.items()
        }

    def _stop_outside(self, error: OutOfRange) -> None:
        offset = self.positions[error.partition].offset
        self._stop(Divergence(self._stream.name, error.partition, offset, error.why))

    def _stop(self, stopped: PartitionStopped) -> None:
        self.stopped[stopped.partition] = stopped
        self._unraised.append(stopped)

    async def _reopen(self) -> None:
        """The reader of what has not stopped."""
        await self.close()
        live = {
            partition: position.offset
            for partition, position in self.positions.items()
            if partition not in self.stopped
        }
        self._reader = await self._log.reader(self._stream.journal.name, live)
