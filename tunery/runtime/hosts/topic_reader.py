"""Reads a topic that is no journal into tables; rows and position are committed together."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from schemas.streams import PARTITIONS, Topic
from schemas.units import Ms
from tunery.runtime.bus.abstract import OutOfRange, Record
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.journal.reader import Position
from tunery.runtime.ports import Ports
from tunery.runtime.store.abstract import CommitResult, RowBatch, Tables
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Upsert
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.work")
POLL_MS: Final[Ms] = 500
RECORDS_MAX: Final = 1_000
MessageT = TypeVar("MessageT")


class StoredTable(Protocol):
    """A table that records become rows of."""

    @property
    def name(self) -> str: ...

    def ddl(self) -> str:
        """Statements that create it if it does not exist."""
        ...


@dataclass(frozen=True)
class TopicRows:
    """The rows that a topic's records lead to."""

    # name, version: name and version of the projection
    name: str
    version: int
    topic: Topic
    tables: tuple[StoredTable, ...]
    changes_of: Callable[[Record], Sequence[Upsert]]
    # notifies followers of a row; None: there are none
    notice: Callable[[Upsert], str] | None = None

    @property
    def partitions(self) -> tuple[tuple[str, int], ...]:
        return tuple((self.name, partition) for partition in range(PARTITIONS))

    def stored(self) -> Tables:
        """The tables and positions as the store keeps them."""
        ddl = "\n".join(table.ddl() for table in self.tables)
        names = tuple(table.name for table in self.tables)
        return Tables(self.name, self.version, self.partitions, ddl, names)


def decoded(record: Record, decoder: msgspec.json.Decoder[MessageT], event: str) -> MessageT | None:
    """The message of a record; None for one that cannot be decoded, of which `event` is logged."""
    try:
        return decoder.decode(record.value)
    except MALFORMED as error:
        position = f"{record.partition}/{record.offset}"
        log_event(LOG, logging.WARNING, event, why=error, position=position)
        return None


class TopicReader:
    """Implements `Host`."""

    def __init__(
        self,
        runtime: Ports,
        rows: TopicRows,
        counted: Callable[[Sequence[Record]], Awaitable[Sequence[Record]]] | None = None,
    ) -> None:
        """counted: selects the records that become rows; None: all of them."""
        self.name, self._counted = f"{rows.name} reader", counted
        self._log, self._store, self._rows = runtime.log, runtime.store, rows
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Read until cancelled; starts again when another process has committed first."""
        await self._store.ensure(self._rows.stored())
        while True:
            offsets = await self._offsets()
            reader = await self._log.reader(self._rows.topic.name, offsets)
            self._ready.set()
            try:
                while True:
                    beat("waiting")
                    records = await reader.poll(POLL_MS, RECORDS_MAX)
                    if not await self._commit(offsets, records):
                        break
            except OutOfRange as gone:
                log_event(LOG, logging.WARNING, "topic.records_expired", why=gone)
            finally:
                await reader.close()

    async def _offsets(self) -> dict[int, int]:
        """Saved positions, moved to the oldest records that the topic still has."""
        saved = await self._store.positions(self._rows.name)
        offsets = {}
        for name, partition in self._rows.partitions:
            start, end = await self._log.bounds(self._rows.topic.name, partition)
            offset = saved[name, partition].position.offset
            within = start <= offset <= end
            offsets[partition] = offset if within else start
            if not within:
                await self._store.commit(self._batch(partition, offset, start, ()))
        return offsets

    async def _commit(self, offsets: dict[int, int], records: Sequence[Record]) -> bool:
        """Commit a batch; False when another process was first and positions must be read again."""
        by_partition: dict[int, list[Record]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
        for partition, of_partition in sorted(by_partition.items()):
            after = of_partition[-1].offset + 1
            counted: Sequence[Record] = of_partition
            if self._counted is not None:
                counted = await self._counted(of_partition)
            changes = [change for record in counted for change in self._rows.changes_of(record)]
            batch = self._batch(partition, offsets[partition], after, changes)
            beat("working")
            if await self._store.commit(batch) is CommitResult.STALE:
                return False
            offsets[partition] = after
        return True

    def _batch(
        self, partition: int, before: int, after: int, changes: Sequence[Upsert]
    ) -> RowBatch:
        notice = self._rows.notice
        return RowBatch(
            projection=self._rows.name,
            version=self._rows.version,
            partition=(self._rows.name, partition),
            expected=before,
            position=Position(after),
            changes=changes,
            notices=[] if notice is None else sorted({notice(change) for change in changes}),
        )
