"""Hosts what follows a journal, above all a reaction: its records become commands of other streams.

Each command names the record it follows from, so the target drops what it has decided already.
That makes positions a matter of speed, not of correctness: they are saved now and then, and
losing them means sending everything again.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from schemas.envelope import Envelope, Source
from schemas.ids import reaction_id
from schemas.levels import level_of
from schemas.streams import Stream
from schemas.units import Ms
from tunery.runtime.backoff import every, retry
from tunery.runtime.bus.abstract import (
    AppendUnknown,
    BusError,
    Commit,
    TooLarge,
    Unavailable,
    check_size,
)
from tunery.runtime.bus.groups import reactor_group
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.membership import AssignedPartitions, PartitionWork
from tunery.runtime.journal.acceptance import Poison
from tunery.runtime.journal.codec import encode
from tunery.runtime.journal.ports import HostLimits, JournalPorts
from tunery.runtime.journal.reader import START, Accepted, JournalReader, Position, load_position
from tunery.runtime.telemetry.logs import log_event, subject_of
from tunery.runtime.telemetry.traces import traced
from tunery.runtime.telemetry.trail import Trail
from tunery.runtime.verbs import React, Send
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.reactor")
READY_POLL_MS: Final[Ms] = 20


class JournalFollower(ABC):
    """Calls `take` with the accepted records of a journal, in the order of each partition.

    `run` until cancelled. One task per partition that the group assigns. Positions are saved now
    and then, so after a crash some records are taken again.
    """

    def __init__(
        self, runtime: JournalPorts, stream: Stream, *, limits: HostLimits | None = None
    ) -> None:
        self.name = f"{runtime.name} reactions to {stream.name}"
        self._positions = positions_of(runtime.name, stream)
        self._log, self._clock = runtime.log, runtime.clock
        self._stream = stream
        self._limits = limits or HostLimits()
        self._partitions = AssignedPartitions(
            runtime,
            host=self.name,
            stream=stream.name,
            group=reactor_group(runtime.name, stream.name),
            topic=stream.journal.name,
            limits=self._limits,
            prepare=self._prepare,
        )
        self.stopped = self._partitions.stopped

    @abstractmethod
    async def take(self, batch: Sequence[Accepted]) -> None:
        """Return when the effect of all is lasting. Raises Poison to stop the partition."""

    async def run(self) -> None:
        """Raises what no rule foresees; the process starts the host again."""
        await self._partitions.run()

    async def ready(self) -> None:
        """Return when partitions were assigned."""
        while not self._partitions.assigned:
            await self._clock.sleep(READY_POLL_MS)

    async def _prepare(self, partitions: Sequence[int]) -> Mapping[int, PartitionWork]:
        """Raises Unavailable when the saved positions cannot be read."""
        saved = await self._log.committed(self._positions, self._stream.journal.name)
        return {
            partition: partial(self._follow, partition, _saved_position(saved.get(partition)))
            for partition in partitions
        }

    async def _follow(self, partition: int, position: Position) -> None:
        saved, saved_ms = position, self._clock.monotonic_ms()
        while True:
            beat("waiting")
            reader = JournalReader(self._log, self._stream, {partition: position})
            try:
                await reader.open()
                while True:
                    beat("waiting")
                    unsaved = position != saved
                    wait_ms = self._limits.commit_every_ms if unsaved else self._limits.idle_wait_ms
                    batch = (await reader.read(wait_ms)).get(partition)
                    if batch:
                        await self.take(batch.accepted)
                        position = batch.position
                    now_ms = self._clock.monotonic_ms()
                    if position != saved and now_ms - saved_ms >= self._limits.commit_every_ms:
                        saved, saved_ms = await self._save(partition, position), now_ms
            except Unavailable as outage:
                log_event(
                    LOG, logging.WARNING, "reactor.log_unavailable", host=self.name, why=outage
                )
            finally:
                await reader.close()
            await self._clock.sleep(self._limits.retry_ms)

    async def _save(self, partition: int, position: Position) -> Position:
        """Save the position. A failure only means that more is sent again after a restart."""
        commit = Commit(position.offset, position.dump())
        try:
            await self._log.commit(self._positions, self._stream.journal.name, {partition: commit})
        except BusError as error:
            log_event(LOG, logging.WARNING, "reactor.position_not_saved", host=self.name, why=error)
        return position


class Reactor(JournalFollower):
    """Sends the commands that `react` makes of each record."""

    def __init__(
        self,
        runtime: JournalPorts,
        stream: Stream,
        react: React,
        *,
        streams: Mapping[str, Stream],
        limits: HostLimits | None = None,
    ) -> None:
        super().__init__(runtime, stream, limits=limits)
        self._keys, self._react, self._streams = runtime.keys, react, streams

    async def take(self, batch: Sequence[Accepted]) -> None:
        """Send to all partitions of all targets at once, and to each in the order of the entries:
        it drops what is not above the last it decided.
        """
        sends: dict[tuple[str, int], list[tuple[bytes, bytes]]] = defaultdict(list)
        try:
            for accepted in batch:
                for where, record in self._commands(accepted):
                    sends[where].append(record)
        except Poison:
            await self._send_all(sends)  # what follows from the entries before it
            raise
        await self._send_all(sends)

    def _commands(
        self, accepted: Accepted
    ) -> Iterator[tuple[tuple[str, int], tuple[bytes, bytes]]]:
        """Yield what an entry leads to: (topic, partition), (key, value). Raises Poison."""
        header = accepted.header
        origin = (header.stream, header.partition, header.offset)
        try:
            sends = list(reactions(self._react, accepted))
        except Exception as error:
            raise Poison(*origin, f"react failed: {error!r}") from error
        if (needed := max((level_of(send.body) for send in sends), default=0)) > header.level:
            why = f"a reaction needs level {needed} of the log, and its event has {header.level}"
            raise Poison(*origin, why)
        for index, send in enumerate(sends):
            target = self._streams[send.stream]
            envelope = envelope_of(accepted, index, send)
            key = send.key.encode()
            partition = partition_of(key) if send.partition is None else send.partition
            trail = Trail(envelope.correlation, envelope.traceparent)
            about = {"tenant": send.tenant, **subject_of(send.body)}
            name = f"send {type(send.body).__name__} to {target.name}"
            with traced(trail, name, "producer", **about):
                signed = self._keys.sign(target.name, encode(envelope))
            try:
                check_size(signed)
            except TooLarge as error:
                raise Poison(*origin, f"a reaction is too large: {error}") from error
            yield (target.commands.name, partition), (key, signed)

    async def _send_all(
        self, sends: Mapping[tuple[str, int], Sequence[tuple[bytes, bytes]]]
    ) -> None:
        """Send until acknowledged. Sending the same command again is safe, skipping one is not."""
        await asyncio.gather(
            *(
                retry(
                    partial(self._log.send_all, topic, partition, records),
                    (AppendUnknown, Unavailable),
                    clock=self._clock,
                    backoff=every(self._limits.retry_ms),
                    on_failure=self._note_unsent,
                )
                for (topic, partition), records in sends.items()
            )
        )

    def _note_unsent(self, error: Exception, try_number: int) -> None:
        log_event(
            LOG, logging.WARNING, "reaction.not_sent", host=self.name, tries=try_number, why=error
        )


def positions_of(service: str, stream: Stream) -> str:
    """The name under which a service saves its position in a stream."""
    return f"{reactor_group(service, stream.name)}.positions"


def reactions(react: React, accepted: Accepted) -> Iterator[Send]:
    for event in accepted.events:
        yield from react(accepted.header, event)


def envelope_of(accepted: Accepted, index: int, send: Send) -> Envelope:
    """The index-th command that follows from an accepted entry: always the same bytes."""
    header, entry = accepted.header, accepted.entry
    source = Source(header.stream, header.partition, header.incarnation, header.offset, index)
    return Envelope(
        id=reaction_id(source),
        key=send.key,
        tenant=send.tenant,
        body=msgspec.Raw(msgspec.json.encode(send.body)),
        source=source,
        actor=entry.actor,
        causation=entry.command_id,
        correlation=entry.correlation or entry.command_id,
        traceparent=entry.traceparent,
    )


def _saved_position(commit: Commit | None) -> Position:
    """A saved position; the start for one that cannot be read."""
    if commit is None:
        return START
    try:
        return load_position(commit.metadata)
    except msgspec.DecodeError:
        return START
