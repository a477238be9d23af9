"""A process announces its release, follows the level, and ends when it is left behind."""

import asyncio
from typing import Any

import msgspec
import pytest

from schemas.levels import LEVEL, ReleaseNotice
from schemas.streams import RELEASES_TOPIC, UPGRADE_PARTITION
from tests.hosts import running
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.runtime.bus.abstract import Appended, Unavailable
from tunery.runtime.bus.signing import UNSIGNED
from tunery.runtime.hosts import levels as hosts_levels
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


async def test_an_announcement_that_failed_is_tried_again_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = await memory_servers()
    send, failures = servers.log.send, iter((Unavailable("away"), Unavailable("away")))

    async def send_later(*record: Any) -> Appended:
        if (failure := next(failures, None)) is not None:
            raise failure
        return await send(*record)

    monkeypatch.setattr(servers.log, "send", send_later)
    monkeypatch.setattr(hosts_levels, "POLL_MS", 10)
    async with running(LevelHost(servers.runtime("scheduler"))):
        async with asyncio.timeout(60):
            while not notices(servers):  # noqa: ASYNC110  # it reads the log
                await asyncio.sleep(0.01)
    assert next(failures, None) is None
    assert len(notices(servers)) == 1
