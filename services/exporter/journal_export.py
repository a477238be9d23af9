"""Writes one stream's journal to object storage, range after range, each row exactly once.

1. The object of a range says where it ends. It is created only once, by any process.
2. Then the files of the range are written from the log. Their names and bytes depend on nothing
   else, so a process that was killed in between writes the same files again.
3. Then the object `newest` names the range: it is complete. Its end is the beginning of the next.

An entry whose month is not known yet holds its own partition: what came before it is written, what
comes after it is not read, and the other partitions go on. Nothing of this is stored, because the
next range begins where the last one ended.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias, TypeVar

import msgspec

from schemas.streams import PARTITIONS, Stream
from schemas.units import Ms
from services.exporter.adapters.files import FORMATS
from services.exporter.domain.accounts import MonthOpen
from services.exporter.domain.focus import ExportedCharge
from services.exporter.domain.ranges import ExportRange, RangeFile, file_key, newest_key, range_key
from services.exporter.settings import ExporterSettings
from tunery.platform.ports import Runtime
from tunery.runtime.blobs.abstract import BlobExists, BlobMissing
from tunery.runtime.journal.reader import START, Accepted, JournalBatch, JournalReader, Position
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.work")
RECOVERY_POLL_MS: Final[Ms] = 500
ENTRIES_MAX: Final = 500
S = TypeVar("S", bound=msgspec.Struct)
Announcer: TypeAlias = Callable[[int, ExportRange, Sequence[ExportedCharge]], Awaitable[None]]


class AnotherWriter(Exception):
    """Another process has ended this range elsewhere: begin again from what is stored."""


@dataclass
class OpenRange:
    """Charges that were read from a partition since the end of its newest range."""

    first: Position
    end: Position
    charges: list[ExportedCharge] = field(default_factory=list)
    since: Ms | None = None  # when the first charge came; None: there is none
    # the entry at `end`, while its month is not known. Nothing after it is read.
    held: Accepted | None = None


class JournalExport:
    """Follows all partitions of a stream.

    charges_of: the rows that an entry of it becomes; where it raises MonthOpen it is asked again.
    announce: called for each written range; called again after a kill.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: ExporterSettings,
        stream: Stream,
        charges_of: Callable[[Accepted], list[ExportedCharge]],
        announce: Announcer | None = None,
    ) -> None:
        self._runtime, self._settings, self._stream = runtime, settings, stream
        self._charges_of, self._announce = charges_of, announce
        self._opened: dict[int, OpenRange] = {}
        self._reader: JournalReader | None = None

    async def open(self) -> None:
        """Write what a killed process did not write of its range, and begin at the ends."""
        starts = {partition: await self._recover(partition) for partition in range(PARTITIONS)}
        self._opened = {at: OpenRange(position, position) for at, position in starts.items()}
        await self._read_on()

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()

    async def step(self, wait_ms: Ms) -> None:
        """Read what there is, and write the ranges that are due.

        Raises AnotherWriter, BlobsUnavailable, Unavailable, and what `charges_of` raises but
        MonthOpen.
        """
        if self._reader is None:
            raise RuntimeError("open it first")
        beat("waiting")
        batches = await self._reader.read(wait_ms, ENTRIES_MAX)
        beat("working")
        for partition, batch in batches.items():
            self._add(partition, batch)
        for opened in self._opened.values():
            self._release(opened)
        if self._reader.positions.keys() != self._read_partitions().keys():
            await self._read_on()
        for partition, current in self._opened.items():
            if self._is_due(current):
                self._opened[partition] = await self._close_range(partition, current)

    def _read_partitions(self) -> dict[int, Position]:
        """Return the position to read on at, for each partition that no entry blocks."""
        return {at: opened.end for at, opened in self._opened.items() if opened.held is None}

    async def _read_on(self) -> None:
        await self.close()
        self._reader = JournalReader(self._runtime.log, self._stream, self._read_partitions())
        await self._reader.open()

    def _add(self, partition: int, batch: JournalBatch) -> None:
        opened = self._opened[partition]
        for entry in batch.accepted:
            if not self._add_entry(opened, entry):
                opened.held = entry
                log_event(
                    LOG,
                    logging.INFO,
                    "export.waiting",
                    stream=self._stream.name,
                    partition=partition,
                    offset=entry.header.offset,
                )
                return
        opened.end = batch.position  # past claims and void records, too

    def _release(self, opened: OpenRange) -> None:
        if opened.held is not None and self._add_entry(opened, opened.held):
            opened.held = None

    def _add_entry(self, opened: OpenRange, entry: Accepted) -> bool:
        """Add the charges of an entry to the range; return False if its month is still open."""
        try:
            opened.charges += self._charges_of(entry)
        except MonthOpen:
            return False
        opened.end = entry.position
        if opened.charges and opened.since is None:
            opened.since = self._runtime.clock.now_ms()
        return True

    def _is_due(self, opened: OpenRange) -> bool:
        if opened.since is None:
            return False
        elapsed_ms = self._runtime.clock.now_ms() - opened.since
        return (
            len(opened.charges) >= self._settings.rows_max or elapsed_ms >= self._settings.every_ms
        )

    def _charges(self, batch: JournalBatch) -> list[ExportedCharge]:
        return [charge for entry in batch.accepted for charge in self._charges_of(entry)]

    async def _close_range(self, partition: int, opened: OpenRange) -> OpenRange:
        """Fix the range, write its files. Raises AnotherWriter."""
        written = ExportRange(first=opened.first, end=opened.end)
        key = range_key(self._stream.name, partition, opened.first)
        try:
            await self._runtime.blobs.put(key, msgspec.json.encode(written), if_absent=True)
        except BlobExists as error:
            raise AnotherWriter(f"{key} is of another process") from error
        await self._write(partition, written, opened.charges)
        return OpenRange(opened.end, opened.end, held=opened.held)

    async def _recover(self, partition: int) -> Position:
        """The end of the newest range. Files of one that is not complete are written again."""
        name = self._stream.name
        newest = await self._stored(newest_key(name, partition), Position)
        first, complete = newest or START, newest is not None
        while written := await self._stored(range_key(name, partition, first), ExportRange):
            if not complete:
                await self._write(partition, written, await self._read(partition, written))
            first, complete = written.end, False
        return first

    async def _stored(self, key: str, kind: type[S]) -> S | None:
        try:
            return msgspec.json.decode(await self._runtime.blobs.get(key), type=kind)
        except BlobMissing:
            return None

    async def _read(self, partition: int, written: ExportRange) -> list[ExportedCharge]:
        """The charges of a range, from the log."""
        reader = JournalReader(self._runtime.log, self._stream, {partition: written.first})
        charges: list[ExportedCharge] = []
        try:
            await reader.open()
            offset = written.first.offset
            while offset < written.end.offset:
                beat("working")
                left = min(ENTRIES_MAX, written.end.offset - offset)
                batch = (await reader.read(RECOVERY_POLL_MS, left)).get(partition)
                if batch is not None:
                    charges += self._charges(batch)
                    offset = batch.position.offset
        finally:
            await reader.close()
        return charges

    async def _write(
        self, partition: int, written: ExportRange, charges: Sequence[ExportedCharge]
    ) -> None:
        """All files of a range, then where the newest complete range begins."""
        name, blobs = self._stream.name, self._runtime.blobs
        ordered = sorted(charges, key=_owner)  # stable: in the order of the journal
        for (tenant, month), together in groupby(ordered, _owner):
            rows = list(together)
            for kind, suffix, encode in FORMATS[self._settings.focus]:
                key = file_key(RangeFile(tenant, kind, month, suffix), name, partition, written)
                await blobs.put(key, await asyncio.to_thread(encode, rows))
        if self._announce is not None:
            await self._announce(partition, written, charges)
        await blobs.put(newest_key(name, partition), msgspec.json.encode(written.first))
        log_event(
            LOG,
            logging.INFO,
            "export.written",
            stream=name,
            partition=partition,
            rows=len(charges),
        )


def _owner(charge: ExportedCharge) -> tuple[str, str]:
    return charge.tenant, charge.month
