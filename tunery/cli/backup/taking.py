"""Takes a backup while everything runs: a consistent cut of the log, then keys, then objects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Final

from schemas.streams import PARTITIONS, Stream
from schemas.topics import AUDIT, AUDIT_PARTITION, STREAMS
from schemas.units import Ms
from tunery.cli.backup.folder import (
    AUDIT_NAME,
    FORMAT,
    Backup,
    BackupFolder,
    LogSegment,
    Manifest,
)
from tunery.cli.backup.pruning import Keep, add_kept
from tunery.cli.backup.surroundings import ListObjects, copy_keys, write_inventory
from tunery.cli.journal.scan import topic_records
from tunery.local.errors import LocalError
from tunery.runtime.bus.abstract import Log, Record
from tunery.runtime.hosts.reactor import positions_of
from tunery.runtime.journal.reader import START, Position
from tunery.runtime.tools.archive import ArchiveWriter
from tunery.runtime.tools.cut import Mark, extended_cut, mark_of
from tunery.runtime.tools.inspection import PartitionReport, PartitionScan, missing_causes

#: between two readings of the ends, for which brokers' clocks may differ
SETTLE_MS: Final[Ms] = 1_000
ALL: Final = tuple(range(PARTITIONS))
Ends = dict[str, int]
Positions = dict[str, dict[int, tuple[int, str]]]


async def take(
    log: Log,
    folder: BackupFolder,
    keystore: Path,
    list_objects: ListObjects | None,
    settle: Callable[[Ms], Awaitable[None]],
    keep: Keep | None = None,
) -> Manifest:
    """Add a backup to a folder that is locked.

    settle: sleeps for so long. keep: which backups stay; all by default. Raises LocalError,
    BusError.
    """
    before = folder.open()
    folder.sweep(before)
    positions = await _positions(log)
    sent = await _ends(log, {name: stream.commands.name for name, stream in STREAMS.items()})
    journals = {name: stream.journal.name for name, stream in STREAMS.items()}
    ends = await _ends(log, journals)
    await settle(SETTLE_MS)
    limits = await _ends(log, journals)
    walk = _Walk(folder, before, ends, limits)
    for stream in STREAMS.values():
        await walk.read(log, stream)
    tallies = walk.cut()
    audit_end = await walk.read_audit(log)
    keys = copy_keys(keystore, folder)
    inventory = None
    if list_objects is not None:
        inventory = await write_inventory(folder, walk.number, list_objects)
    manifest = Manifest(
        format=FORMAT,
        number=walk.number,
        previous=before.name if before else None,
        release=version("tunery"),
        level=max(end.acceptance.level for end in walk.ends.values()),
        cut_ms=walk.cut_ms,
        ends=walk.ends,
        segments=tuple(walk.segments),
        audit_end=audit_end,
        positions=_safe_positions(positions, sent, tallies, before),
        keys=keys,
        inventory=inventory,
    )
    if keep is not None:
        manifest = add_kept(folder, before, manifest, keep)
        folder.sweep(folder.open())
    else:
        folder.add(manifest)
    return manifest


class _Walk:
    """Copies what is new in the journals, and verifies it as readers do."""

    def __init__(
        self, folder: BackupFolder, before: Backup | None, ends: Ends, limits: Ends
    ) -> None:
        newest = before.newest if before else None
        self._folder, self._first_ends, self._limits = folder, ends, limits
        self._begin = {name: newest.end(name) if newest else START for name in ends}
        self._audit_begin = newest.audit_end if newest else 0
        self.number = newest.number + 1 if newest else 1
        self.cut_ms: Ms = newest.cut_ms if newest else 0
        self.segments: list[LogSegment] = []
        self.ends: dict[str, Position] = {}
        self._scans = {
            name: PartitionScan(STREAMS[name.split("/")[0]], int(name.split("/")[1]), position)
            for name, position in self._begin.items()
        }
        self._later: dict[str, list[Record]] = {name: [] for name in ends}

    async def read(self, log: Log, stream: Stream) -> None:
        """Copy what is new in one stream. Raises LocalError, BusError."""
        bounds = {}
        for number in ALL:
            name = f"{stream.name}/{number}"
            begin = self._begin[name].offset
            first, _ = await log.bounds(stream.journal.name, number)
            if not first <= begin <= self._limits[name]:
                raise LocalError(
                    f"{name} has the records [{first}, {self._limits[name]}), and the backup ends "
                    f"at {begin}: they are different journals",
                    "choose an empty folder for this installation",
                )
            bounds[number] = begin, self._limits[name]
        if all(begin == end for begin, end in bounds.values()):
            return
        records = topic_records(log, stream.journal.name, stream.name, bounds)
        await self._copy(stream.name, bounds, self._verified(stream.name, records))

    async def read_audit(self, log: Log) -> int:
        """Copy what is new in the audit log; return where the copy ends. Raises BusError."""
        _, end = await log.bounds(AUDIT.name, AUDIT_PARTITION)
        if end < self._audit_begin:
            raise LocalError(
                f"the audit log ends at {end}, and the backup has it up to {self._audit_begin}",
                "choose an empty folder for this installation",
            )
        if end > self._audit_begin:
            bounds = {AUDIT_PARTITION: (self._audit_begin, end)}
            await self._copy(AUDIT_NAME, bounds, topic_records(log, AUDIT.name, AUDIT_NAME, bounds))
        return end

    async def _copy(
        self,
        stream: str,
        bounds: Mapping[int, tuple[int, int]],
        batches: AsyncIterator[list[Record]],
    ) -> None:
        stem = f"segments/{stream}-{self.number:06}"
        with self._folder.part(stem) as file:
            archive = ArchiveWriter(file, stream, bounds)
            async for records in batches:
                archive.add(records)
            archive.end()
        self.segments.append(LogSegment(stream=stream, file=self._folder.complete(stem)))

    async def _verified(
        self, stream: str, batches: AsyncIterator[list[Record]]
    ) -> AsyncIterator[list[Record]]:
        """Keep aside what came after the ends were read: the cut goes through it."""
        async for records in batches:
            for number, group in groupby(records, key=lambda record: record.partition):
                name = f"{stream}/{number}"
                within = []
                for record in group:
                    if record.offset < self._first_ends[name]:
                        within.append(record)
                        self.cut_ms = max(self.cut_ms, record.timestamp)
                    else:
                        self._later[name].append(record)
                self._scans[name].take(within)
            yield records

    def cut(self) -> list[PartitionReport]:
        """Choose the cut and verify what is before it. Raises LocalError."""
        causes: dict[str, int] = {}
        for scan in self._scans.values():
            for name, offset in scan.tally.causes.items():
                causes[name] = max(offset, causes.get(name, -1))
        marks: dict[str, list[Mark]] = {
            name: [mark_of(name.split("/")[0], record) for record in records]
            for name, records in self._later.items()
        }
        ends = extended_cut(self._first_ends, causes, marks, self.cut_ms)
        for name, scan in self._scans.items():
            scan.take(record for record in self._later[name] if record.offset < ends[name])
            self.ends[name] = scan.position
        tallies = [scan.tally for scan in self._scans.values()]
        for tally in tallies:
            if tally.bad is not None:
                raise LocalError(
                    f"{tally.name} at offset {tally.bad.offset}: {tally.bad.why}",
                    "if this folder has backups of another installation, choose an empty one; else "
                    "see `tunery journal verify`",
                )
        if missing := next(missing_causes(tallies), None):
            raise LocalError(f"the log has lost records: {missing}", "see `tunery journal verify`")
        return tallies


async def _ends(log: Log, topics: Mapping[str, str]) -> Ends:
    """Ends of all partitions by stream/partition, asked for all at once."""
    answers = await asyncio.gather(*(log.ends(topic, ALL) for topic in topics.values()))
    return {
        f"{name}/{number}": end
        for name, ends in zip(topics, answers, strict=True)
        for number, end in ends.items()
    }


async def _positions(log: Log) -> Positions:
    """Return the positions of each service's reactions to each journal."""
    return {
        f"{service}/{stream.name}": {
            number: (commit.offset, commit.metadata)
            for number, commit in (
                await log.committed(positions_of(service, stream), stream.journal.name)
            ).items()
        }
        for stream in STREAMS.values()
        for service in stream.readers
    }


def _safe_positions(
    positions: Positions, sent: Ends, tallies: list[PartitionReport], before: Backup | None
) -> Positions:
    """Return positions before which no reaction is missing in the cut.

    They were read before the ends of the commands, so each reaction of what is before them is
    before these ends; and all that is before these ends is decided within the cut. Where it is
    not, the positions of the backup before are taken: what was decided then is decided now.
    """
    if all(tally.cause + 1 - tally.base >= sent[tally.name] for tally in tallies):
        return {name: each for name, each in positions.items() if each}
    return before.newest.positions if before else {}
