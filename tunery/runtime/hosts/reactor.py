"""Hosts a reaction: accepted records of one journal become commands for other streams.

Each command names the record it follows from, so the target drops what it has decided already.
That makes positions a matter of speed, not of correctness: they are saved now and then, and
losing them means sending everything again.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from schemas.envelope import Envelope, Source
from schemas.ids import reaction_id
from schemas.topics import STREAMS, Stream
from tunery.runtime.bus.abstract import (
    AppendUnknown,
    BusError,
    Commit,
    TooLarge,
    Unavailable,
)
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal import alarm
from tunery.runtime.journal.acceptance import PartitionStopped, Poison
from tunery.runtime.journal.codec import encode
from tunery.runtime.journal.ports import Limits, Parts
from tunery.runtime.journal.reader import START, Accepted, JournalReader, Position, load_position
from tunery.runtime.verbs import React, Send

LOG = logging.getLogger("tunery.reactor")
READY_POLL_MS: Final = 20


class Reactor:
    """`run` until cancelled. One task per partition of the journal that the group assigns."""

    def __init__(
        self,
        runtime: Parts,
        stream: Stream,
        react: React,
        *,
        streams: Mapping[str, Stream] = STREAMS,
        limits: Limits | None = None,
    ) -> None:
        self.name = f"{runtime.name} reactions to {stream.name}"
        self.stopped: dict[int, PartitionStopped] = {}
        self._group = f"tunery.{runtime.name}.reacts.{stream.name}"
        self._positions = positions_of(runtime.name, stream)
        self._log, self._clock = runtime.log, runtime.clock
        self._stream, self._react, self._streams = stream, react, streams
        self._limits = limits or Limits()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._assigned = False

    async def run(self) -> None:
        topic = self._stream.journal.name
        while True:
            try:
                async with (
                    asyncio.TaskGroup() as group,
                    self._log.membership(self._group, topic) as changes,
                ):
                    async for partitions in changes:
                        await self._own(partitions, group)
            except* Unavailable as outage:
                LOG.warning("%s: the log does not answer: %s", self.name, outage.exceptions[0])
            finally:
                self._tasks.clear()
            await self._clock.sleep(self._limits.retry_ms)

    async def ready(self) -> None:
        """Return when partitions were assigned."""
        while not self._assigned:
            await self._clock.sleep(READY_POLL_MS)

    async def _own(self, partitions: frozenset[int], group: asyncio.TaskGroup) -> None:
        for number in sorted(self._tasks.keys() - partitions):
            self._tasks.pop(number).cancel()
        fresh = sorted(partitions - self._tasks.keys())
        if fresh:
            saved = await self._log.committed(self._positions, self._stream.journal.name)
            for number in fresh:
                self.stopped.pop(number, None)
                alarm.silence(self.name, self._stream.name, number)
                position = _loaded(saved.get(number))
                self._tasks[number] = group.create_task(self._guard(number, position))
        self._assigned = True

    async def _guard(self, partition: int, position: Position) -> None:
        try:
            await self._follow(partition, position)
        except PartitionStopped as stopped:
            self.stopped[partition] = stopped
            alarm.sound(self.name, self._stream.name, stopped)

    async def _follow(self, partition: int, position: Position) -> None:
        saved, saved_ms = position, self._clock.monotonic_ms()
        while True:
            reader = JournalReader(self._log, self._stream, {partition: position})
            try:
                await reader.open()
                while True:
                    unsaved = position != saved
                    wait_ms = self._limits.commit_every_ms if unsaved else self._limits.idle_wait_ms
                    batch = (await reader.read(wait_ms)).get(partition)
                    for accepted in batch.accepted if batch else ():
                        await self._send_all(accepted)
                        position = accepted.position
                    position = batch.position if batch else position
                    now_ms = self._clock.monotonic_ms()
                    if position != saved and now_ms - saved_ms >= self._limits.commit_every_ms:
                        saved, saved_ms = await self._save(partition, position), now_ms
            except Unavailable as outage:
                LOG.warning("%s: %s", self.name, outage)
            finally:
                await reader.close()
            await self._clock.sleep(self._limits.retry_ms)

    async def _save(self, partition: int, position: Position) -> Position:
        """Saving may fail: then more is sent again after a restart."""
        commit = Commit(position.offset, position.dump())
        try:
            await self._log.commit(self._positions, self._stream.journal.name, {partition: commit})
        except BusError as error:
            LOG.warning("%s: the position was not saved: %s", self.name, error)
        return position

    async def _send_all(self, accepted: Accepted) -> None:
        """In order, one at a time: the target drops what is not above the last it decided."""
        header = accepted.header
        place = (header.stream, header.partition, header.offset)
        try:
            sends = list(reactions(self._react, accepted))
        except Exception as error:
            raise Poison(*place, f"react failed: {error!r}") from error
        for index, send in enumerate(sends):
            target = self._streams[send.stream]
            envelope = envelope_of(accepted, index, send)
            key = send.key.encode()
            partition = partition_of(key) if send.partition is None else send.partition
            await self._insist(target.commands.name, key, encode(envelope), partition, place)

    async def _insist(
        self, topic: str, key: bytes, value: bytes, partition: int, place: tuple[str, int, int]
    ) -> None:
        """Send until acknowledged. Sending the same command again is safe, skipping one is not."""
        while True:
            try:
                await self._log.send(topic, key, value, partition)
                return
            except TooLarge as error:
                raise Poison(*place, f"a reaction is too large: {error}") from error
            except (AppendUnknown, Unavailable) as doubt:
                LOG.warning("%s: sending again: %s", self.name, doubt)
                await self._clock.sleep(self._limits.retry_ms)


def positions_of(service: str, stream: Stream) -> str:
    """The name under which a service keeps how far it has reacted to a stream."""
    return f"tunery.{service}.reacts.{stream.name}.positions"


def reactions(react: React, accepted: Accepted) -> Iterator[Send]:
    for event in accepted.events:
        yield from react(accepted.header, event)


def envelope_of(accepted: Accepted, index: int, send: Send) -> Envelope:
    """The index-th command that follows from an accepted entry: always the same bytes."""
    header, entry = accepted.header, accepted.entry
    place = (header.stream, header.partition, header.incarnation, header.offset, index)
    return Envelope(
        id=reaction_id(*place),
        key=send.key,
        tenant=send.tenant,
        body=msgspec.Raw(msgspec.json.encode(send.body)),
        source=Source(*place),
        actor=entry.actor,
        causation=entry.command_id,
        correlation=entry.correlation or entry.command_id,
        traceparent=entry.traceparent,
    )


def _loaded(commit: Commit | None) -> Position:
    """A position that cannot be read is as good as lost: start from zero."""
    if commit is None:
        return START
    try:
        return load_position(commit.metadata)
    except msgspec.DecodeError:
        return START
