"""Hosts a projection: reads journals, commits rows and position together, keeps it fresh.

Every process of a service reads all partitions; no group is needed. Of two processes that bring
the same batch the store lets one win, and the other finds its work done. That costs reading twice
and saves every hand-over.

Most entries of some journals lead to nothing in a projection. The position after such entries is
held back for a moment and committed once for many of them: read again, they lead to nothing again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from schemas.envelope import Header, Rejected, Repeated
from schemas.streams import PARTITIONS, Stream
from schemas.units import HOUR_MS, Ms
from tunery.runtime.journal import alarm
from tunery.runtime.journal.acceptance import Divergence, PartitionStopped
from tunery.runtime.journal.reader import Accepted, JournalBatch, JournalReader
from tunery.runtime.ports import Ports
from tunery.runtime.store.abstract import (
    CommandResult,
    CommitResult,
    RowBatch,
    StreamPartition,
    Tables,
)
from tunery.runtime.tasks import run_together
from tunery.runtime.telemetry import metrics
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Change, Project, Todo
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.work")
POLL_MS: Final[Ms] = 500
ENTRIES_MAX: Final = 500  # of one read, so of one commit
HELD_MS_MAX: Final[Ms] = 500  # for a position whose entries lead to no change
RESULT_KEPT_MS: Final[Ms] = HOUR_MS
PRUNE_EVERY_MS: Final[Ms] = 60_000
RAISE_EVERY_MS: Final[Ms] = 5_000
Notify: TypeAlias = Callable[[Header, Any], str | None]


@dataclass(frozen=True)
class Projection:
    """Tables that a service derives from some journals.

    A higher `version` drops `tables` and builds them again from offset 0; bump it whenever
    `project` or `ddl` changes. `ddl` says IF NOT EXISTS; every table needs a primary key, or a
    unique index, on exactly the columns that its changes use as key.
    """

    name: str
    version: int
    streams: tuple[Stream, ...]
    project: Project
    ddl: str = ""
    tables: tuple[str, ...] = ()
    # keep one row for each command of a client or an effect, for an hour
    command_results: bool = False
    # makes a text for listeners on the channel of the projection's name, sent with the commit
    notify: Notify | None = None
    # statements that are run once all of its rows are there: views of reports, which show the rows
    # of an earlier version until then
    once_built: str = ""
    # start from zero when the rows come from another journal than this one; without it the
    # partition stops until an operator intervenes
    rebuilds: bool = True

    def described(self) -> Tables:
        """The tables, positions and version that the store is asked to ensure."""
        partitions = tuple(
            (stream.name, partition) for stream in self.streams for partition in range(PARTITIONS)
        )
        return Tables(self.name, self.version, partitions, self.ddl, self.tables)


class _Again(Exception):
    """Another process set the positions back: read them anew."""


@dataclass
class _Follow:
    """One stream of one run: its reader, and for each partition the offset the store is at."""

    stream: Stream
    reader: JournalReader
    offsets: dict[int, int]
    behind: set[int] = field(default_factory=set)
    # positions after entries that lead to no change, by partition; committed later
    held: dict[int, JournalBatch] = field(default_factory=dict)
    held_since: Ms = 0  # when the first of them was held back, on the monotonic clock

    def is_fresh(self, partition: int) -> bool:
        return partition not in self.reader.stopped and self.reader.caught_up(partition)


class Projector:
    """Implements `Host`. Ready when every partition has been read to the end it had."""

    def __init__(self, runtime: Ports, projection: Projection) -> None:
        self.name = f"projector {projection.name}"
        self._runtime, self._projection = runtime, projection
        self._store = runtime.store
        self._ready = asyncio.Event()
        self._rebuilt = False
        self._built = False  # whether `once_built` was run on the tables as they are

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Raises what stops it: an outage, Superseded, Divergence that a rebuild did not cure."""
        if await self._store.ensure(self._projection.described()):
            log_event(
                LOG, logging.INFO, "projection.started_from_zero", projection=self._projection.name
            )
        while True:
            try:
                await self._follow()
            except Divergence as divergence:
                await self._rebuild(divergence)
            except _Again:
                continue

    async def _rebuild(self, divergence: Divergence) -> None:
        """Rebuild the projection, at most once in a process: a second rebuild would not help."""
        if self._rebuilt or not self._projection.rebuilds:
            alarm.sound(self.name, divergence.stream, divergence)
            raise divergence
        self._rebuilt, self._built = True, False
        name = self._projection.name
        log_event(LOG, logging.CRITICAL, "projection.rebuilt", projection=name, why=divergence)
        await self._store.rebuild(self._projection.described())

    async def _follow(self) -> None:
        """Read and commit until an error."""
        saved = await self._store.positions(self._projection.name)
        follows = []
        try:
            for stream in self._projection.streams:
                positions = {p: saved[stream.name, p].position for p in range(PARTITIONS)}
                reader = JournalReader(self._runtime.log, stream, positions)
                offsets = {p: position.offset for p, position in positions.items()}
                follows.append(_Follow(stream, reader, offsets))
                await reader.open()
                for partition in positions:
                    alarm.silence(self.name, stream.name, partition)
            await self._flag(follows, saved_flags={p: s.caught_up for p, s in saved.items()})
            works: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
                f"{self.name}: {follow.stream.name}": partial(self._read, follow, follows)
                for follow in follows
            }
            works[f"{self.name}: flags"] = partial(self._raise_flags, follows)
            if self._projection.command_results:
                works[f"{self.name}: old results of commands"] = self._prune
            await run_together(works)
        finally:
            for follow in follows:
                await follow.reader.close()

    async def _flag(
        self, follows: list[_Follow], saved_flags: Mapping[StreamPartition, bool]
    ) -> None:
        """Lower the flag while there are unread records: they may end to-do rows of effects."""
        for follow in follows:
            for partition in follow.offsets:
                stream_partition = (follow.stream.name, partition)
                fresh = follow.is_fresh(partition)
                if not fresh:
                    follow.behind.add(partition)
                if saved_flags[stream_partition] != fresh:
                    await self._store.set_caught_up(self._projection.name, stream_partition, fresh)
        await self._note_ready(follows)

    async def _raise_flags(self, follows: list[_Follow]) -> None:
        """Raise flags that another process, which was behind, has lowered and left."""
        while True:
            beat("waiting")
            await self._runtime.clock.sleep(RAISE_EVERY_MS)
            saved = await self._store.positions(self._projection.name)
            for follow in follows:
                for partition in sorted(follow.offsets.keys() - follow.behind):
                    stream_partition = (follow.stream.name, partition)
                    reached = saved[stream_partition].position.offset >= follow.offsets[partition]
                    if (
                        reached
                        and follow.is_fresh(partition)
                        and not saved[stream_partition].caught_up
                    ):
                        await self._store.set_caught_up(
                            self._projection.name, stream_partition, True
                        )

    async def _note_ready(self, follows: list[_Follow]) -> None:
        if any(follow.behind for follow in follows):
            return
        if self._projection.once_built and not self._built:
            await self._store.run_ddl(self._projection.once_built)
            self._built = True
        self._ready.set()

    async def _read(self, follow: _Follow, follows: list[_Follow]) -> None:
        while True:
            beat("waiting")
            try:
                batches = await follow.reader.read(POLL_MS, ENTRIES_MAX)
            except PartitionStopped as stopped:
                await self._stopped(follow, stopped)
                await self._note_ready(follows)
                continue
            for partition in sorted(batches):
                beat("working")
                await self._commit(follow, partition, batches[partition], can_wait=True)
            await self._commit_held(follow, at_rest=not batches)
            for partition in sorted(follow.behind):
                if follow.is_fresh(partition):
                    stream_partition = (follow.stream.name, partition)
                    await self._store.set_caught_up(self._projection.name, stream_partition, True)
                    follow.behind.discard(partition)
                    await self._note_ready(follows)

    async def _stopped(self, follow: _Follow, stopped: PartitionStopped) -> None:
        """Stop one partition. Its flag stays down, so that none of its effects run."""
        curable = self._projection.rebuilds and not self._rebuilt
        if isinstance(stopped, Divergence) and curable:
            raise stopped
        alarm.sound(self.name, stopped.stream, stopped)
        stream_partition = (stopped.stream, stopped.partition)
        await self._store.set_caught_up(
            self._projection.name, stream_partition, False, str(stopped)
        )
        follow.behind.discard(stopped.partition)

    async def _commit_held(self, follow: _Follow, *, at_rest: bool) -> None:
        """Commit what was held back for long enough, or when there is nothing else to do."""
        waited_ms = self._runtime.clock.monotonic_ms() - follow.held_since
        if not follow.held or not (at_rest or waited_ms >= HELD_MS_MAX):
            return
        for partition in sorted(follow.held):
            beat("working")
            await self._commit(follow, partition, follow.held[partition])

    async def _commit(
        self, follow: _Follow, partition: int, read: JournalBatch, *, can_wait: bool = False
    ) -> None:
        """Commit what follows from the entries. `can_wait`: hold them back if that is nothing."""
        expected = follow.offsets[partition]
        if read.position.offset <= expected:
            follow.held.pop(partition, None)
            return  # another process has committed further than we have read
        batch = self._batch(follow.stream.name, partition, expected, read)
        if can_wait and partition not in follow.behind and batch.is_empty:
            if not follow.held:
                follow.held_since = self._runtime.clock.monotonic_ms()
            follow.held[partition] = JournalBatch((), read.position)
            self._measure(follow, read)
            return
        name = self._projection.name
        with metrics.PROJECTION_COMMIT_SECONDS.labels(name).time():
            committed = await self._store.commit(batch)
        metrics.PROJECTION_COMMITS.labels(name, committed.value).inc()
        if committed is CommitResult.STALE:
            follow.offsets[partition] = await self._catch_up_with(batch)
            await self._commit(follow, partition, read)
            return
        follow.held.pop(partition, None)
        follow.offsets[partition] = read.position.offset
        self._measure(follow, read)

    def _measure(self, follow: _Follow, read: JournalBatch) -> None:
        if read.accepted:
            labels = (self._projection.name, follow.stream.name)
            metrics.PROJECTED.labels(*labels).inc(len(read.accepted))
            lag_ms = self._runtime.clock.now_ms() - read.accepted[-1].header.at
            metrics.PROJECTION_LAG_SECONDS.labels(*labels).set(lag_ms / 1_000)

    async def _catch_up_with(self, batch: RowBatch) -> int:
        """The offset that another process has committed. Raises _Again if it is below ours."""
        saved = await self._store.positions(self._projection.name)
        reached = saved[batch.partition].position.offset
        if reached <= batch.expected:
            raise _Again
        return reached

    def _batch(self, stream: str, partition: int, expected: int, read: JournalBatch) -> RowBatch:
        changes: list[Change] = []
        command_results: list[CommandResult] = []
        notices: list[str] = []
        project, notify = self._projection.project, self._projection.notify
        for accepted in read.accepted:
            header = accepted.header
            if header.offset < expected:
                continue
            try:
                for event in accepted.events:
                    changes.extend(_following(header, project(header, event)))
                    if notify is not None and (notice := notify(header, event)) is not None:
                        notices.append(notice)
            except Exception as error:
                error.add_note(f"projecting {stream}/{partition} at offset {header.offset}")
                raise
            if self._wants_result(accepted):
                command_results.append(command_result_of(accepted))
        return RowBatch(
            projection=self._projection.name,
            version=self._projection.version,
            partition=(stream, partition),
            expected=expected,
            position=read.position,
            changes=changes,
            command_results=command_results,
            notices=notices,
        )

    def _wants_result(self, accepted: Accepted) -> bool:
        """Return whether a client may wait for the result: not for reactions or old commands."""
        if not self._projection.command_results or accepted.entry.source is not None:
            return False
        return accepted.header.at > self._runtime.clock.now_ms() - RESULT_KEPT_MS

    async def _prune(self) -> None:
        while True:
            beat("working")
            await self._store.prune_command_results(RESULT_KEPT_MS)
            beat("waiting")
            await self._runtime.clock.sleep(PRUNE_EVERY_MS)


def _following(header: Header, changes: Iterable[Change]) -> Iterator[Change]:
    """The changes; rows to do carry on the request that their entry follows from."""
    for change in changes:
        if isinstance(change, Todo) and (header.correlation or header.traceparent):
            yield msgspec.structs.replace(
                change, correlation=header.correlation, traceparent=header.traceparent
            )
        else:
            yield change


def command_result_of(accepted: Accepted) -> CommandResult:
    """The result of the command that this entry decides. Pure."""
    header = accepted.header
    refused = next((event for event in accepted.events if isinstance(event, Rejected)), None)
    repeated = next((event for event in accepted.events if isinstance(event, Repeated)), None)
    return CommandResult(
        command_id=header.command_id,
        stream=header.stream,
        partition=header.partition,
        offset=header.offset,
        at=header.at,
        tenant=header.tenant,
        key=header.key,
        seq=header.seq,
        code=refused.code if refused else None,
        reason=refused.reason if refused else None,
        param=refused.param if refused else None,
        repeated_of=repeated.of if repeated else None,
    )
