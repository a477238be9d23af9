"""Assignments on the log: written by the owner of the pool, and by its successor anew."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import reduce
from typing import Any

import msgspec

from schemas.assignments import Assigned, AssignedNode
from schemas.node import ForgetNode
from schemas.pool import Command, RetireNode
from schemas.topics import ASSIGNMENTS, POOL
from services.scheduler.app import pool_owner
from services.trainer.domain.evolve import evolve
from services.trainer.domain.state import NodeState
from simulator.control_plane.samples import POOL as POOL_NAME
from simulator.control_plane.samples import describe, node, request
from tests.unit.services.trainer.effect.machines import running
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.runtime.bus.partitioner import partition_of

POOL_PARTITION = partition_of(POOL_NAME.encode())
AGENT = NodeState(node_id="a", incarnation="a-1")


async def send(servers: MemoryServers, *commands: Command) -> None:
    sender = servers.runtime("scheduler").sender
    for command in commands:
        await sender.send(POOL, POOL_NAME, "", command)


async def read(servers: MemoryServers, topic: str, partition: int, count: int) -> list[Any]:
    """The first `count` records of a partition, waited for."""
    reader = await servers.log.reader(topic, {partition: 0})
    records: list[Any] = []
    async with asyncio.timeout(30):
        while len(records) < count:
            records += [msgspec.json.decode(each.value) for each in await reader.poll(1_000, 1)]
    await reader.close()
    return records


async def assigned(servers: MemoryServers, agent: str, count: int) -> list[Assigned]:
    partition = partition_of(agent.encode(), ASSIGNMENTS.partitions)
    records = await read(servers, ASSIGNMENTS.name, partition, count)
    return msgspec.convert(records, list[Assigned])


@asynccontextmanager
async def owner(servers: MemoryServers) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for host in pool_owner(servers.runtime("scheduler")):
            await stack.enter_async_context(running(host.run))
        yield


async def test_what_an_owner_did_not_write_before_it_died_its_successor_writes() -> None:
    servers = await memory_servers()
    first, _ = pool_owner(servers.runtime("scheduler"))
    gone = RetireNode(node_id="b", incarnation="b-1"), ForgetNode(node_id="b")
    async with running(first.run):
        await send(servers, node("a", slots=1), describe("ftjob-1"), request("ftjob-1"))
        await send(servers, node("b", "b-1"), *gone)
        await read(servers, POOL.journal.name, POOL_PARTITION, 7)  # a claim before them
    assert not any(partition.records for partition in servers.log.topics[ASSIGNMENTS.name])
    async with owner(servers):
        known = reduce(evolve, await assigned(servers, "a", 3), AGENT)
        assert known.registered
        assert [each.grant.job_id for each in known.assignments.values()] == ["ftjob-1"]
        other = NodeState(node_id="b", incarnation="b-1", registered=True)
        assert reduce(evolve, await assigned(servers, "b", 1), other).forgotten


async def test_a_decision_is_written_to_the_nodes_that_it_concerns() -> None:
    servers = await memory_servers()
    async with owner(servers):
        await send(servers, node("a", "a-1"), node("b", "b-1"))
        await assigned(servers, "a", 1)
        before = len(await assigned(servers, "b", 1))
        await send(servers, node("b", "b-2"))
        while (last := (await assigned(servers, "b", before))[-1]).offset < 3:
            before += 1
    assert isinstance(last, AssignedNode)
    assert (last.node_id, last.incarnation, last.former) == ("b", "b-2", ("b-1",))
    partition = partition_of(b"a", ASSIGNMENTS.partitions)
    said = servers.log.topics[ASSIGNMENTS.name][partition].records
    assert not any(b"b-2" in record.value for record in said)
