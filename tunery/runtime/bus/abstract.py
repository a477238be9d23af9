"""Port of the log. Offsets count from 0 per partition; timestamps are the broker's (LogAppendTime).

Vocabulary: *append* puts one record at the end; an acknowledged append is durable and has an
offset. An append whose outcome is unknown may be in the log, now or later, once or twice.
"""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from schemas.streams import MESSAGE_BYTES_MAX, Topic
from schemas.units import Ms


class Record(NamedTuple):
    """One record of a partition; `timestamp` is the broker's, in ms since the epoch."""

    partition: int
    offset: int
    timestamp: Ms
    key: bytes
    value: bytes


class Appended(NamedTuple):
    """Offset of a durable record, and the broker's timestamp of it."""

    offset: int
    timestamp: Ms


class BusError(Exception):
    """Base of what the log raises."""


class AppendUnknown(BusError):
    """The append may or may not be in the log. Never retry blindly."""


class Unavailable(BusError):
    """The log cannot be reached; nothing was written by this call."""


class ArchiveAway(Unavailable):
    """Older records of a journal are in an archive that cannot be reached."""

    fix = "see that the bucket of the archive exists, and that this account may list and read it"


class LevelTooLow(Unavailable):
    """The command came with a later level of the log than operators have raised it to: an older
    release could not read it. It can be sent after `tunery upgrade finalize`.
    """

    def __init__(self, needed: int, level: int) -> None:
        super().__init__(
            f"the command needs level {needed} of the log, which is at {level}: finish the upgrade "
            "with `tunery upgrade finalize`"
        )
        self.needed, self.level = needed, level


class TooLarge(BusError):
    """The record is above `MESSAGE_BYTES_MAX`; nothing was written."""


class OutOfRange(BusError):
    """The position is before the log's start or beyond its end."""

    def __init__(self, topic: str, partition: int, offset: int, start: int, end: int) -> None:
        super().__init__(f"{topic}/{partition}: offset {offset} is outside [{start}, {end}]")
        self.partition, self.start, self.end = partition, start, end
        self.why = (
            f"the log has [{start}, {end}): its start or its end is lost, or it is another log"
        )


class ArchiveDamaged(OutOfRange):
    """The log begins later, and its archive cannot be read there; `fix` says what to do."""

    def __init__(self, at: OutOfRange, why: str, fix: str) -> None:
        Exception.__init__(self, why)
        self.partition, self.start, self.end = at.partition, at.start, at.end
        self.why, self.fix = why, fix


def check_size(value: bytes) -> None:
    """Raises TooLarge."""
    if len(value) > MESSAGE_BYTES_MAX:
        raise TooLarge(f"{len(value)} bytes are above the limit of {MESSAGE_BYTES_MAX}")


class Writer(Protocol):
    """Appends to one partition, in call order, several in flight. Thrown away after any doubt."""

    async def submit(self, key: bytes, value: bytes) -> Awaitable[Appended]:
        """Queue the record behind those submitted before; the result is awaited for the outcome.

        May wait for space in the buffer. The awaitable returns when the record is durable and
        raises AppendUnknown. Raises Unavailable, TooLarge.
        """

    async def append(self, key: bytes, value: bytes) -> Appended:
        """Submit and wait. Raises AppendUnknown, Unavailable, TooLarge."""

    async def close(self) -> None:
        """Free the connection; never blocks on what is still in flight."""


class Reader(Protocol):
    """Reads partitions of one topic from given positions, in order, without a consumer group."""

    async def poll(self, wait_ms: Ms, records_max: int) -> Sequence[Record]:
        """Next records (maybe none after `wait_ms`), in offset order within a partition.

        Raises OutOfRange when a position is outside the log, Unavailable when it cannot be reached.
        """

    async def close(self) -> None:
        """Free the connections."""


class Commit(NamedTuple):
    """A position kept by the log for a reader: next offset, and what the reader wrote with it."""

    offset: int
    metadata: str


class Log(Protocol):
    """Topics of a fixed number of partitions, each an ordered sequence of records.

    *Writing.* `writer` gives one partition an own connection with several appends in flight, for
    its owner; `send` appends one record by key, and `send_all` several of one partition, for
    everything else. A record is durable once it
    is acknowledged. An append of unknown outcome may be in the log; the acceptance rule of
    the journal, not the log, makes sure that such doubt is harmless.

    *Reading.* `reader` reads partitions from given offsets, without a group. Offsets between the
    two `bounds` of a partition can be read; `trim` moves the first one.

    *Sharing.* `membership` gives the partitions that this process should own, as processes of a
    group come and go. `commit` and `committed` keep positions of readers that need not be exact.
    """

    @property
    def session_timeout_ms(self) -> Ms:
        """How long a member of a group may be silent before its partitions go to others."""

    async def create(self, topics: Sequence[Topic], partitions: int) -> None:
        """Create what is missing; settings follow from the catalogue.

        partitions: of a topic for which the catalogue names no number
        """

    async def writer(self, topic: str, partition: int) -> Writer:
        """A connected writer of its own. Raises Unavailable."""

    async def send(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> Appended:
        """Durable append by key through one shared producer.

        Raises AppendUnknown, Unavailable, TooLarge.
        """

    async def send_all(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Durable appends of keys and values in this order through the same producer.

        When it raises, some of the first may be in the log, but none without those before it.
        Raises AppendUnknown, Unavailable, TooLarge.
        """

    async def reader(self, topic: str, positions: Mapping[int, int]) -> Reader:
        """Positions: partition → next offset. Raises Unavailable."""

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """(first offset kept, offset that the next record will get). Raises Unavailable."""

    async def ends(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        """The offset that the next record of each partition will get, asked for all at once.

        Raises Unavailable, also when one of them cannot be reached.
        """

    async def trim(self, topic: str, partition: int, before: int) -> None:
        """Delete records below `before`. Raises Unavailable."""

    async def committed(self, group: str, topic: str) -> Mapping[int, Commit]:
        """Positions saved by `commit`, by partition. Raises Unavailable."""

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """Save positions under a name that no membership uses. Raises Unavailable."""

    def membership(
        self, group: str, topic: str
    ) -> AbstractAsyncContextManager[AsyncIterator[frozenset[int]]]:
        """Partitions of `topic` that this process should own, each time they change.

        Another process may still act as their owner: an assignment is a hint, the claim decides.
        """

    async def close(self) -> None:
        """Free the connections; what is in flight is abandoned."""


class OperatedLog(Log, Protocol):
    """Log with administrative operations, for operators' tools; no service uses them."""

    async def members(self, group: str) -> int:
        """How many processes share a group's partitions now. Raises Unavailable."""

    async def recreate(self, topic: Topic, partitions: int) -> None:
        """Delete all that the topic holds; offsets begin at 0 again. Raises Unavailable."""
