"""Rebuilds all state of real servers from simulated journals, and compares it.

The expected figures come from the simulator's own accounts, which share no code with the deciders.
After each loss the rows in PostgreSQL must be equal to them, and no webhook may be sent again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import msgspec

from schemas.access import schema_of
from schemas.account import Limits
from schemas.job import CancelJob
from schemas.streams import PARTITIONS
from schemas.topics import STREAMS, TOPICS
from services.billing.adapters.ledger import read_rows
from services.billing.adapters.prices import read_books
from services.scheduler.app import POOLS
from simulator.control_plane.journals import SIZE, Life, live, load
from simulator.control_plane.samples import submit
from simulator.control_plane.sim_context import tenants
from simulator.control_plane.usage_books import LedgerLine
from tunery.billing.invoice import BilledMonth, make_invoices
from tunery.billing.lines import select_usage
from tunery.billing.periods import BillShare, period
from tunery.cli.backup.surroundings import storage_settings
from tunery.cli.demo.receiver import Receiver, receiving
from tunery.cli.replay import verify as verification
from tunery.local.paths import DataDir
from tunery.local.postgres import provide_database
from tunery.local.settings import Settings
from tunery.local.stack import AGENT, SERVICES, ServiceSpec, Stack, stack
from tunery.platform.bus.kafka import KafkaLog
from tunery.platform.connections import archived, patient
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.bus.sender import Sender
from tunery.runtime.tools.archived_log import ArchivedLog
from tunery.runtime.tools.verify import replay_stream

CONTROL_PLANE: Final = tuple(
    ServiceSpec(name, env={"TUNERY_NOTIFIER_ALLOW_PRIVATE": "1"})
    for name in SERVICES
    if name != AGENT
)
TENANT: Final = tenants(SIZE.tenants)[0]
POLL_S: Final = 0.5
BUILD_S_MAX: Final = 240.0
SETTLED_S_MAX: Final = (
    240.0  # owners publish state hashes only when idle; a busy machine is idle late
)
QUIET_S: Final = 3.0  # many times what a due delivery takes
JOBS: Final = f"""
SELECT tenant, id, outcome, billable_gpu_ms, lost_gpu_ms, released_gpu_ms
FROM {schema_of("gateway")}.jobs
"""  # noqa: S608  # our names
LIMITS: Final = "SELECT tenant, soft_gpu_ms, hard_gpu_ms, concurrency FROM billing.tenants"
Seconds = dict[str, float]


@dataclass
class Rebuilt:
    """Result of the rebuilds. `differences`: by stage; empty where all figures are equal."""

    jobs: int
    records: int
    seconds: Seconds = field(default_factory=dict)
    differences: dict[str, list[str]] = field(default_factory=dict)
    webhooks: int = 0

    @property
    def equal(self) -> bool:
        return not any(self.differences.values())


@dataclass(frozen=True)
class Story:
    life: Life
    running: Stack
    log: ArchivedLog
    receiver: Receiver
    rebuilt: Rebuilt

    @property
    def dsn(self) -> str:
        return self.running.postgres_dsn

    async def compare(self, stage: str, more_jobs: int, begun: float) -> None:
        """Wait for equal rows, then for the verdict of `replay --verify`.

        `more_jobs`: jobs added since the simulation; `begun`: when the services started.
        """
        deadline = time.monotonic() + BUILD_S_MAX
        while different := await self._differences(more_jobs):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(POLL_S)
        built = time.monotonic()
        verdict = await verification.until_settled(self.log, self.dsn, SETTLED_S_MAX)
        different += [
            f"{p.name}: {p.difference}" for p in verdict.parts if p.difference is not None
        ]
        if not (verdict.equal or different):
            different.append("replay --verify reports a difference")
        self.rebuilt.differences[stage] = different
        self.rebuilt.seconds[f"{stage}: built"] = built - begun
        self.rebuilt.seconds[f"{stage}: verify"] = time.monotonic() - built

    async def _differences(self, more_jobs: int) -> list[str]:
        try:
            connection = await asyncpg.connect(self.dsn, server_settings={"search_path": "billing"})
        except (OSError, asyncpg.PostgresError) as error:
            return [f"no database: {error!r}"]
        try:
            return await self._against_truth(connection, more_jobs)
        except asyncpg.UndefinedTableError as error:
            return [f"not built: {error}"]
        finally:
            await connection.close()

    async def _against_truth(self, connection: Any, more_jobs: int) -> list[str]:
        life, differences = self.life, list[str]()
        rows = Counter(tuple(row) for row in await connection.fetch(JOBS))
        if life.jobs - rows or sum((rows - life.jobs).values()) != more_jobs:
            differences.append(
                f"jobs: {_first(life.jobs - rows)} became {_first(rows - life.jobs)}"
            )
        limits = {
            row["tenant"]: msgspec.convert(dict(row), Limits)
            for row in await connection.fetch(LIMITS)
        }
        if limits != life.limits:
            differences.append(f"limits: {life.limits} became {limits}")
        lines = Counter(
            msgspec.convert(dict(row), LedgerLine)
            for row in await connection.fetch("SELECT * FROM billing.ledger")
        )
        if lines != life.lines:
            differences.append(
                f"slices: {_first(life.lines - lines)} became {_first(lines - life.lines)}"
            )
        pools = [
            p
            for partition in await replay_stream(self.log, POOLS)
            for p in partition.fold.state.values()
        ]
        leases = sum(pool.next_lease - 1 for pool in pools)
        if leases != life.leases or any(pool.leases for pool in pools):
            differences.append(f"leases: {life.leases} became {leases}")
        for (tenant, month), truth in life.invoices.items():
            slices = await read_rows(connection, tenant, period(month))
            billed = BilledMonth(
                tenant=tenant, month=period(month), soft_gpu_ms=None, currency="EUR"
            )
            usage = select_usage(slices, BillShare(month=billed.month))
            (bill,) = make_invoices(billed, usage, read_books())
            if (bill.gpu_ms, bill.amount_micro) != truth:
                differences.append(
                    f"invoice of {tenant}, {month}: {truth} became {bill.amount_micro}"
                )
        return differences

    async def one_more_webhook(self, job_id: str) -> None:
        """Submit a job that ends at once, and wait for its one webhook."""
        before = len(self.receiver.received)
        sender = Sender(self.log, STREAMS, keys=self.running.settings.keys.sender_keys("gateway"))
        unknown = submit(job_id, None, training_file=job_id)
        for body in (unknown, CancelJob(job_id=job_id)):
            await sender.send("job", TENANT, TENANT, body)
        deadline = time.monotonic() + BUILD_S_MAX
        while len(self.receiver.received) == before:
            assert time.monotonic() < deadline, f"no webhook came for {job_id}"
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(QUIET_S)

    def count_webhooks(self, stage: str, expected: int) -> None:
        self.rebuilt.webhooks = len(self.receiver.received)
        if self.rebuilt.webhooks != expected:
            text = f"webhooks: {self.rebuilt.webhooks} arrived, {expected} events were new"
            self.rebuilt.differences.setdefault(stage, []).append(text)

    async def lose_database(self) -> float:
        """Drop the whole database while all services are stopped; returns when they start again."""
        for name in self.running.services:
            await self.running.stop(name)
        await _drop(self.running.settings)
        begun = time.monotonic()
        await asyncio.gather(*(self.running.start(name) for name in self.running.services))
        return begun

    async def lose_valkey(self) -> None:
        """Kill Valkey, which keeps nothing on disk: the services find an empty one."""
        self.running.kill("valkey")
        await self.running.await_ready("valkey")
        headers = {"authorization": f"Bearer {self.running.admin_key}"}
        async with httpx.AsyncClient(base_url=self.running.api_url, trust_env=False) as client:
            (await client.get("/v1/tenants", headers=headers)).raise_for_status()


async def rebuild(
    jobs: int,
    folder: Path,
    say: Callable[[str], None],
    tell: "Callable[[Story, Callable[[str], None]], Awaitable[None]] | None" = None,
) -> Rebuilt:
    """Simulate, load the journals into servers in `folder`, then lose and rebuild each store.

    tell: does something else with the journals
    """
    folders = DataDir(folder)
    folders.create()
    with receiving() as receiver:
        seal = Sealer(DirectoryKeyStore(folders.keystore))
        urls = {name: seal.seal(name, receiver.url, "url") for name in tenants(SIZE.tenants)}
        begun = time.monotonic()
        life = await asyncio.to_thread(live, jobs, urls)
        rebuilt = Rebuilt(sum(life.jobs.values()), life.written)
        rebuilt.seconds["live"] = time.monotonic() - begun
        say(f"{rebuilt.jobs} jobs simulated, {rebuilt.records} records")
        async with stack(folder, environ={}) as running, _log(running) as log:
            begun = time.monotonic()
            await log.create(TOPICS, PARTITIONS)
            await load(life, log)
            rebuilt.seconds["load"] = time.monotonic() - begun
            say("records are in Kafka")
            story = Story(life, running, log, receiver, rebuilt)
            await (tell or _tell)(story, say)
    return rebuilt


async def _tell(story: Story, say: Callable[[str], None]) -> None:
    begun = time.monotonic()
    await story.running.add(*CONTROL_PLANE)
    await story.compare("from the log", 0, begun)
    story.count_webhooks("from the log", 0)
    say("built from the log")
    await story.one_more_webhook("ftjob-new-1")
    begun = await story.lose_database()
    await story.compare("without PostgreSQL", 1, begun)
    await asyncio.sleep(QUIET_S)
    story.count_webhooks("without PostgreSQL", 1)
    say("built again without PostgreSQL")
    begun = time.monotonic()
    await story.lose_valkey()
    await story.compare("without Valkey", 1, begun)
    await story.one_more_webhook("ftjob-new-2")
    story.count_webhooks("without Valkey", 2)
    say("the same without Valkey")


@asynccontextmanager
async def _log(running: Stack) -> AsyncIterator[ArchivedLog]:
    log = archived(
        KafkaLog(patient(running.kafka_as())), lambda: storage_settings(running.folders, {})
    )
    try:
        yield log
    finally:
        await log.close()


async def _drop(where: Settings) -> None:
    """Drop the database and create an empty one, as a start of PostgreSQL does."""
    assert where.postgres_port is not None
    server_dsn, _, name = where.postgres_dsn.rpartition("/")
    connection = await asyncpg.connect(f"{server_dsn}/postgres")
    try:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()
    await provide_database(where.postgres_port, where.keys)


def _first(counts: Mapping[Any, int]) -> str:
    return f"{sum(counts.values())} like {next(iter(counts), None)}"
