"""An agent reads its assignments alone, and what it does where it has missed some."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from schemas import pool
from schemas.topics import ASSIGNMENTS
from tests.unit.services.trainer.effect.machines import Script, node
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.platform.ports import Runtime
from tunery.runtime.bus.abstract import OutOfRange
from tunery.runtime.bus.memory import MemoryLog, MemoryReader
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.signing import SenderKeys
from tunery.runtime.store.memory import MemoryStore


@dataclasses.dataclass(frozen=True)
class NodeServers(MemoryServers):
    """Servers with keys of nodes. read: what the agent reads; losses: what it gets instead."""

    read: list[str] = dataclasses.field(default_factory=list)
    losses: list[OutOfRange] = dataclasses.field(default_factory=list)

    def runtime(self, name: str, store: MemoryStore | None = None) -> Runtime:
        runtime = super().runtime(name, store)
        if name == "scheduler":
            of_nodes = keys_of(b"k" * 32, "scheduler").nodes
            return dataclasses.replace(runtime, keys=SenderKeys(nodes=of_nodes))
        if name != "trainer":
            return runtime
        log = MemoryLog(self.clock)
        log.topics, log.watchers = self.log.topics, self.log.watchers
        connect = log.reader

        async def reader(topic: str, positions: Mapping[int, int]) -> MemoryReader:
            self.read.append(topic)
            if self.losses:
                raise self.losses.pop()
            return await connect(topic, positions)

        vars(log)["reader"] = reader
        own = keys_of(b"k" * 32, "node.a").own
        return dataclasses.replace(runtime, log=log, keys=SenderKeys(own=own))


async def test_security_an_agent_reads_no_journal_and_nothing_of_other_nodes(
    tmp_path: Path,
) -> None:
    """Core review E6: each node read every record of the pool, with the tenants of all nodes."""
    world = NodeServers(**vars(await memory_servers()))
    async with node(world, tmp_path, lambda _: Script()) as here:
        await here.request("job1")
        await here.until(pool.MemberFreed)
    assert set(world.read) == {ASSIGNMENTS.name}
    partition = partition_of(b"a", ASSIGNMENTS.partitions)
    values = [record.value for record in world.log.topics[ASSIGNMENTS.name][partition].records]
    assert any(b"sealed_order" in value for value in values)
    assert not any(name in value for value in values for name in (b"acme", b"job1"))


@pytest.mark.parametrize(("start", "incarnations"), [(5, 2), (0, 1)], ids=["expired", "power cut"])
async def test_an_agent_that_was_away_for_too_long_registers_again(
    tmp_path: Path, start: int, incarnations: int
) -> None:
    """Records it missed may end a lease. After a power cut the owner writes all anew."""
    world = NodeServers(**vars(await memory_servers()))
    world.losses.append(OutOfRange(ASSIGNMENTS.name, 0, 0, start, 9))
    async with node(world, tmp_path, lambda _: Script()) as here:
        await here.request("job1")
        events = await here.until(pool.MemberFreed)
    known = {each.node.incarnation for each in events if isinstance(each, pool.NodeRegistered)}
    assert len(known) == incarnations
