"""Tries a stream: the production host decides commands on a log in memory."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from schemas.envelope import Message
from schemas.topics import PARTITIONS
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.reader import START, Accepted, JournalReader
from tunery.runtime.memory_servers import memory_servers
from tunery.runtime.verbs import Aggregate

WAIT_S_MAX = 10


async def try_commands(
    aggregate: Aggregate[Any], key: str, commands: Sequence[Message]
) -> list[Accepted]:
    """Send the commands of one key, and return the journal's entry for each of them.

    Raises TimeoutError when they are not decided in WAIT_S_MAX.
    """
    stream = aggregate.stream
    servers = await memory_servers(streams=(stream,))
    service = servers.runtime(stream.owner)
    owner = asyncio.create_task(AggregateHost(service, aggregate).run())
    reader = JournalReader(servers.log, stream, dict.fromkeys(range(PARTITIONS), START))
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
