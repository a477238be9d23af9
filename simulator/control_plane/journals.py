"""Journals of a long run, to be loaded into real servers, and the state that must follow."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from msgspec import structs

from schemas.account import Limits, PlanSet, TenantCreated
from schemas.job import JobEnded
from schemas.sealed import Sealed
from schemas.topics import ACCOUNT, JOB, POOL
from schemas.units import GpuMs, Micro
from simulator.control_plane.audit import audit_run
from simulator.control_plane.control_plane_sim import ControlPlaneRun, play
from simulator.control_plane.plan import ControlPlanePlan, Size
from simulator.control_plane.usage_books import LedgerLine
from simulator.engine.faults import Faults, FaultStep
from tunery.runtime.bus.abstract import Appended, Commit, Log, Record

KINDS: Final = ("crash", "power cut", "power cut", "agent killed", "agent frozen", "node departed")
JOBS_PER_KILL: Final = 3
S_PER_JOB: Final = 8  # of faulty time; jobs come in its first half
SIZE: Final = Size(tenants=6, nodes=12, snapshot_every=300)
REACTIONS: Final = (("scheduler", JOB), ("scheduler", POOL), ("billing", ACCOUNT))
WINDOW: Final = 500  # appends in flight
TopicPartition: TypeAlias = tuple[str, int]  # topic, partition
Group: TypeAlias = tuple[str, str]  # group, topic
JobRow: TypeAlias = tuple[str, str, str, GpuMs, GpuMs, GpuMs]


@dataclass(frozen=True)
class Life:
    """`records`: of journals and commands; `reacted`: how far reactions had come.

    The rest is the truth, by our own books. `jobs`: tenant, id, outcome, time billed, lost,
    released; `leases`: how many; `invoices`: time and money by tenant and month.
    """

    records: Mapping[TopicPartition, Sequence[Record]]
    reacted: Mapping[Group, Mapping[int, Commit]]
    jobs: Counter[JobRow]
    limits: Mapping[str, Limits]
    leases: int
    lines: Counter[LedgerLine]
    invoices: Mapping[tuple[str, str], tuple[GpuMs, Micro]]

    @property
    def written(self) -> int:
        return sum(map(len, self.records.values()))


def live(jobs: int, urls: Mapping[str, Sealed], seed: int = 1) -> Life:
    """Simulate this many jobs while machines and services fail, in its own event loop.

    `urls`: of webhook endpoints, by tenant. Raises AssertionError when an invariant is violated.
    """
    size = structs.replace(SIZE, faulty_s=max(90, S_PER_JOB * jobs))
    rng, until_ms = Random(f"{seed}/kills"), 1_000 * size.faulty_s - 5_000
    times = sorted(rng.randint(1_000, until_ms) for _ in range(jobs // JOBS_PER_KILL))
    faults = Faults(
        lost=1,
        late=1,
        doubled=1,
        steps=tuple(FaultStep(at_ms, rng.choice(KINDS)) for at_ms in times),
    )
    plan = ControlPlanePlan(
        seed, faults, jobs, changes=jobs // 4, failures=8, rotten=10, stubborn=10, new_month=True
    )
    run = play(plan, size, urls=urls)
    return _written_down(run)


def _written_down(run: ControlPlaneRun) -> Life:
    audit, broker = audit_run(run), run.context.broker
    assert not audit.violations, audit.violations[0]
    topics = {topic.name for _, s in REACTIONS for topic in (s.commands, s.journal)}
    groups = [
        (f"tunery.{service}.reacts.{stream.name}.positions", stream.journal.name)
        for service, stream in REACTIONS
    ]
    tenants = {
        event.job_id: decision.header.key
        for decision in run.context.decisions["job"]
        for event in decision.events
        if isinstance(event, JobEnded)
    }
    return Life(
        records={
            partition: records
            for partition, records in broker.history.items()
            if partition[0] in topics
        },
        reacted={group: asyncio.run(_read_commits(broker.memory, group)) for group in groups},
        jobs=Counter(
            (
                *(tenants[job_id], job_id, ended.outcome),
                *(ended.billable_gpu_ms, ended.lost_gpu_ms, ended.released_gpu_ms),
            )
            for job_id, ended in audit.quota.ended.items()
        ),
        limits={
            decision.header.key: event.terms.limits
            for decision in run.context.decisions["account"]
            for event in decision.events
            if isinstance(event, TenantCreated | PlanSet)
        },
        leases=len(audit.meter.leases),
        lines=audit.meter.lines,
        invoices={bill.key[:2]: (bill.gpu_ms, bill.amount_micro) for bill in run.bills},
    )


async def _read_commits(log: Log, group: Group) -> Mapping[int, Commit]:
    return await log.committed(*group)


async def load(life: Life, log: Log) -> None:
    """Write the records into empty topics, each at its original offset."""
    for (topic, partition), records in sorted(life.records.items()):
        writer = await log.writer(topic, partition)
        flying: list[asyncio.Future[Appended]] = []
        try:
            for record in records:
                submitted = await writer.submit(record.key, record.value)
                flying.append(asyncio.ensure_future(submitted))
                if len(flying) == WINDOW:
                    await asyncio.gather(*flying)
                    flying.clear()
            await asyncio.gather(*flying)
        finally:
            await writer.close()
    for group, commits in life.reacted.items():
        await log.commit(*group, commits)
