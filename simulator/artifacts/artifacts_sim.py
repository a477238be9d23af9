"""One run of ingest and registry: a time of faults, then months, until nothing is under way."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from schemas.dataset import DeleteFile, EraseUnnamed
from schemas.erasure import EraseFiles, EraseModels
from schemas.gate import SetGatePolicy
from schemas.model import (
    AddBase,
    Approval,
    ApprovalRule,
    ApproveVersion,
    Promote,
    RollBack,
    SetApprovalRule,
)
from schemas.streams import PARTITIONS
from schemas.topics import ACCOUNT, DATASET, JOB, MODEL, STREAMS, TOPICS
from schemas.units import DAY_MS, HOUR_MS
from simulator.artifacts.file_books import FileBooks
from simulator.artifacts.hosts import hosts, is_rotten
from simulator.artifacts.jobs import SimJobs
from simulator.artifacts.model_books import ModelBooks
from simulator.artifacts.people import KEYS, WEIGHTS, TenantClient, set_quarantine
from simulator.artifacts.plan import ArtifactsPlan, ArtifactsSize
from simulator.artifacts.version_books import HELD
from simulator.control_plane.samples import BASE
from simulator.engine.broker import Broker
from simulator.engine.cluster import Cluster
from simulator.engine.faults import FaultTally
from simulator.engine.sim_log import RETRY_MS, SimLog
from simulator.engine.virtual_loop import run_virtual
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.reader import Accepted

# People who release versions one after the other, which single requests hardly ever come to.


async def release(keeper: TenantClient, rng: Random) -> None:
    """Promote each version to one stage, and roll back now and then.

    Some approvals are of the other stage, and some former holders go into quarantine before.
    """
    models, (stage, other) = keeper.models, rng.sample(HELD, 2)
    rule = ApprovalRule(stage=stage, required=rng.choice((0, 1)))
    await keeper.ask("model", SetApprovalRule(rule=rule))
    for name, version in sorted(models.versions.items()):
        approver = next(key for key in KEYS if key != version.terms.author)
        approval = Approval(stage=rng.choice((stage, stage, other)), key_id=approver)
        await keeper.ask("model", ApproveVersion(model_id=name, approval=approval))
        series = version.terms.series
        before = models.holders.get((series, stage))
        promoted = await keeper.ask("model", Promote(model_id=name, stage=stage, expected=before))
        if promoted and before not in (None, name) and rng.random() < 0.6:
            if rng.random() < 0.6:
                await keeper.ask("model", set_quarantine(before, True))
            back = RollBack(series=series, stage=stage, expected=name)
            await keeper.ask("model", back)


MONTH_MS: Final = 31 * DAY_MS
SETTLE_S: Final = 1
KINDS_OF_FILES: Final = ("files", "uploads", "reports", "prepared")
UPLOAD: Final = re.compile(r"^t/[^/]+/uploads/[^/]+/")  # of an object's key, before the part's id
IDLE_REQUESTS: Final = (  # requests that change nothing
    (DATASET.name, DeleteFile(file_id="file-none")),
    (MODEL.name, SetGatePolicy(base_id="none", policy=None)),
)
Act = Callable[[], Coroutine[Any, Any, object]]


@dataclass
class ArtifactsRun:
    """The result of a run, with the independent books of it."""

    plan: ArtifactsPlan
    log: SimLog
    cluster: Cluster
    files: FileBooks
    models: ModelBooks
    jobs: SimJobs
    trace: list[str]
    finished: bool = False


class ArtifactsSim:
    def __init__(self, run: ArtifactsRun, size: ArtifactsSize) -> None:
        self.run, self.size = run, size
        self.log, self.plan, self.cluster = run.log, run.plan, run.cluster
        self.rng = self.log.chance("acts")
        self.keepers = [
            TenantClient(self.log, name, self.cluster.storage, run.files, run.models)
            for name in names(size)
        ]
        self.log.readers.append(self._enter)
        self.cluster.actions["all asleep"] = self._sleep

    def _enter(self, decision: Accepted) -> None:
        """Keep the books, decision by decision."""
        _, command = self.log.command_of(decision)
        header, events = decision.header, decision.events
        if decision.stream == DATASET.name:
            self.run.files.enter(header.key, command, events, header.at)
        else:
            self.run.models.enter(header.partition, header.key, command, events, header.at)

    async def live(self) -> bool:
        """Play the plan. True when nothing is under way any more."""
        log, run = self.log, self.run
        living = [
            *(asyncio.create_task(log.follow(stream)) for stream in (DATASET, MODEL)),
            *(asyncio.create_task(log.listen(stream, run.jobs.hear)) for stream in (JOB, ACCOUNT)),
        ]
        self.cluster.start()
        chaos = asyncio.create_task(self.cluster.chaos(self.plan.faults))
        await self.keepers[0].announce(AddBase(base=BASE))
        acts = [asyncio.create_task(self._at(second, act)) for second, act in self._acts()]
        await asyncio.sleep(self.size.faulty_s)
        await chaos
        self.cluster.heal()
        finished = await self._ended(acts)
        for _ in range(self.plan.months):
            self.log.broker.tally.add("month passed")
            self.log.broker.clock.epoch_ms += MONTH_MS
            finished = finished and await self._ended(acts)
        await asyncio.gather(*map(self._tidy, self.keepers))
        finished = finished and await self._ended(acts)
        self.cluster.end()
        for task in (*living, *acts):
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.cluster.died.append(repr(task.exception()))
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        return finished

    def _acts(self) -> list[tuple[float, Act]]:
        """Draw the actions of people, jobs and operators, each with its second of the run."""
        rng, plan, until_s = self.rng, self.plan, self.size.faulty_s - 1
        acts: list[tuple[float, Act]] = []
        for number in range(plan.files):
            keeper = rng.choice(self.keepers)
            acts.append((rng.uniform(0, until_s / 3), partial(keeper.send_file, number)))
        for number in range(plan.jobs):
            keeper = rng.choice(self.keepers)
            train = partial(self.run.jobs.run, keeper, number)
            acts.append((rng.uniform(until_s / 4, until_s), train))
        kinds = rng.choices([*WEIGHTS], [*WEIGHTS.values()], k=plan.requests)
        for number, kind in enumerate((*kinds, *("drift",) * plan.drifts)):
            if kind == "drift":
                self.log.broker.tally.add("files changed")
            keeper, chance = rng.choice(self.keepers), self.log.chance(f"request {number}")
            act = partial(keeper.request, kind, chance)
            acts.append((rng.uniform(until_s / 2, until_s * 2.5), act))
        acts += (
            (until_s * 2.2, partial(self.run.jobs.judge_again, keeper)) for keeper in self.keepers
        )
        for keeper in self.keepers:
            chance = self.log.chance(f"releases of {keeper.name}")
            acts.append((until_s * 2.3, partial(release, keeper, chance)))
        if plan.erasure:
            acts.append((rng.uniform(until_s / 2, until_s), partial(self._erase, self.keepers[-1])))
        return acts

    async def _erase(self, keeper: TenantClient) -> None:
        """Models and files of a tenant go once its jobs have ended, whatever else is on its way."""
        self.log.broker.tally.add("tenant erased")
        await self.run.jobs.close(keeper.name)
        await keeper.ask(MODEL.name, EraseModels(), keeper.operator)
        await keeper.ask(DATASET.name, EraseFiles(), keeper.operator)

    async def _tidy(self, keeper: TenantClient) -> None:
        """Have erased what an inventory finds that was made before the last files were registered.

        One object is of an upload whose process was killed before it could register it.
        """
        storage, topics = self.cluster.storage, self.log.broker.memory.topics.values()
        storage.bodies[f"t/{keeper.name}/files/unregistered"] = b"{}"
        log = b"".join(
            record.value for parts in topics for part in parts for record in part.records
        )
        needed = self.run.files.tenants[keeper.name].needed_blobs()
        roots = tuple(f"t/{keeper.name}/{kind}/" for kind in KINDS_OF_FILES)
        blobs = tuple(
            key
            for key in sorted(storage.bodies)
            # parts of uploads are named by their ids
            if key.startswith(roots) and (key in needed or UPLOAD.sub("", key).encode() not in log)
        )
        command = EraseUnnamed(blobs=blobs, before=self.log.broker.clock.true_ms() + 1)
        await keeper.ask(DATASET.name, command, keeper.inventory)

    async def _sleep(self, rng: Random) -> None:
        """Hours in which no process notices any time: uploads expire meanwhile."""
        broker, asleep_ms = self.log.broker, rng.randint(HOUR_MS // 6, 3 * HOUR_MS)
        broker.tally.add("all asleep")
        broker.clock.epoch_ms += asleep_ms

    async def _at(self, second: float, act: Act) -> None:
        await asyncio.sleep(second)
        await act()

    async def _ended(self, acts: list[asyncio.Task[None]]) -> bool:
        """Wait until nothing is under way. What each asks for has owners notice the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.size.patience_s
        while loop.time() < deadline:
            await asyncio.gather(
                *(keeper.ask(*question) for keeper in self.keepers for question in IDLE_REQUESTS)
            )
            quiet = self._quiet(acts)
            await asyncio.sleep(SETTLE_S)
            if quiet and self._quiet(acts):
                return True
        return False

    def _quiet(self, acts: list[asyncio.Task[None]]) -> bool:
        databases = self.cluster.databases.values()
        return (
            all(act.done() for act in acts)
            and self.log.all_decided()
            and not any(database.has_work() for database in databases)
        )


def names(size: ArtifactsSize) -> tuple[str, ...]:
    return tuple(f"tenant-{number}" for number in range(size.tenants))


def active(size: ArtifactsSize) -> dict[str, frozenset[int]]:
    """Partitions in use, by topic."""
    by_tenant = frozenset(partition_of(name.encode()) for name in names(size))
    return {
        topic.name: by_tenant
        for stream in (DATASET, MODEL)
        for topic in (stream.commands, stream.journal)
    }


def play(plan: ArtifactsPlan, size: ArtifactsSize, trace: bool = False) -> ArtifactsRun:
    """Run a plan on virtual time. The same plan gives the same run, to the byte."""
    rng = Random(f"{plan.seed}/artifacts broker")

    async def main() -> ArtifactsRun:
        broker = Broker(rng, plan.faults, FaultTally(), active(size))
        lines: list[str] = []
        if trace:
            broker.trace_into(lines)
        await broker.memory.create(TOPICS, PARTITIONS)
        log = SimLog(plan.seed, broker, (DATASET, MODEL), RETRY_MS)
        cluster = Cluster(
            broker,
            plan.seed,
            STREAMS,
            lambda process: hosts(log, plan, size, cluster, process),
        )
        files = FileBooks(lambda sha256: not is_rotten(log, plan, sha256))
        models = ModelBooks(lambda job_id: not is_rotten(log, plan, job_id))
        run = ArtifactsRun(plan, log, cluster, files, models, SimJobs(log, plan), lines)
        run.finished = await ArtifactsSim(run, size).live()
        return run

    return run_virtual(main())
