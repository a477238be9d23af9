"""Port of the log. Offsets count from 0 per partition; timestamps are the broker's (LogAppendTime).

Vocabulary: *append* puts one record at the end; an acknowledged append is durable and has an offset.
An append whose outcome is unknown may be in the log, now or later, once or twice.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from schemas.topics import Topic
from schemas.units import Ms


@dataclass(frozen=True)
class Record:
    partition: int
    offset: int
    timestamp: Ms
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Appended:
    offset: int
    timestamp: Ms


class BusError(Exception):
    """Base of what the log raises."""


class AppendUnknown(BusError):
    """The append may or may not be in the log. Never retry blindly."""


class Unavailable(BusError):
    """The log cannot be reached; nothing was written by this call."""


class OutOfRange(BusError):
    """The position is before the log's start or beyond its end."""

    def __init__(self, topic: str, partition: int, offset: int, start: int, end: int) -> None:
        super().__init__(f"{topic}/{partition}: offset {offset} is outside [{start}, {end}]")
        self.start, self.end = start, end


class Writer(Protocol):
    """Appends to one partition, in call order, several in flight. Thrown away after any doubt."""

    async def append(self, key: bytes, value: bytes) -> Appended:
        """Return when the record is durable. Raises AppendUnknown, Unavailable."""

    async def close(self) -> None:
        """Free the connection; never blocks on what is still in flight."""


class Reader(Protocol):
    """Reads partitions of one topic from given positions, in order, without a consumer group."""

    async def poll(self, wait_ms: int, records_max: int) -> Sequence[Record]:
        """Next records (maybe none after `wait_ms`), in offset order within a partition.

        Raises OutOfRange when a position is outside the log, Unavailable when it cannot be reached.
        """

    async def close(self) -> None: ...


class Log(Protocol):
    async def create(self, topics: Sequence[Topic], partitions: int) -> None:
        """Create what is missing; settings follow from the catalogue."""

    async def writer(self, topic: str, partition: int) -> Writer: ...

    async def send(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> None:
        """Durable append by key through one shared producer. Raises AppendUnknown, Unavailable."""

    async def reader(self, topic: str, positions: Mapping[int, int]) -> Reader: ...

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """(first offset kept, offset that the next record will get)."""

    async def trim(self, topic: str, partition: int, before: int) -> None:
        """Delete records below `before`."""

    def membership(
        self, group: str, topic: str
    ) -> AbstractAsyncContextManager[AsyncIterator[frozenset[int]]]:
        """Partitions of `topic` that this process should own, each time they change."""
