"""A node over the log in memory, its real pool and watcher, and real processes that only print."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from schemas import pool, training
from schemas.node import DeviceFault
from schemas.reasons import ending
from schemas.topics import POOL
from schemas.training import work_id_of
from schemas.works import DescribeWork
from services.billing.app import LEASE_KEYS
from services.billing.giving import give_keys
from services.scheduler.app import pool_owner
from services.scheduler.watch import Watcher
from services.trainer.adapters.memory_kills import count_memory_kills
from services.trainer.adapters.notices import NoNotices
from services.trainer.adapters.processes import ProcessGroups
from services.trainer.domain.state import Grant
from services.trainer.effect.agent import NodeAgent
from services.trainer.effect.attempt import LeaseAttempt
from services.trainer.effect.environment import devices_of
from services.trainer.effect.lease_keys import LeaseKeys
from services.trainer.effect.program import Program, Tools
from services.trainer.effect.reports import Reports
from services.trainer.ports import Access, Hardware, NoticeSource, ProcessLauncher, SlotHealth
from services.trainer.settings import TrainerSettings
from simulator.control_plane import samples
from tests.unit.services.trainer.domain.test_evolve import WORK
from tests.unit.tunery.work.samples import STARTED
from tunery.platform.memory_servers import MemoryServers
from tunery.platform.ports import Runtime
from tunery.ranks.launching import RankLayout
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.journal.reader import START, JournalReader
from tunery.work.codec import encode_event
from tunery.work.events import AnyWorkEvent, Started
from tunery.work.spec import TrainSpec

POOL_NAME = "default"
LIMITS = HostLimits()
PROCESSORS, SLOTS = Hardware("cpu", 8 << 30), 2
WAIT_S_MAX = 180
TTL_MS, POLL_MS, IDLE_MS_MAX = 60_000, 50, 8_000  # a busy machine starts a process in seconds


@dataclass
class Script:
    """What a process of a test does: print events, then run a few lines of Python."""

    events: tuple[AnyWorkEvent, ...] = (STARTED,)
    lines: tuple[str, ...] = ()  # printed as they are, after the events
    then: str = ""
    failure: Exception | None = None  # raised instead of starting the process
    ranks: int = 1  # how many such processes there are; each has its number in its environment
    module: str = ""  # that the launcher is asked for instead; a test says what it starts


@dataclass
class Reported:
    """What a test says is wrong with the slots."""

    now: tuple[DeviceFault, ...] = ()

    def faults(self) -> tuple[DeviceFault, ...]:
        return self.now


class ScriptProgram(Program):
    """The Program of a Script."""

    def __init__(
        self, grant: Grant, tools: Tools, settings: TrainerSettings, script: Script
    ) -> None:
        super().__init__(grant, tools, settings)
        self._script = script

    async def prepare(self, folder: Path) -> tuple[str, ...]:
        if self._script.failure is not None:
            raise self._script.failure
        several = self._script.ranks > 1
        devices = devices_of(self.grant, self.tools.device_names) if several else ()
        count = self._script.ranks
        layout = RankLayout(count, range(count), devices=devices)
        job = f"{self.grant.tenant}/{self.grant.job_id}"
        self.access = Access(ranks=layout if several else None, job=job)
        if self._script.module:
            return ("-m", self._script.module, "spec.json")
        lines = [encode_event(event, 0).decode() for event in self._script.events]
        printed = [f"print({line!r}, flush=True)" for line in (*lines, *self._script.lines)]
        return ("-c", "\n".join(("import sys, time, signal", *printed, self._script.then)))

    async def write_inputs(self, folder: Path) -> TrainSpec:
        raise NotImplementedError("a script reads no spec")

    async def handle(self, event: AnyWorkEvent) -> training.AttemptStart | None:
        if not isinstance(event, Started):
            return None
        return training.AttemptStart(
            loaded=None, loaded_step=0, skipped=(), total_steps=event.total_steps
        )

    async def result(self) -> training.Result:
        blob = training.BlobFile(name="scores.json", blob="t/acme/scores", sha256="0" * 64, bytes=1)
        return training.EvalResult(scores=blob)


@dataclass
class Node:
    runtime: Runtime
    agent: NodeAgent
    folder: Path

    async def request(self, job_id: str, attempt: int = 1, **changes: Any) -> None:
        described = training.WorkDescription(job_id=job_id, work_id=work_id_of(WORK), work=WORK)
        placement = replace(
            samples.request(job_id, attempt, **changes).placement,
            role="eval",
            work_id=described.work_id,
            price_version="p",
            constraints=training.NodeConstraints(tolerations=("eu", "research")),
        )
        for command in (
            DescribeWork(tenant="acme", description=described),
            pool.RequestPlacement(placement=placement),
        ):
            await self.runtime.sender.send(POOL.name, POOL_NAME, "acme", command)

    async def close(self, job_id: str, mode: pool.CloseMode) -> None:
        request = pool.EndRequest(
            attempt=1, mode=mode, ended_by="tenant", reason=ending("cancelled")
        )
        command = pool.ClosePlacement(job_id=job_id, request=request)
        await self.runtime.sender.send(POOL.name, POOL_NAME, "acme", command)

    async def until(self, kind: type[Any], count: int = 1) -> list[Any]:
        """All events of the pool once there are `count` of a kind."""
        partition = partition_of(POOL_NAME.encode())
        reader = JournalReader(self.runtime.log, POOL, {partition: START})
        await reader.open()
        events: list[Any] = []

        async def read() -> list[Any]:
            while sum(isinstance(event, kind) for event in events) < count:
                for batch in (await reader.read(100)).values():
                    events.extend(event for accepted in batch.accepted for event in accepted.events)
            return events

        try:
            return await asyncio.wait_for(read(), WAIT_S_MAX)
        finally:
            await reader.close()


def settings(folder: Path, slots: int = SLOTS) -> TrainerSettings:
    return TrainerSettings(
        id="a",
        pool=POOL_NAME,
        slots=slots,
        work_dir=folder,
        heartbeat_ms=100,
        drain_grace_ms=5_000,
        accelerator="h200",
        spot=True,
        taints="eu,research",
        domain="rack-3",
        fabric="ib0",
        notices_poll_ms=50,
        health_poll_ms=50,
    )


@asynccontextmanager
async def node(
    world: MemoryServers,
    folder: Path,
    script: Callable[[Grant], Script],
    limits: HostLimits = LIMITS,
    notices: NoticeSource | None = None,
    health: SlotHealth | None = None,
    hardware: Hardware = PROCESSORS,
    *,
    launcher: ProcessLauncher | None = None,
    gives_keys: bool = True,
    quota: Callable[[], Awaitable[int | None]] | None = None,
) -> AsyncIterator[Node]:
    """A running agent, a running owner of the pool, and what gives leases their keys."""
    runtime = world.runtime("trainer")
    launcher = launcher or ProcessGroups(mark=str(folder))
    chosen = settings(folder, max(SLOTS, len(hardware.device_names)))
    reports = Reports(runtime, POOL_NAME)

    def attempt(grant: Grant, incarnation: str) -> LeaseAttempt:
        names = hardware.device_names
        keys = LeaseKeys(grant, incarnation, runtime, reports)
        own = dataclasses.replace(runtime, blobs=keys.blobs, seal=keys.seal)
        tools = Tools(
            *(own, launcher, reports, incarnation, count_memory_kills), device_names=names
        )
        program = ScriptProgram(grant, tools, chosen, script(grant))
        return LeaseAttempt(grant, tools, program, folder / str(grant.token.lease), keys)

    agent = NodeAgent(
        *(runtime, chosen, launcher, hardware, attempt),
        *(notices or NoNotices(), health or Reported(), quota),
    )
    owner_runtime = world.runtime("scheduler")
    owner = pool_owner(owner_runtime, limits=limits)
    watcher = Watcher(owner_runtime, TTL_MS, POLL_MS, IDLE_MS_MAX)
    async with AsyncExitStack() as stack:
        for host in (*owner, watcher, agent, *(giving(world) if gives_keys else ())):
            await stack.enter_async_context(running(host.run))
        await asyncio.wait_for(agent.ready(), WAIT_S_MAX)
        yield Node(world.runtime("tests"), agent, folder)


def giving(world: MemoryServers) -> tuple[Projector, EffectHost]:
    """The part of billing that gives leases their keys."""
    billing = world.runtime("billing")
    return Projector(billing, LEASE_KEYS), EffectHost(billing, (give_keys(billing.seal),))


@asynccontextmanager
async def running(run: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=WAIT_S_MAX)
