"""Writes the journal of `pool` to object storage, range after range, each row exactly once.

1. The object of a range says where it ends. It is created only once, whoever tries.
2. Then the files of the range are written from the log. Their names and bytes depend on nothing
   else, so a process that was killed in between writes the same files again.
3. The end of a range is the beginning of the next one.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeVar

import msgspec

from schemas.account import PricesImported
from schemas.billing import PriceBook
from schemas.pool import UsageCredited, UsageSliced
from schemas.topics import ACCOUNT, PARTITIONS, POOL
from schemas.units import Ms
from services.exporter.adapters.files import FORMATS
from services.exporter.domain.focus import ExportedCharge, charge_of
from services.exporter.domain.ranges import ExportRange, file_key, newest_key, range_key
from services.exporter.settings import ExporterSettings
from tunery.runtime.blobs.abstract import BlobExists, BlobMissing
from tunery.runtime.journal.reader import START, JournalBatch, JournalReader, Position
from tunery.runtime.ports import Runtime
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.work")
POLL_MS: Final[Ms] = 500
ENTRIES_MAX: Final = 500
S = TypeVar("S", bound=msgspec.Struct)


class AnotherWriter(Exception):
    """Another process has ended this range elsewhere: begin again from what is stored."""


@dataclass
class OpenRange:
    """What was read of a partition since the end of its newest range.

    since: when the first charge came; None: there is none.
    """

    first: Position
    end: Position
    charges: list[ExportedCharge] = field(default_factory=list)
    since: Ms | None = None


class ExportHost:
    """Implements `Host`. What it raises is an outage or a price that is missing; it is run again
    and goes on from what is stored.
    """

    name = "exporter"

    def __init__(self, runtime: Runtime, settings: ExporterSettings) -> None:
        self._runtime, self._settings = runtime, settings
        self._books: Mapping[str, PriceBook] = {}
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Follow all partitions. Raises BlobsUnavailable, Unavailable, PriceMissing."""
        self._books = await self._read_books()
        starts = {partition: await self._recover(partition) for partition in range(PARTITIONS)}
        opened = {at: OpenRange(position, position) for at, position in starts.items()}
        reader = JournalReader(self._runtime.log, POOL, starts)
        try:
            await reader.open()
            self._ready.set()
            while True:
                beat("waiting")
                batches = await reader.read(POLL_MS, ENTRIES_MAX)
                beat("working")
                for partition, batch in batches.items():
                    self._add(opened[partition], batch)
                for partition, current in opened.items():
                    if self._is_due(current):
                        opened[partition] = await self._close_range(partition, current)
        finally:
            await reader.close()

    async def _read_books(self) -> Mapping[str, PriceBook]:
        """The price books on the log; every partition of `account` has all of them."""
        reader = JournalReader(self._runtime.log, ACCOUNT, {0: START})
        books: dict[str, PriceBook] = {}
        try:
            await reader.open()
            while not reader.caught_up(0):
                beat("working")
                for batch in (await reader.read(POLL_MS, ENTRIES_MAX)).values():
                    events = (event for entry in batch.accepted for event in entry.events)
                    imported = (event for event in events if isinstance(event, PricesImported))
                    books.update((event.book.version, event.book) for event in imported)
        finally:
            await reader.close()
        return books

    def _add(self, opened: OpenRange, batch: JournalBatch) -> None:
        opened.charges += self._charges(batch)
        opened.end = batch.position
        if opened.charges and opened.since is None:
            opened.since = self._runtime.clock.now_ms()

    def _is_due(self, opened: OpenRange) -> bool:
        if opened.since is None:
            return False
        elapsed_ms = self._runtime.clock.now_ms() - opened.since
        return (
            len(opened.charges) >= self._settings.rows_max or elapsed_ms >= self._settings.every_ms
        )

    def _charges(self, batch: JournalBatch) -> list[ExportedCharge]:
        return [
            charge_of(entry.header, event, self._books, self._settings.provider)
            for entry in batch.accepted
            for event in entry.events
            if isinstance(event, UsageSliced | UsageCredited)
        ]

    async def _close_range(self, partition: int, opened: OpenRange) -> OpenRange:
        """Fix the range, write its files. Raises AnotherWriter."""
        written = ExportRange(first=opened.first, end=opened.end)
        body = msgspec.json.encode(written)
        try:
            await self._runtime.blobs.put(range_key(partition, opened.first), body, if_absent=True)
        except BlobExists as error:
            raise AnotherWriter(f"the range of partition {partition} is another") from error
        await self._write(partition, written, opened.charges)
        return OpenRange(opened.end, opened.end)

    async def _recover(self, partition: int) -> Position:
        """The end of the newest range, whose files are written again: they may be missing."""
        first = await self._stored(newest_key(partition), Position) or START
        while (written := await self._stored(range_key(partition, first), ExportRange)) is not None:
            await self._write(partition, written, await self._read(partition, written))
            first = written.end
        return first

    async def _stored(self, key: str, kind: type[S]) -> S | None:
        try:
            return msgspec.json.decode(await self._runtime.blobs.get(key), type=kind)
        except BlobMissing:
            return None

    async def _read(self, partition: int, written: ExportRange) -> list[ExportedCharge]:
        """The charges of a range, from the log."""
        reader = JournalReader(self._runtime.log, POOL, {partition: written.first})
        charges: list[ExportedCharge] = []
        try:
            await reader.open()
            offset = written.first.offset
            while offset < written.end.offset:
                beat("working")
                left = min(ENTRIES_MAX, written.end.offset - offset)
                batch = (await reader.read(POLL_MS, left)).get(partition)
                if batch is not None:
                    charges += self._charges(batch)
                    offset = batch.position.offset
        finally:
            await reader.close()
        return charges

    async def _write(
        self, partition: int, written: ExportRange, charges: Sequence[ExportedCharge]
    ) -> None:
        """All files of a range, then where the newest range begins."""
        blobs = self._runtime.blobs
        ordered = sorted(charges, key=_owner)  # stable: in the order of the journal
        for (tenant, month), together in groupby(ordered, _owner):
            rows = list(together)
            for kind, suffix, encode in FORMATS:
                key = file_key(tenant, kind, month, partition, written, suffix)
                await blobs.put(key, await asyncio.to_thread(encode, rows))
        await blobs.put(newest_key(partition), msgspec.json.encode(written.first))
        log_event(LOG, logging.INFO, "export.written", partition=partition, rows=len(charges))


def _owner(charge: ExportedCharge) -> tuple[str, str]:
    return charge.tenant, charge.month
