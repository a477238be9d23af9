"""Several nodes that train together: their agents, the pool, and real ranks, over a log in memory.

What differs between machines is said by a test: here all nodes are this one.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from schemas import pool, training
from schemas.topics import POOL
from schemas.training import work_id_of
from schemas.works import DescribeWork
from services.scheduler.app import pool_owner
from services.scheduler.watch import Watcher
from services.trainer.adapters.memory_kills import count_memory_kills
from services.trainer.adapters.notices import NoNotices
from services.trainer.adapters.processes import ProcessGroups, Walls
from services.trainer.domain.state import Grant
from services.trainer.effect.agent import NodeAgent
from services.trainer.effect.attempt import LeaseAttempt
from services.trainer.effect.lease_keys import LeaseKeys
from services.trainer.effect.program import Tools
from services.trainer.effect.reports import Reports
from services.trainer.effect.training import Training
from services.trainer.ports import NO_ACCESS, Access, Hardware, WorkProcess
from services.trainer.settings import TrainerSettings
from simulator.control_plane import samples
from tests.bases import tiny_base
from tests.e2e.test_resume import shard
from tests.unit.services.trainer.effect.machines import (
    IDLE_MS_MAX,
    LIMITS,
    POLL_MS,
    POOL_NAME,
    TTL_MS,
    Reported,
    giving,
    running,
)
from tunery.confinement.confined import Confinement, ConfineMode
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.ranks.launching import LOOPBACK
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.journal.reader import START, JournalReader
from tunery.work.spec import TrainSpec

TENANT, JOB, TRAIN_BLOB = "acme", "ftjob-1", "t/acme/train"
ROWS_PER_STEP: Final = 2
WAIT_S_MAX: Final = 400  # a rank needs ten seconds of a core before it begins


@dataclass(frozen=True)
class Machine:
    """Settings of a node that differ from the other nodes'."""

    base_dir: str | None = None  # where it has the base model; None: where all have it
    # of its processes, beside what agents give them
    environment: Mapping[str, str] = field(default_factory=dict)
    fabric: str = LOOPBACK  # the interface by which its ranks reach others
    # whether its processes have walls, which hide folders of tests from them
    confine: ConfineMode = "require"


PLAIN: Final = Machine()


class TrainingOfMachine(Training):
    """A training on a machine that may have its files elsewhere."""

    machine: Machine

    async def write_inputs(self, folder: Path) -> TrainSpec:
        spec = await super().write_inputs(folder)
        assert isinstance(spec, TrainSpec)
        base_dir = self.machine.base_dir
        return spec if base_dir is None else replace(spec, base_dir=base_dir)


class ProcessesOfMachine(ProcessGroups):
    """Processes on a machine that may have other libraries."""

    machine: Machine

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        access: Access = NO_ACCESS,
    ) -> WorkProcess:
        own = {**environment, **self.machine.environment}
        return await super().start(argv, own, folder, access)


@dataclass
class GangNodes:
    """The nodes, and what the pool says of them."""

    servers: MemoryServers
    work: training.TrainWork
    events: list[Any] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def send(self, command: Any) -> None:
        await self.servers.runtime("scheduler").sender.send(POOL.name, POOL_NAME, TENANT, command)

    async def train(self, slots: int, attempt: int = 1, **changes: Any) -> None:
        """Ask for an attempt of the job, as `job` does."""
        described = training.WorkDescription(
            job_id=JOB, work_id=work_id_of(self.work), work=self.work
        )
        placement = replace(
            samples.request(JOB, attempt, slots=slots, max_gpu_ms=10**9, **changes).placement,
            tenant=TENANT,
            work_id=described.work_id,
            checkpoints=tuple(self.checkpoints()[:1]),
        )
        await self.send(DescribeWork(tenant=TENANT, description=described))
        await self.send(pool.RequestPlacement(placement=placement))

    async def until(self, kind: type[Any] | tuple[type[Any], ...], count: int = 1) -> Any:
        """The event of a kind with which there are `count` of them."""

        def known() -> list[Any]:
            return [each for each in self.events if isinstance(each, kind)]

        async with asyncio.timeout(WAIT_S_MAX), self.changed:
            await self.changed.wait_for(lambda: len(known()) >= count)
        return known()[count - 1]

    async def started(self, attempt: int = 1) -> pool.LeaseStarted:
        """The start of an attempt, which may not end before it."""
        seen = (pool.LeaseStarted, pool.PlacementClosed)
        first = await self.until(seen, 2 * attempt - 1)
        assert isinstance(first, pool.LeaseStarted), self.said(first.end)
        return first

    async def end(self, attempt: int = 1) -> training.AttemptOutcome:
        """How an attempt ended, once all its members are free."""
        closed: pool.PlacementClosed = await self.until(pool.PlacementClosed, attempt)
        granted: pool.LeaseGranted = await self.until(pool.LeaseGranted, attempt)
        members = sum(
            len(each.members)
            for each in self.events[: self.events.index(granted) + 1]
            if isinstance(each, pool.LeaseGranted)
        )
        await self.until(pool.MemberFreed, members)
        return closed.end.outcome

    def ends(self) -> list[pool.AttemptEnd]:
        """Return the ends of all attempts, in order."""
        return [each.end for each in self.events if isinstance(each, pool.PlacementClosed)]

    def said(self, end: pool.AttemptEnd) -> str:
        """Return the detail that an agent reported with an end."""
        assert end.detail is not None, end
        return self.servers.runtime("gateway").seal.open(end.detail, "detail")

    def checkpoints(self) -> list[training.Checkpoint]:
        """Return the checkpoints that the pool has accepted, the newest first."""
        accepted = [
            each.checkpoint for each in self.events if isinstance(each, pool.CheckpointAccepted)
        ]
        return accepted[::-1]

    async def follow(self) -> None:
        """Read what the pool decides, for as long as the nodes run."""
        partition = partition_of(POOL_NAME.encode())
        reader = JournalReader(self.servers.log, POOL, {partition: START})
        await reader.open()
        try:
            while True:
                for batch in (await reader.read(100)).values():
                    async with self.changed:
                        for accepted in batch.accepted:
                            self.events.extend(accepted.events)
                        self.changed.notify_all()
        finally:
            await reader.close()


@asynccontextmanager
async def gang_nodes(
    folder: Path, machines: Mapping[str, Machine], steps: int = 2
) -> AsyncIterator[GangNodes]:
    """Nodes with a slot each, and a training that is small but for its number of steps."""
    servers = await memory_servers()
    servers.keys.get(TENANT)  # the gateway makes it with the tenant
    content = shard(folder / "train.safetensors", ROWS_PER_STEP * steps).read_bytes()
    await servers.blobs.put(TRAIN_BLOB, content)
    nodes = GangNodes(servers, _work(content))
    owner = servers.runtime("scheduler")
    agents = [_agent(servers, folder / name, name, machine) for name, machine in machines.items()]
    hosts: tuple[Host, ...] = (
        *pool_owner(owner, limits=LIMITS),
        Watcher(owner, TTL_MS, POLL_MS, 1_000 * IDLE_MS_MAX),
        *giving(servers),
        *agents,
    )
    async with AsyncExitStack() as stack:
        for host in hosts:
            await stack.enter_async_context(running(host.run))
        await stack.enter_async_context(running(nodes.follow))
        for agent in agents:
            await asyncio.wait_for(agent.ready(), WAIT_S_MAX)
        yield nodes


def _work(content: bytes) -> training.TrainWork:
    tiny = tiny_base()
    prepared = replace(
        samples.PREPARED,
        train_blob=TRAIN_BLOB,
        train_sha256=sha256(content).hexdigest(),
        validation_rows=0,
    )
    hyper = training.HyperParameters(
        n_epochs=1,
        batch_size=ROWS_PER_STEP,
        accumulation=ROWS_PER_STEP,
        learning_rate_ppb=1_000_000,
        rank=4,
        alpha=8,
        dropout_ppm=100_000,
        warmup_ppm=0,
        weight_decay_ppm=0,
        max_length=128,
        seed=1,
        threads=1,
        checkpoint_every_steps=1_000_000,
    )
    return training.TrainWork(
        base_id="tiny",
        base_sha256=tiny.sha256,
        base_path=str(tiny.dir),
        prepared=prepared,
        hyper=hyper,
    )


def _agent(servers: MemoryServers, folder: Path, node_id: str, machine: Machine) -> NodeAgent:
    folder.mkdir()
    runtime = servers.runtime("trainer")
    settings = TrainerSettings(
        id=node_id,
        pool=POOL_NAME,
        work_dir=folder,
        heartbeat_ms=100,
        fabric=machine.fabric,
    )
    launcher = ProcessesOfMachine(str(folder), Walls(Confinement(machine.confine)))
    launcher.machine = machine
    reports = Reports(runtime, POOL_NAME)

    def attempt(grant: Grant, incarnation: str) -> LeaseAttempt:
        keys = LeaseKeys(grant, incarnation, runtime, reports)
        own = dataclasses.replace(runtime, blobs=keys.blobs, seal=keys.seal)
        tools = Tools(own, launcher, reports, incarnation, count_memory_kills)
        assert isinstance(grant.work, training.TrainWork)
        program = TrainingOfMachine(grant, grant.work, tools, settings)
        program.machine = machine
        lease_folder = folder / "leases" / str(grant.token.lease)
        return LeaseAttempt(grant, tools, program, lease_folder, keys)

    hardware = Hardware("cpu", 8 << 30)
    return NodeAgent(runtime, settings, launcher, hardware, attempt, NoNotices(), Reported())
