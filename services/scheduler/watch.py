"""Watches heartbeats and reports live and silent nodes to pools, which decide what follows."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
from immutables import Map

from schemas.node import NodeKeysWithdrawn
from schemas.telemetry import Heartbeat
from schemas.topics import HEARTBEATS, PARTITIONS, POOL, node_of
from schemas.units import Ms
from services.scheduler.domain.liveness import (
    INITIAL,
    advance_silence,
    due_observations,
    fold_event,
    mark_reported,
    record_heartbeat,
    reset_silence,
)
from tunery.runtime.bus.abstract import (
    AppendUnknown,
    Log,
    OutOfRange,
    Reader,
    Record,
    Unavailable,
)
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import NODES, SenderKeys, Unproven
from tunery.runtime.clock import Clock
from tunery.runtime.journal import alarm
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.journal.reader import START, JournalReader
from tunery.runtime.journal.senders import refuse_withdrawn
from tunery.runtime.watchdog import beat

LOG = logging.getLogger("tunery.watch")
RECORDS_MAX: Final = 2_000
# Between two reads; a longer gap means that the watcher itself was stopped, starved or offline.
LOOK_MS_MAX: Final = 3_000
RETRY_MS: Final = 500
READY_POLL_MS: Final = 20
ANSWER_MS_MAX: Final = 1_000  # for the leader of one partition; below LOOK_MS_MAX with the poll


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
    """One in each scheduler process; several of them say the same, and the first one counts."""

    name = "watcher of heartbeats"

    def __init__(self, runtime: WatcherRuntime, ttl_ms: Ms, poll_ms: Ms, idle_ms_max: Ms) -> None:
        self._log, self._clock, self._sender = runtime.log, runtime.clock, runtime.sender
        self._keys = runtime.keys
        self._ttl_ms, self._poll_ms, self._idle_ms_max = ttl_ms, poll_ms, idle_ms_max
        self._positions = dict.fromkeys(range(PARTITIONS), START)
        self._sights = INITIAL
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
        """One line for each outage, not for each attempt to get over it."""
        if self._reading:
            LOG.warning("%s: %s; every node gets a fresh TTL", self.name, why)
        self._reading = False

    async def _watch(self) -> None:
        """Look again and again, from here on. Raises Unavailable, OutOfRange, AppendUnknown."""
        journal = JournalReader(self._log, POOL, self._positions)
        beats: Reader | None = None
        try:
            await journal.open()
            ends = await self._ask()
            beats = await self._log.reader(HEARTBEATS.name, ends)
            self._sights = reset_silence(self._sights)
            looked_ms = self._clock.monotonic_ms()
            while True:
                beat("working")
                await self._fold(journal)
                looked_ms = await self._look(beats, looked_ms, ends)
                await self._report()
                self._reading = True
        finally:
            self._positions = journal.positions
            await journal.close()
            if beats is not None:
                await beats.close()

    async def _fold(self, journal: JournalReader) -> None:
        """All that the pools' journals have by now."""
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
                        self._sights = fold_event(self._sights, header.key, event, header.at)
                        if type(event) is NodeKeysWithdrawn:
                            self._withdrawn = self._withdrawn.set(event.node_id, event.number)
            if not batches:
                return

    async def _look(self, beats: Reader, looked_ms: Ms, begun: Mapping[int, int]) -> Ms:
        """One look at the heartbeats; the moment it ended. `begun`: partitions that are read."""
        records = await beats.poll(self._poll_ms, RECORDS_MAX)
        # An empty poll may also mean brokers that are away: they do not answer these requests.
        answered = await self._ask()
        if answered.keys() - begun.keys():
            raise Unavailable("a partition is back, and is read from its end on")
        now_ms = self._clock.monotonic_ms()
        elapsed_ms = now_ms - looked_ms
        if elapsed_ms > LOOK_MS_MAX or len(records) == RECORDS_MAX:
            self._sights = reset_silence(self._sights)
        else:
            self._sights = advance_silence(self._sights, elapsed_ms, self._unread(answered))
        for record in records:
            self._record(record)
        return now_ms

    async def _ask(self) -> dict[int, int]:
        """The end of each partition whose leader answers. Raises Unavailable if none does."""
        partitions = range(PARTITIONS)
        ends = await asyncio.gather(*(self._end(partition) for partition in partitions))
        answered = {p: end for p, end in zip(partitions, ends, strict=True) if end is not None}
        if not answered:
            raise Unavailable("no partition of the heartbeats can be read")
        unreadable = frozenset(partitions) - answered.keys()
        if unreadable - self._unreadable:
            say = "%s: partitions %s cannot be read; silence of their nodes does not count"
            LOG.warning(say, self.name, sorted(unreadable))
        self._unreadable = unreadable
        return answered

    async def _end(self, partition: int) -> int | None:
        try:
            async with asyncio.timeout(ANSWER_MS_MAX / 1_000):
                return (await self._log.bounds(HEARTBEATS.name, partition))[1]
        except (Unavailable, TimeoutError):
            return None

    def _unread(self, answered: Mapping[int, int]) -> frozenset[tuple[str, str]]:
        """Nodes whose heartbeats are in partitions that do not answer."""
        if len(answered) == PARTITIONS:
            return frozenset()
        return frozenset(
            key for key in self._sights if partition_of(key[1].encode()) not in answered
        )

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
        if sender is not None and (withdrawn or node_of(sender) != beat.node_id):
            LOG.warning("refused heartbeat at offset %d: its sender is %r", record.offset, sender)
            return
        self._sights = record_heartbeat(self._sights, beat, record.timestamp)

    async def _report(self) -> None:
        for pool, command in due_observations(self._sights, self._ttl_ms, self._idle_ms_max):
            await self._sender.send(POOL, pool, "", command)
            self._sights = mark_reported(self._sights, pool, command.seen)
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
