"""Nodes: machines, and their agents as tasks on virtual time.

A machine outlives its agents and knows which attempts really run on it.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Final

import msgspec

from schemas.assignments import Assigned
from schemas.envelope import Message
from schemas.node import NodeDescription
from schemas.streams import KEY_NUMBER, NODE_PREFIX
from schemas.topics import ASSIGNMENTS, HEARTBEATS, POOL
from schemas.units import Ms
from simulator.control_plane.agent import LeaseDiaries, SimAgent
from simulator.control_plane.attempts import AttemptTask, GangTask
from simulator.control_plane.elastic import ELASTIC, QUOTA_MAX, ElasticTask
from simulator.control_plane.samples import POOL as POOL_NAME
from simulator.control_plane.samples import SLOT_BYTES
from simulator.control_plane.sim_context import SimContext
from simulator.engine.cluster import keys_as
from simulator.engine.sim_log import READ_WAIT_MS, RECORDS_MAX, insist
from tunery.platform.bus.sender_keys import NODES
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable
from tunery.runtime.bus.partitioner import partition_of

HEARTBEAT_MS: Final[Ms] = 7_500
LEAVE_MS_MAX: Final[Ms] = 20_000
NOTICES_MS: Final[tuple[Ms, ...]] = (30_000, 120_000)  # of Google, and of AWS


# node → accelerator, and whether it is spot; others say nothing
HARDWARE: Final[Mapping[str, tuple[str, bool]]] = {
    "n0": ("h1", False),
    "n1": ("", True),
    "n2": ("h1", True),
}
DOMAINS: Final[Mapping[str, str]] = {"n0": "east", "fresh": "east"}


class SimMachine:
    def __init__(self, context: SimContext, node_id: str, slots: int) -> None:
        self.context, self.node_id, self.slots = context, node_id, slots
        self.rng = context.chance(node_id)
        self.running: dict[str, int] = {}  # slots in use, by incarnation and lease
        self.diaries: LeaseDiaries = {}
        self.incarnations = 0
        self.agent: AgentTasks | None = None
        self.is_broken = False
        self.accelerator, self.is_spot = HARDWARE.get(node_id, ("", False))
        self.is_elastic = node_id == ELASTIC
        self.key_number = 1  # of the keys that its next agent signs with

    def boot(self) -> None:
        """Start a new agent, which first kills the processes of the one before."""
        if self.agent is not None:
            return
        self.running.clear()
        self.incarnations += 1
        self.agent = AgentTasks(self, f"{self.node_id}.{self.incarnations}")

    def start(self, name: str, slots: int) -> None:
        self.running[name] = slots
        used = sum(self.running.values())
        if used > self.slots and not self.is_elastic:  # what shrank lets its leases run on
            self.context.violations.append(
                f"slots: {self.node_id} runs {', '.join(self.running)}: {used} of {self.slots}"
            )

    def stop(self, name: str) -> None:
        self.running.pop(name, None)

    def note(self, text: str) -> None:
        self.context.broker.trace(f"{self.node_id} {text}")

    # --- what goes wrong --------------------------------------------------------------------------

    async def lose_power(self) -> None:
        if self._lose_agent("power cut"):
            self.running.clear()

    async def lose_agent(self) -> None:
        self._lose_agent("agent killed")

    def begin_anew(self) -> None:
        """Give up what runs and register again: the pool has forgotten the machine."""
        self._lose_agent("forgotten while it was away")

    def _lose_agent(self, why: str) -> bool:
        if self.agent is None:
            return False
        self.context.broker.tally.add(why)
        self.note(why)
        self.agent.end()
        self.agent = None
        self.context.broker.later(self.rng.uniform(500, 30_000), self.boot)
        return True

    async def freeze(self) -> None:
        agent, freeze_s = self.agent, self.rng.uniform(1, 40)
        if agent is None:
            return
        self.context.broker.tally.add("agent frozen")
        self.note(f"is frozen for {freeze_s:.1f} s")
        agent.port.pause()
        await asyncio.sleep(freeze_s)
        self.note("thaws")
        agent.port.resume()

    async def sleep(self) -> None:
        """Stop the machine's clocks while broker time runs: a closed lid, a paused machine."""
        agent = self.agent
        asleep_s = self.rng.choice((self.rng.uniform(2, 15), self.rng.uniform(20, 60)))
        if agent is None or not agent.port.fall_asleep():
            return
        self.context.broker.tally.add("machine asleep")
        self.note(f"sleeps for {asleep_s:.1f} s")
        await asyncio.sleep(asleep_s)
        self.note("wakes up")
        agent.port.wake_up()

    async def break_down(self) -> None:
        """Fill the disk or lose the driver: all that the machine runs fails, until it is
        repaired.
        """
        self.context.broker.tally.add("node broken")
        self.note("is broken")
        self.is_broken = True
        await asyncio.sleep(self.rng.uniform(5, 40))
        self.is_broken = False

    async def cancel_attempt(self) -> None:
        if self.agent is not None and self.agent.cancel_attempt(self.rng):
            self.context.broker.tally.add("attempt cancelled")

    async def depart(self) -> None:
        """Leave in order: attempts write a checkpoint and end, then the node retires."""
        agent = self.agent
        if agent is None or not agent.agent.state.registered:
            return
        self.context.broker.tally.add("node departed")
        if self.running:
            self.context.broker.tally.add("loaded node departed")
        self.note("departs")
        await asyncio.wait((agent.begin_to_leave(),))  # which ends with the agent if that dies
        if self.agent is agent:
            agent.end()
            self.agent = None
            self.context.broker.later(self.rng.uniform(500, 30_000), self.boot)

    async def be_taken_away(self) -> None:
        """Take a spot machine away: a notice to its agent, and some time later a power cut."""
        agent = self.agent
        if agent is None or not agent.agent.state.registered:
            return
        left_ms = self.rng.choice(NOTICES_MS)
        self.context.broker.tally.add("machine taken away")
        if self.running:
            self.context.broker.tally.add("loaded machine taken away")
        self.note(f"is taken away in {left_ms} ms")
        telling = agent.tell(agent.agent.notice(left_ms))
        await asyncio.sleep(left_ms / 1_000)
        telling.cancel()
        if self.agent is agent:
            self._lose_agent("power cut")
            self.running.clear()


class AgentTasks:
    """One incarnation on virtual time. Its tasks, and those of its attempts, end with it."""

    def __init__(self, machine: SimMachine, incarnation: str) -> None:
        self.machine, self.incarnation = machine, incarnation
        self.rng = machine.context.chance(incarnation)
        self.port, sender_as = machine.context.port(incarnation)
        number = f"{KEY_NUMBER}{machine.key_number}" if machine.key_number > 1 else ""
        self._principal = NODE_PREFIX + machine.node_id + number
        self._sender = sender_as(self._principal)
        node = NodeDescription(
            node_id=machine.node_id,
            incarnation=incarnation,
            slots=max(1, machine.slots),
            device="cpu",
            memory_bytes=SLOT_BYTES * (QUOTA_MAX if machine.is_elastic else machine.slots),
            accelerator=machine.accelerator,
            spot=machine.is_spot,
            domain=DOMAINS.get(machine.node_id, ""),
            fabric=not machine.is_elastic,
            elastic=machine.is_elastic,
        )
        self.agent = SimAgent(node, machine.diaries)
        self._attempts: dict[int, AttemptTask] = {}
        self._leaving = False
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._live())]

    def end(self) -> None:
        self.port.alive = False
        for task in (*self._tasks, *(attempt.task for attempt in self._attempts.values())):
            task.cancel()

    def cancel_attempt(self, rng: Random) -> bool:
        """Cancel the task of an attempt whose process runs; False: there is none."""
        running = [name for name, attempt in self._attempts.items() if attempt.is_running]
        if running:
            self._attempts[rng.choice(running)].break_off()
        return bool(running)

    async def fact(self, body: Message) -> None:
        await insist(self.port, self._sender, POOL.name, POOL_NAME, body)

    async def say(self, stream: str, key: str, tenant: str, body: Message) -> None:
        """Send what is of another stream than the pool's."""
        await insist(self.port, self._sender, stream, key, body, tenant=tenant)

    def tell(self, body: Message) -> asyncio.Task[None]:
        """Send a fact, concurrently with its other work."""
        telling = asyncio.create_task(self.fact(body))
        self._tasks.append(telling)
        return telling

    def begin_to_leave(self) -> asyncio.Task[None]:
        leaving = asyncio.create_task(self._leave())
        self._tasks.append(leaving)
        return leaving

    async def _leave(self) -> None:
        self._leaving = True
        await self.fact(self.agent.leave())
        for target in ("drain", "kill"):
            waiting = [
                attempt.task for attempt in self._attempts.values() if not attempt.task.done()
            ]
            for attempt in self._attempts.values():
                attempt.set_target(target)
            if waiting:
                await asyncio.wait(waiting, timeout=LEAVE_MS_MAX / 1_000)
        await self.fact(self.agent.retire())

    async def _beat(self) -> None:
        while True:
            beat = self.agent.heartbeat(self.port.monotonic_ms())
            key, value = beat.node_id.encode(), msgspec.json.encode(beat)
            value = keys_as(self._principal).sign(NODES, value)
            try:
                await self.port.send(HEARTBEATS.name, key, value)
            except (AppendUnknown, Unavailable):
                self.machine.note("does not know whether its heartbeat arrived")
            await self.port.sleep(HEARTBEAT_MS)

    async def _live(self) -> None:
        partition = partition_of(self.machine.node_id.encode(), ASSIGNMENTS.partitions)
        _, end = await self.machine.context.broker.bounds(ASSIGNMENTS.name, partition)
        await self.fact(self.agent.register())
        reader = await self.port.reader(ASSIGNMENTS.name, {partition: end})
        joined = False
        while True:
            try:
                records = await reader.poll(READ_WAIT_MS, RECORDS_MAX)
            except Unavailable:  # the reader asks again where it was
                await self.port.sleep(HEARTBEAT_MS)
                continue
            for record in records:
                self.agent.take(msgspec.json.decode(record.value, type=Assigned))
            if self.agent.state.forgotten and not self._leaving:
                self.machine.begin_anew()
                return
            self._reconcile()
            if not joined and self.agent.state.registered:
                joined = True
                await self.fact(self.agent.join())

    def _reconcile(self) -> None:
        for attempt in self.agent.reconcile(takes_new=not self._leaving):
            lease = attempt.grant.token.lease
            if lease not in self._attempts:
                several = len(attempt.grant.members) > 1
                alone = ElasticTask if self.machine.is_elastic else AttemptTask
                self._attempts[lease] = (GangTask if several else alone)(self, attempt)
            self._attempts[lease].set_target(self.agent.target_of(attempt))
