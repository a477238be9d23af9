"""Watches heartbeats and reports live and silent nodes to pools, which decide what follows."""

import asyncio
import logging
from collections.abc import Set
from typing import Final, Protocol

import msgspec
from immutables import Map

from schemas.node import NodeKeysWithdrawn
from schemas.streams import PARTITIONS, agent_of, node_of
from schemas.telemetry import Heartbeat
from schemas.topics import HEARTBEATS, POOL
from schemas.units import Ms
from services.scheduler.domain.liveness import Sightings
from tunery.platform.bus.sender_keys import NODES
from tunery.runtime.bus.abstract import AppendUnknown, Log, OutOfRange, Reader, Record, Unavailable
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import SenderKeys, Unproven
from tunery.runtime.clock import Clock
from tunery.runtime.journal import alarm
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.journal.reader import START, JournalReader
from tunery.runtime.journal.senders import refuse_withdrawn
from tunery.runtime.watchdog import beat

LOG = logging.getLogger("tunery.watch")
RECORDS_MAX: Final = 2_000  # in memory at once; a pass reads any number of them
# What one pass adds to the silence of nodes at most: after a longer gap the watcher itself was
# stopped or starved, and its machine may not have been alone in that.
COUNTED_MS_MAX: Final = 3_000
COUNTED_TTL_SHARE: Final = 2  # and no more than this part of the TTL
RETRY_MS: Final = 500
READY_POLL_MS: Final = 20
ANSWER_MS_MAX: Final = 1_000  # of the leaders of all partitions, or of records that there are
PARTITIONS_ALL: Final = frozenset(range(PARTITIONS))


class WatcherRuntime(Protocol):
    """The part of `Runtime` that the watcher uses."""

    @property
    def log(self) -> Log: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def sender(self) -> Sender: ...
    @property
    def keys(self) -> SenderKeys: ...


class Watcher:
    """Reports nodes to pools. Each scheduler process has one; of equal reports the first counts."""

    name = "watcher of heartbeats"

    def __init__(self, runtime: WatcherRuntime, ttl_ms: Ms, poll_ms: Ms, idle_ms_max: Ms) -> None:
        self._log, self._clock, self._sender = runtime.log, runtime.clock, runtime.sender
        self._keys = runtime.keys
        self._ttl_ms, self._poll_ms = ttl_ms, poll_ms
        self._positions = dict.fromkeys(range(PARTITIONS), START)
        self.sightings = Sightings(ttl_ms, idle_ms_max)
        self._reading = False
        self._unreadable: frozenset[int] = frozenset()
        self._withdrawn: Map[str, int] = Map()  # number of the last such key, by node id

    async def run(self) -> None:
        """Watch until it is cancelled; an outage gives every node a fresh TTL."""
        while True:
            beat("waiting")
            try:
                await self._watch()
            except (Unavailable, OutOfRange, AppendUnknown) as outage:
                self._blind(repr(outage))
            except asyncio.CancelledError:
                # Closing a client that has lost its broker may let a cancellation of its own out.
                if _is_cancelled():
                    raise
                self._blind("closed in an outage")
            await self._clock.sleep(RETRY_MS)

    async def ready(self) -> None:
        while not self._reading:
            await self._clock.sleep(READY_POLL_MS)

    def _blind(self, why: str) -> None:
        """Note an outage: one log line at its beginning, not for each failed retry."""
        if self._reading:
            LOG.warning("%s: %s; every node gets a fresh TTL", self.name, why)
        self._reading = False

    async def _watch(self) -> None:
        """Read heartbeats in passes, from now on. Raises Unavailable, OutOfRange, AppendUnknown."""
        journal = JournalReader(self._log, POOL, self._positions)
        beats: Reader | None = None
        try:
            await journal.open()
            positions = await self._read_ends()
            beats = await self._log.reader(HEARTBEATS.name, positions)
            self.sightings.reset_silence(PARTITIONS_ALL)
            asked_ms = self._clock.monotonic_ms()
            while True:
                beat("working")
                await self._fold(journal)
                asked_ms = await self._read_heartbeats(beats, asked_ms, positions)
                await self._report()
                self._reading = True
                pause_ms = asked_ms + self._poll_ms - self._clock.monotonic_ms()
                await self._clock.sleep(max(0, pause_ms))
        finally:
            self._positions = journal.positions
            await journal.close()
            if beats is not None:
                await beats.close()

    async def _fold(self, journal: JournalReader) -> None:
        """Fold what the pools' journals have by now."""
        while True:
            beat("working")
            try:
                batches = await journal.read(0)
            except PartitionStopped as stopped:
                alarm.sound(self.name, stopped.stream, stopped)
                continue
            for batch in batches.values():
                for accepted in batch.accepted:
                    for event in accepted.events:
                        header = accepted.header
                        self.sightings.fold_event(header.key, event, header.at)
                        if type(event) is NodeKeysWithdrawn:
                            self._withdrawn = self._withdrawn.set(event.node_id, event.number)
            if not batches:
                return

    async def _read_heartbeats(self, beats: Reader, before_ms: Ms, positions: dict[int, int]) -> Ms:
        """Read all heartbeats that there are by now; return the time up to which that is.

        before_ms: the returned time of the previous call.
        positions: next offset of each partition that is read; updated here.
        """
        asked_ms = self._clock.monotonic_ms()
        # An outage of brokers is no silence: they do not answer this.
        ends = await self._read_ends()
        if ends.keys() - positions.keys():
            raise Unavailable("a partition is back, and is read from its end on")
        counted_ms_max = min(COUNTED_MS_MAX, self._ttl_ms // COUNTED_TTL_SHARE)
        self.sightings.advance_silence(
            min(asked_ms - before_ms, counted_ms_max), PARTITIONS_ALL - ends.keys()
        )
        # Silence counts where everything up to the end was read, however much that is.
        waited_ms = 0
        while behind := {at for at, end in ends.items() if positions[at] < end}:
            beat("working")
            began_ms = self._clock.monotonic_ms()
            records = await beats.poll(min(self._poll_ms, ANSWER_MS_MAX), RECORDS_MAX)
            for record in records:
                positions[record.partition] = record.offset + 1
                self._record(record)
            waited_ms = 0 if records else waited_ms + self._clock.monotonic_ms() - began_ms
            if waited_ms >= ANSWER_MS_MAX:
                self.sightings.reset_silence(behind)
                break
        return asked_ms

    async def _read_ends(self) -> dict[int, int]:
        """Return the end offset of each partition whose leader answers. Raises Unavailable: none
        does.
        """
        answered = {} if self._unreadable else await self._ends(PARTITIONS_ALL)
        if not answered:  # a leader that is away keeps the answers of the others
            each = await asyncio.gather(*(self._ends({at}) for at in sorted(PARTITIONS_ALL)))
            answered = {at: end for ends in each for at, end in ends.items()}
        if not answered:
            raise Unavailable("no partition of the heartbeats can be read")
        unreadable = PARTITIONS_ALL - answered.keys()
        if unreadable - self._unreadable:
            say = "%s: partitions %s cannot be read; silence of their nodes does not count"
            LOG.warning(say, self.name, sorted(unreadable))
        self._unreadable = unreadable
        return answered

    async def _ends(self, partitions: Set[int]) -> dict[int, int]:
        """Return the end offset of each partition; empty if a leader does not answer in time."""
        try:
            async with asyncio.timeout(ANSWER_MS_MAX / 1_000):
                return dict(await self._log.ends(HEARTBEATS.name, sorted(partitions)))
        except (Unavailable, TimeoutError):
            return {}

    def _record(self, record: Record) -> None:
        try:
            beat = msgspec.json.decode(record.value, type=Heartbeat)
        except MALFORMED as error:
            LOG.warning("unreadable heartbeat at offset %d: %s", record.offset, error)
            return
        try:
            sender = self._keys.sender_of(NODES, record.value, record.timestamp)
        except Unproven:
            sender = ""
        withdrawn = refuse_withdrawn(self._withdrawn, sender) is not None
        if sender is not None and (withdrawn or node_of(sender) != agent_of(beat.node_id)):
            LOG.warning("refused heartbeat at offset %d: its sender is %r", record.offset, sender)
            return
        self.sightings.record_heartbeat(beat, record.timestamp)

    async def _report(self) -> None:
        for pool, command in self.sightings.due_observations():
            await self._sender.send(POOL, pool, "", command)
            self.sightings.mark_reported(pool, command.seen)
            silent = [seen.node_id for seen in command.seen if seen.silent]
            if silent:
                LOG.warning("pool %s: no heartbeat for %d ms: %s", pool, self._ttl_ms, silent)
            for seen in command.seen:
                for lease in seen.idle:
                    say = "pool %s, node %s: lease %d has made no progress for %d ms"
                    LOG.warning(say, pool, seen.node_id, lease.lease, lease.idle_ms)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
