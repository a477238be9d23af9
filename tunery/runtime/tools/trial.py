"""Tries a stream: the production host decides commands on a log in memory."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from schemas.envelope import Message
from schemas.streams import FOREVER, PARTITIONS, SNAPSHOTS_TOPIC, Stream, Topic
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.reader import START, Accepted, JournalReader
from tunery.runtime.ports import Ports
from tunery.runtime.store.memory import MemoryStore
from tunery.runtime.verbs import Aggregate

WAIT_S_MAX = 10


async def try_commands(
    aggregate: Aggregate[Any], key: str, commands: Sequence[Message]
) -> list[Accepted]:
    """Send the commands of one key, and return the journal's entry for each of them.

    Raises TimeoutError when they are not decided in WAIT_S_MAX.
    """
    stream = aggregate.stream
    service = await _ports_in_memory(stream)
    owner = asyncio.create_task(AggregateHost(service, aggregate).run())
    reader = JournalReader(service.log, stream, dict.fromkeys(range(PARTITIONS), START))
    entries: list[Accepted] = []
    try:
        for command in commands:
            await service.sender.send(stream, key, key, command)
        await reader.open()
        async with asyncio.timeout(WAIT_S_MAX):
            while len(entries) < len(commands):
                for batch in (await reader.read(wait_ms=1_000)).values():
                    entries += batch.accepted
    finally:
        await reader.close()
        owner.cancel()
        with suppress(asyncio.CancelledError):
            await owner
    return entries


async def _ports_in_memory(stream: Stream) -> Ports:
    """Ports of the stream's owner; the log has the topics of this stream and that of snapshots."""
    clock = SystemClock()
    log = MemoryLog(clock)
    owners = (stream.owner,)
    snapshots = Topic(SNAPSHOTS_TOPIC, "slot", FOREVER, owners, owners, compacted=True)
    await log.create((stream.commands, stream.journal, snapshots), PARTITIONS)
    return Ports(
        name=stream.owner,
        log=log,
        store=MemoryStore(clock),
        blobs=MemoryBlobs(),
        sender=Sender(log, {stream.name: stream}),
        clock=clock,
    )
