"""Measures what nodes read of their pool, and what its scheduler computes, on a real Kafka.

    python -m bench.fleet [--nodes 50] [--json]

Simulated agents join, run a lease each, run another one while the scheduler is killed with SIGKILL
and a new one takes over, are drained and leave. The scheduler's hosts for the pool are a process of
their own. All agents share one process and its connections: the bytes of a node are those of the
partition that its agent would read. `journal_kb` is what each of them had to read before there were
assignments. Heartbeats come every five seconds, in place of every second.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
from msgspec import structs

from bench.measures import TICKS_S, cpu_ticks, data_folder, print_figures
from schemas.assignments import Assigned, AssignedAll, AssignedLease
from schemas.envelope import Message
from schemas.node import DrainNode, NodeDescription
from schemas.streams import PARTITIONS, agent_of
from schemas.topics import ASSIGNMENTS, HEARTBEATS, POOL, STREAMS, TOPICS
from schemas.units import Ms
from services.scheduler.app import pool_owner
from services.scheduler.watch import Watcher
from simulator.control_plane.agent import SimAgent, SimAttempt
from simulator.control_plane.samples import POOL as POOL_NAME
from simulator.control_plane.samples import SLOT_BYTES, describe, request
from tests.kafka_brokers import OPEN, broker
from tunery.platform.bus.kafka import KafkaLog, KafkaSettings
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.memory_servers import memory_servers
from tunery.platform.seal.orders import open_order
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import SenderKeys
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.keeping import keep

SECRET: Final = b"a bench has nothing that is secret"
BEAT_S: Final = 5.0
TTL_MS: Final = 60_000
WORK_S: Final = 0.1  # of a lease
READ_MS, RECORDS_MAX = 200, 2_000
PHASE_S_MAX: Final = 1_800
AT_ONCE: Final = 64  # commands on their way


async def schedule(bootstrap: str) -> None:
    """Run the pool's hosts of a scheduler until killed. Snapshots are lost with it."""
    log, servers = KafkaLog(KafkaSettings(bootstrap)), await memory_servers()
    keys = SenderKeys(nodes=keys_of(SECRET, "scheduler").nodes)
    sender, plain = Sender(log, STREAMS), servers.runtime("scheduler")
    runtime = replace(plain, log=log, sender=sender, keys=keys)
    hosts: tuple[Host, ...] = (*pool_owner(runtime), Watcher(runtime, TTL_MS, 500, 900_000))
    await asyncio.gather(*map(keep, hosts))


@dataclass
class Scheduler:
    """The process of `schedule`, and its successors."""

    bootstrap: str
    cpu_s: float = 0.0  # of those that were killed
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        argv = (sys.executable, "-m", "bench.fleet", "--schedule", self.bootstrap)
        self.process = await asyncio.create_subprocess_exec(*argv)

    async def kill(self) -> None:
        if self.process is not None:
            self.cpu_s = self.computed_s()
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()
            self.process = None

    def computed_s(self) -> float:
        """Seconds of a processor so far."""
        if self.process is None:
            return self.cpu_s
        return self.cpu_s + sum(cpu_ticks(self.process.pid)[:2]) / TICKS_S


class Agent(SimAgent):
    """A simulated agent, and what it did. holds: its leases last until they are to end."""

    def __init__(self, number: int) -> None:
        node_id = f"node-{number:04}"
        described = NodeDescription(
            node_id=node_id,
            incarnation=f"{node_id}.1",
            slots=1,
            device="cpu",
            memory_bytes=SLOT_BYTES,
        )
        super().__init__(described, {})
        self.keys = keys_of(SECRET, f"node.{node_id}")
        self.partition = partition_of(node_id.encode(), ASSIGNMENTS.partitions)
        self.holds = False
        self.begun: set[int] = set()
        self.ended = 0

    @property
    def node_id(self) -> str:
        return self.node.node_id


@dataclass
class Fleet:
    """Agents on one connection. received, own: bytes by partition, and by node that they are for"""

    log: KafkaLog
    agents: dict[str, Agent]
    received: Counter[int] = field(default_factory=Counter)
    own: Counter[str] = field(default_factory=Counter)
    records: int = 0
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.sender, self._limit = Sender(self.log, STREAMS), asyncio.Semaphore(AT_ONCE)

    async def tell(self, body: Message, tenant: str = "") -> None:
        async with self._limit:
            await self.sender.send(POOL, POOL_NAME, tenant, body)

    async def tell_all(self, command_of: Callable[[Agent], Message]) -> None:
        await asyncio.gather(*(self.tell(command_of(agent)) for agent in self.agents.values()))

    async def until(self, value_of: Callable[[Agent], int], total: int) -> None:
        """Wait until a value of all agents has this sum: one may run two leases, another none.

        Raises TimeoutError.
        """
        async with asyncio.timeout(PHASE_S_MAX):
            while sum(map(value_of, self.agents.values())) < total:
                self._news.clear()
                await self._news.wait()

    async def read(self) -> None:
        """Read all partitions until cancelled; each record goes to the agents that it is for."""
        partitions = dict.fromkeys(range(ASSIGNMENTS.partitions or 0), 0)
        reader = await self.log.reader(ASSIGNMENTS.name, partitions)
        of_partition: dict[int, list[Agent]] = {number: [] for number in partitions}
        for agent in self.agents.values():
            of_partition[agent.partition].append(agent)
        while True:
            for record in await reader.poll(READ_MS, RECORDS_MAX):
                self.records += 1
                self.received[record.partition] += len(record.value)
                body = msgspec.json.decode(record.value, type=Assigned)
                if isinstance(body, AssignedAll):
                    for agent in of_partition[record.partition]:
                        agent.take(body)
                else:
                    self.own[body.node_id] += len(record.value)
                    self._take(self.agents[agent_of(body.node_id)], body)
            self._news.set()

    def _take(self, agent: Agent, body: Assigned) -> None:
        if isinstance(body, AssignedLease) and body.sealed_order is not None:
            body = structs.replace(body, order=open_order(body.sealed_order, agent.keys))
        agent.take(body)
        for attempt in agent.reconcile():
            lease = attempt.grant.token.lease
            if lease not in agent.begun:
                agent.begun.add(lease)
                self._start(self._run(agent, attempt))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _run(self, agent: Agent, attempt: SimAttempt) -> None:
        await self.tell(attempt.start(_now_ms, lambda: False))
        await asyncio.sleep(WORK_S)
        lease = attempt.grant.token.lease
        while agent.holds and agent.state.assignments[lease].target == "run":
            self._news.clear()
            await self._news.wait()
        await self.tell(attempt.exit(_now_ms(), "preempted" if agent.holds else "succeeded"))
        await self.tell(attempt.free())
        attempt.is_over = True
        agent.ended += 1
        self._news.set()

    async def beat(self) -> None:
        while True:
            for agent in self.agents.values():
                beat = agent.heartbeat(_now_ms())
                await self.log.send(
                    HEARTBEATS.name, agent.node_id.encode(), msgspec.json.encode(beat)
                )
            await asyncio.sleep(BEAT_S)

    async def submit(self, first: int) -> None:
        """Ask for one lease for each node."""
        for number in range(first, first + len(self.agents)):
            job_id = f"ftjob-{number}"
            await self.tell(describe(job_id), "acme")
            await self.tell(request(job_id, role="eval"), "acme")


def _now_ms() -> Ms:
    return round(time.monotonic() * 1_000)


async def measure(nodes: int) -> dict[str, Any]:
    """Play a fleet from its join to its leave. Raises TimeoutError where something is lost."""
    figures: dict[str, Any] = {"nodes": nodes}
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(data_folder())
        running = await stack.enter_async_context(broker(folder, OPEN))
        log = KafkaLog(KafkaSettings(running.bootstrap, request_ms_max=60_000, send_ms_max=20_000))
        stack.push_async_callback(log.close)
        await log.create(TOPICS, PARTITIONS)
        scheduler = Scheduler(running.bootstrap)
        await scheduler.start()
        stack.push_async_callback(scheduler.kill)
        fleet = Fleet(log, {agent.node_id: agent for agent in map(Agent, range(nodes))})
        for work in (fleet.read, fleet.beat):
            task = asyncio.create_task(work())
            stack.callback(task.cancel)

        @asynccontextmanager
        async def phase(name: str) -> AsyncIterator[None]:
            began, computed, records = time.monotonic(), scheduler.computed_s(), fleet.records
            before = sum(fleet.received[agent.partition] for agent in fleet.agents.values())
            yield
            after = sum(fleet.received[agent.partition] for agent in fleet.agents.values())
            figures[name] = {
                "seconds": round(time.monotonic() - began, 1),
                "scheduler_cpu_s": round(scheduler.computed_s() - computed, 2),
                "records": fleet.records - records,
                "kb_per_node": round((after - before) / nodes / 1e3, 2),
            }

        async with phase("join"):
            await fleet.tell_all(Agent.register)
            await fleet.until(lambda agent: agent.state.registered, nodes)
            await fleet.tell_all(Agent.join)
        async with phase("work"):
            await fleet.submit(1)
            await fleet.until(lambda agent: agent.ended, nodes)
        async with phase("takeover"):
            await scheduler.kill()
            await fleet.submit(nodes + 1)
            await scheduler.start()
            await fleet.until(lambda agent: agent.ended, 2 * nodes)
        async with phase("drain"):
            for agent in fleet.agents.values():
                agent.holds = True
            await fleet.submit(2 * nodes + 1)
            await fleet.until(lambda agent: len(agent.begun), 3 * nodes)
            await fleet.tell_all(lambda agent: DrainNode(node_id=agent.node_id))
            await fleet.until(lambda agent: agent.ended, 3 * nodes)
        async with phase("leave"):
            await fleet.tell_all(Agent.leave)
            await fleet.until(lambda agent: agent.state.leaving, nodes)
            await fleet.tell_all(Agent.retire)
        figures.update(await _totals(log, fleet))
    return figures


async def _totals(log: KafkaLog, fleet: Fleet) -> dict[str, float]:
    partition, read, journal = partition_of(POOL_NAME.encode()), 0, 0
    end = (await log.ends(POOL.journal.name, (partition,)))[partition]
    reader = await log.reader(POOL.journal.name, {partition: 0})
    while read < end:
        for record in await reader.poll(READ_MS, RECORDS_MAX):
            read, journal = record.offset + 1, journal + len(record.value)
    await reader.close()
    nodes = len(fleet.agents)
    each = sum(fleet.received[agent.partition] for agent in fleet.agents.values()) / nodes
    return {
        "journal_kb": round(journal / 1e3, 1),
        "kb_per_node": round(each / 1e3, 2),
        "own_kb_per_node": round(sum(fleet.own.values()) / nodes / 1e3, 2),
        "journal_ratio": round(journal / each, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--schedule", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.schedule:
        asyncio.run(schedule(arguments.schedule))
        return
    figures = asyncio.run(measure(arguments.nodes))
    print_figures(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
