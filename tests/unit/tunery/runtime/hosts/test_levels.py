"""A process announces its release, follows the level, and ends when it is left behind."""

import asyncio

import msgspec
import pytest

from schemas.levels import LEVEL, ReleaseNotice
from schemas.streams import RELEASES_TOPIC, UPGRADE_PARTITION
from tests.hosts import running
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.runtime.bus.signing import UNSIGNED
from tunery.runtime.hosts.levels import LevelHost, release
from tunery.runtime.levels import ReleaseTooOld
from tunery.runtime.tools.upgrade import raise_level


def notices(servers: MemoryServers) -> list[ReleaseNotice]:
    records = servers.log.topics[RELEASES_TOPIC][UPGRADE_PARTITION].records
    return [msgspec.json.decode(record.value, type=ReleaseNotice) for record in records]


async def test_a_process_says_what_it_can_read_and_that_it_ends() -> None:
    servers = await memory_servers()
    host = LevelHost(servers.runtime("scheduler"))
    async with running(host):
        pass
    await host.leave()
    begun, ended = notices(servers)
    assert (begun.service, begun.release, begun.level) == ("scheduler", release(), LEVEL)
    assert (begun.ended, ended.ended) == (False, True)
    assert begun.process == ended.process


async def test_a_raise_above_its_release_ends_a_process() -> None:
    servers = await memory_servers()
    host = LevelHost(servers.runtime("scheduler"))
    work = asyncio.create_task(host.run())
    await host.ready()
    await raise_level(servers.log, UNSIGNED, ["job"], LEVEL + 1, "ada@desk")
    with pytest.raises(ReleaseTooOld, match="start a newer release"):
        await asyncio.wait_for(work, 60)
