"""From leases to the invoice: real pool decider, real ledger in PostgreSQL."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest
import pytest_asyncio
from msgspec import structs

from schemas.access import schema_of
from schemas.account import (
    AdjustInvoice,
    CreateTenant,
    ImportPrices,
    Limits,
    PeriodEnded,
    PlanTerms,
)
from schemas.billing import (
    AnswerPrices,
    BillingTerms,
    Discount,
    InvoiceAdjustment,
    OveragePrice,
    Rate,
    Statement,
    Tier,
)
from schemas.envelope import Message
from schemas.node import NodeSeen
from schemas.pool import ObserveNodes, PlacementClosed, ReportExit, ReportStarted, Token
from schemas.streams import PARTITIONS
from schemas.topics import ACCOUNT, POOL, STREAMS, TOPICS
from schemas.training import AttemptStart
from schemas.units import DAY_MS, HOUR_MS
from services.billing.adapters.ledger import NoTenant, PostgresBooks, read_invoices, read_rows
from services.billing.adapters.prices import PriceImport, read_books, read_imports
from services.billing.adapters.usage import read_usage
from services.billing.app import ACCOUNTS, LEDGER, STORAGE, TENANTS
from services.billing.effect import close
from services.gateway.views.host import VIEWS_PROJECTION as VIEWS
from services.scheduler.app import POOLS
from simulator.control_plane.samples import describe, node, request
from tests.hosts import running
from tunery.billing.invoice import Invoice
from tunery.billing.lines import bill_lines, select_usage
from tunery.billing.periods import CLOSE_AFTER_MS, BillShare, Cut, Period, period, period_of
from tunery.billing.storage import FOREVER, GB
from tunery.billing.volume import volume_lines
from tunery.cli.reconcile.comparison import reconcile
from tunery.local.stack import Stack
from tunery.platform.ports import Runtime
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.platform.settings import RuntimeSettings
from tunery.platform.store.postgres import open_store, pool_of
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projection, Projector
from tunery.runtime.journal.reader import START, JournalReader
from tunery.runtime.store.abstract import Store

PATIENCE_S = 180
TENANT = "acme"
ANSWER_PRICES = AnswerPrices(
    prompt_micro_per_million=200_000,
    cached_micro_per_million=0,
    completion_micro_per_million=600_000,
)


class ShiftedClock(SystemClock):
    """The system clock, `ahead_ms` milliseconds in the future."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@dataclass
class World:
    dsn: str
    runtime: Runtime
    clock: "ShiftedClock"

    async def pool(self, body: Message) -> None:
        await self.runtime.sender.send("pool", "default", "", body)

    async def await_closed_placements(self, count: int) -> list[PlacementClosed]:
        reader = JournalReader(self.runtime.log, POOL, dict.fromkeys(range(PARTITIONS), START))
        await reader.open()
        closings: list[PlacementClosed] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(closings) < count:
                for batch in (await reader.read(50)).values():
                    for entry in batch.accepted:
                        closings += [e for e in entry.events if isinstance(e, PlacementClosed)]
        await reader.close()
        return closings

    async def sums(self) -> tuple[int, int, int]:
        """Rows, time billed and time credited."""
        query = """SELECT count(*), coalesce(sum(gpu_ms) FILTER (WHERE kind = 'usage'), 0)::bigint,
                   coalesce(-sum(gpu_ms) FILTER (WHERE kind = 'credit'), 0)::bigint FROM ledger"""
        row = await pool_of(self.runtime.store).fetchrow(query)
        assert row is not None
        return int(row[0]), int(row[1]), int(row[2])

    async def account(self, body: Message) -> None:
        await self.runtime.sender.send(ACCOUNT, TENANT, TENANT, body)

    async def show_invoice(self, name: str, tenant: str = TENANT) -> Invoice:
        """The invoice of a month as the ledger has it."""
        connection = pool_of(self.runtime.store)
        (bill,) = await read_invoices(connection, tenant, period(name))
        return bill


def projectors(world: World, *projections: Projection) -> list[Projector]:
    return [Projector(world.runtime, projection) for projection in projections]


@pytest_asyncio.fixture
async def world(servers: Stack, tmp_path: Path) -> AsyncIterator[World]:
    """Billing's ports over a database that no other test uses: its schema has a fixed name."""
    database = f"ledger_{uuid4().hex[:12]}"
    admin = await asyncpg.connect(servers.postgres_dsn)
    await admin.execute(f'CREATE DATABASE "{database}"')
    dsn = f"{servers.postgres_dsn.rpartition('/')[0]}/{database}"
    store, clock = await open_store(dsn, "billing", 8), ShiftedClock()
    log = MemoryLog(clock)
    await log.create(TOPICS, PARTITIONS)
    settings = RuntimeSettings(
        kafka_bootstrap="memory",
        postgres_dsn=dsn,
        s3_endpoint="memory",
        s3_access_key="memory",
        s3_secret_key="in-memory",
        data_dir=tmp_path,
    )
    runtime = Runtime(
        name="billing",
        settings=settings,
        log=log,
        store=store,
        blobs=MemoryBlobs(),
        seal=Sealer(MemoryKeyStore()),
        sender=Sender(log, STREAMS),
        clock=clock,
    )
    yield World(dsn, runtime, clock)
    await store.close()
    await admin.execute(f'DROP DATABASE "{database}" WITH (FORCE)')
    await admin.close()


ATTEMPT_START = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=10)


async def use_gpu_time(world: World) -> None:
    """Use GPU time in two attempts: one loses its node, the other fails with a user error."""
    await world.pool(node("a", "a-1", 2))
    await world.pool(describe("ftjob-1"))
    await world.pool(request(tenant=TENANT, job_id="ftjob-1", attempt=1, slots=2))
    token = Token(pool="default", lease=1)
    started = ReportStarted(
        token=token,
        incarnation="a-1",
        start=ATTEMPT_START,
    )
    await world.pool(started)
    await asyncio.sleep(0.1)
    seen = world.runtime.clock.now_ms()
    silent = NodeSeen(node_id="a", incarnation="a-1", last_seen=seen, silent=True)
    await world.pool(ObserveNodes(seen=(silent,)))
    await world.await_closed_placements(1)
    spot = node("b", "b-1", 2)
    described = structs.replace(spot.node, accelerator="h1", spot=True)
    await world.pool(structs.replace(spot, node=described))
    await world.pool(request(tenant=TENANT, job_id="ftjob-1", attempt=2, slots=2))
    token = Token(pool="default", lease=2)
    await world.pool(
        ReportStarted(
            token=token,
            incarnation="b-1",
            start=ATTEMPT_START,
        )
    )
    await asyncio.sleep(0.1)
    await world.pool(
        ReportExit(
            token=token,
            incarnation="b-1",
            outcome="failed",
            elapsed_ms=90,
            cause="user",
        )
    )


def rated_books() -> tuple[ImportPrices, ...]:
    """Our books, with another price on spot nodes of one accelerator."""
    rate = Rate(lane="standard", gpu_hour_micro=900_000, device="h1", spot=True)
    return tuple(
        structs.replace(command, book=structs.replace(command.book, rates=(rate,)))
        for command in read_imports()
    )


async def closed(store: Store) -> list[dict[str, Any]]:
    """Months that are closed."""
    return [dict(row) for row in await store.rows("statements") if row["statement"] is not None]


async def await_billed(world: World, billable: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await world.sums())[1] != billable:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.02)


async def test_ledger_and_invoice_equal_the_usage_decided_by_the_pool(
    world: World,
) -> None:
    limits = Limits(soft_gpu_ms=1, hard_gpu_ms=10**9, concurrency=1)
    hosts = (
        AggregateHost(replace(world.runtime, name="scheduler"), POOLS),
        AggregateHost(world.runtime, ACCOUNTS),
        Projector(world.runtime, LEDGER),
        Projector(world.runtime, LEDGER),  # a second process of billing
        (tenants := Projector(world.runtime, TENANTS)),
        Projector(world.runtime, STORAGE),
        PriceImport(world.runtime, tenants, rated_books()),
    )
    async with running(*hosts):
        await world.runtime.sender.send(
            ACCOUNT,
            TENANT,
            TENANT,
            CreateTenant(
                name=world.runtime.seal.seal(TENANT, "Acme", "name"),
                terms=PlanTerms(lane="premium", limits=limits, price_version="2026-11"),
            ),
        )
        await use_gpu_time(world)
        ends = await world.await_closed_placements(2)
        billable = sum(closed.end.billable_gpu_ms for closed in ends)
        lost = sum(closed.end.lost_gpu_ms for closed in ends)
        assert billable > 0
        assert lost > 0
        await await_billed(world, billable)
        rows, _, credited = await world.sums()
        assert credited == lost
    async with running(Projector(world.runtime, LEDGER)):
        assert await world.sums() == (rows, billable, lost)
    await check_invoice(world, billable, lost)
    await check_reconciliation(world)


async def check_reconciliation(world: World) -> None:
    """Everything agrees; then a row that was changed is found, with its event."""
    gateway = await open_store(world.dsn, schema_of("gateway"), 4)
    async with running(Projector(replace(world.runtime, name="gateway", store=gateway), VIEWS)):
        pass  # it is ready when everything is read
    await gateway.close()
    equal = await reconcile(world.runtime.log, world.dsn)
    assert equal.equal, equal
    asked = {"log = billing.answers"}  # no use of inference
    assert {part.name for part in equal.parts if not part.count} == asked
    row = await pool_of(world.runtime.store).fetchrow(
        "UPDATE ledger SET gpu_ms = gpu_ms - 5 WHERE kind = 'credit'"
        " RETURNING journal_partition, journal_offset, gpu_ms"
    )
    assert row is not None
    ledger, costs, _, facts, jobs = (await reconcile(world.runtime.log, world.dsn)).parts
    event = f"tunery.pool.journal.v1/{row['journal_partition']}@{row['journal_offset']}"
    different = f"gpu_ms is {row['gpu_ms'] + 5} in the log, {row['gpu_ms']} in billing.ledger"
    assert ledger.difference == f"{event}: {different}"
    assert (costs.difference, facts.difference) == (None, None)
    assert jobs.difference is not None
    assert "ftjob-1 of acme costs" in jobs.difference


async def check_invoice(world: World, billable: int, lost: int) -> None:
    month = await pool_of(world.runtime.store).fetchval(
        "SELECT to_char(to_timestamp(max(hour_utc)::bigint * 3600) AT TIME ZONE 'UTC', 'YYYY-MM') "
        "FROM ledger"
    )
    bill = await world.show_invoice(str(month))
    assert bill.gpu_ms == billable - lost
    assert bill.credited_gpu_ms == lost
    assert bill.amount_micro == sum(line.amount_micro for line in bill.lines)
    assert bill.overage_gpu_ms == billable - lost - 1
    assert sum(line.gpu_ms for line in bill.lines) == billable - lost
    (credit,) = [line for line in bill.lines if line.kind == "credit"]
    assert "machine lost" in credit.description
    on_spot = {line.gpu_hour_micro for line in bill.lines if line.spot}
    assert (on_spot, credit.gpu_hour_micro) == ({900_000}, 2_400_000)
    assert {line.description for line in bill.lines if line.spot} == {"training on h1, spot"}


async def test_a_closed_invoice_never_changes_and_late_usage_is_on_the_next(world: World) -> None:
    store = world.runtime.store
    hosts = (
        AggregateHost(replace(world.runtime, name="scheduler"), POOLS),
        AggregateHost(world.runtime, ACCOUNTS),
        Projector(world.runtime, LEDGER),
        (tenants := Projector(world.runtime, TENANTS)),
        Projector(world.runtime, STORAGE),
        PriceImport(world.runtime, tenants, read_imports()),
        EffectHost(
            world.runtime, (close(world.runtime.log, PostgresBooks(store, pool_of(store))),)
        ),
    )
    async with running(*hosts):
        await world.account(
            CreateTenant(
                name=world.runtime.seal.seal(TENANT, "Acme", "name"),
                terms=PlanTerms(
                    lane="premium",
                    limits=Limits(soft_gpu_ms=1, hard_gpu_ms=10**9, concurrency=1),
                    price_version="2026-11",
                ),
            )
        )
        credit = AdjustInvoice(
            adjustment=InvoiceAdjustment(
                reference="T-1", amount_micro=-7, currency="EUR", reason="goodwill"
            )
        )
        await world.account(credit)
        await use_gpu_time(world)
        ends = await world.await_closed_placements(2)
        net = sum(closed.end.billable_gpu_ms - closed.end.lost_gpu_ms for closed in ends)
        month = period_of(world.clock.now_ms())
        world.clock.ahead_ms = month.end_ms + CLOSE_AFTER_MS - world.clock.now_ms()
        later = msgspec.structs.replace(credit.adjustment, reference="T-2")
        # any command makes the owner read the clock
        await world.account(AdjustInvoice(adjustment=later))
        async with asyncio.timeout(PATIENCE_S):
            while not (statements := await closed(store)):  # noqa: ASYNC110  # another task writes it
                await asyncio.sleep(0.02)
    assert statements[0]["statement"]["gpu_ms"] == net
    bill = await world.show_invoice(month.name)
    assert (bill.status, bill.gpu_ms) == ("closed", net)
    assert [adjustment.reference for adjustment in bill.adjustments] == ["T-1"]
    lines = sum(line.amount_micro for line in bill.lines)
    assert bill.amount_micro == lines - 7 == statements[0]["statement"]["amount_micro"]
    await pool_of(store).execute(
        "INSERT INTO ledger SELECT journal_partition, incarnation, journal_offset + 1000, pool,"
        " lease, hour_utc, kind, cause, tenant, job_id, attempt, role, lane, price_version, 9, 9,"
        " at FROM ledger WHERE kind = 'usage' LIMIT 1"
    )
    assert await world.show_invoice(month.name) == bill
    following = await world.show_invoice(month.following().name)
    assert (following.status, following.gpu_ms) == ("draft", 9)
    assert [adjustment.reference for adjustment in following.adjustments] == ["T-2"]
    assert following.lines[0].description.endswith(f"late for {month.name}")


async def test_an_unknown_tenant_has_no_invoice(world: World) -> None:
    async with running(*projectors(world, LEDGER, TENANTS, STORAGE)):
        with pytest.raises(NoTenant):
            await world.show_invoice("2026-11", "nobody")


async def test_a_credit_is_never_positive_in_the_ledger(world: World) -> None:
    async with running(Projector(world.runtime, LEDGER)):
        with pytest.raises(asyncpg.CheckViolationError):
            await pool_of(world.runtime.store).execute(
                "INSERT INTO ledger SELECT 0, 0, 0, 'p', 1, 1, 'credit', '', 't', 'j', 1, 'train',"
                " 'free', 'v', 0, 5, 0"
            )


async def test_the_database_selects_the_rows_of_a_bill_as_the_rule_says(world: World) -> None:
    """Random rows of four months, with late ones and a second incarnation of the journal."""
    random, months = Random(7), [period(f"2026-{number:02}") for number in range(8, 12)]
    connection = pool_of(world.runtime.store)
    async with running(Projector(world.runtime, LEDGER)):
        for offset in range(600):
            month = months[random.randrange(offset // 200, 4)]
            usage = random.random() < 0.8
            await connection.execute(
                "INSERT INTO ledger VALUES ($1, $2, $3, 'p', 1, $4, $5, '', $6, $7, 1, 'train',"
                " 'standard', '2026-11', $8, $8, 0)",
                *(random.randrange(PARTITIONS), 300 * (offset // 300), offset % 300),
                month.first_hour + random.randrange(20),
                "usage" if usage else "credit",
                TENANT,
                f"ftjob-{random.randrange(40)}",
                random.randrange(10**6) if usage else 0,
            )
    september = months[1]
    shares = [BillShare(month=september)]
    for late, cut in itertools.combinations(range(0, 300, 90), 2):
        for incarnations in ((), (0,) * PARTITIONS, (300,) * PARTITIONS):
            first = Cut(offsets=(late,) * PARTITIONS, incarnations=(0,) * len(incarnations))
            second = Cut(offsets=(cut,) * PARTITIONS, incarnations=incarnations)
            shares.append(BillShare(month=september, late=first, cut=second))
            shares.append(BillShare(month=september, late=first))
    rows = await read_rows(connection, TENANT, september)
    tiers = (Tier(above=1, unit_micro=2_000_000), Tier(above=5, unit_micro=1))
    rate = Rate(lane="standard", gpu_hour_micro=2_400_000, tiers=tiers)
    books = {
        version: structs.replace(book, rates=(rate,)) for version, book in read_books().items()
    }
    late_tiers = 0
    for share in shares:
        selected = select_usage(rows, share)
        expected = bill_lines(selected, books, 1, september)
        usage_read = await read_usage(connection, TENANT, share, books, {})
        assert bill_lines(usage_read, books, 1, september) == expected
        reduction = volume_lines(expected, selected, books)
        assert volume_lines(expected, usage_read, books) == reduction
        late_tiers += any(line.period < september.name for line in reduction)
    assert late_tiers > 0


def closed_month(month: Period, cut: Cut, terms: BillingTerms) -> Any:
    """The row of a month that is closed, with nothing on it."""
    statement = Statement(
        period=month.name,
        cut=cut.offsets,
        currency="EUR",
        soft_gpu_ms=0,
        gpu_ms=0,
        amount_micro=0,
        incarnations=cut.incarnations,
        terms=terms,
    )
    return msgspec.to_builtins(statement)


async def test_a_month_with_contract_terms_is_shown_as_it_was_closed(world: World) -> None:
    """Late use of two months, one of them discounted, and overage of jobs at two prices."""
    july, august, september = (period(f"2026-{number:02}") for number in (7, 8, 9))
    connection = pool_of(world.runtime.store)
    premium, standard = "premium", "standard"
    used = (
        (0, july.first_hour, "ftjob-1", standard),
        (1, august.first_hour, "ftjob-1", standard),
        (2, september.first_hour, "ftjob-2", premium),
        (3, september.first_hour + 1, "ftjob-3", standard),
        (4, september.first_hour + 2, "ftjob-2", premium),
    )
    half = Discount(reference="K-1", rate_ppm=500_000)
    terms = BillingTerms(overage=OveragePrice(surcharge_ppm=500_000))
    ended = PeriodEnded(
        period=september.name,
        soft_gpu_ms=2 * HOUR_MS,
        before=None,
        terms=terms,
        price_version="2026-11",
    )
    cut = Cut(offsets=(9,) * PARTITIONS, incarnations=(0,) * PARTITIONS)
    first = Cut(offsets=(0,) * PARTITIONS, incarnations=(0,) * PARTITIONS)
    async with running(*projectors(world, LEDGER, TENANTS, STORAGE)):
        await connection.execute(
            "INSERT INTO tenants VALUES ($1, 'standard', 1, 1, 1, '2026-11')", TENANT
        )
        book = msgspec.to_builtins(read_books()["2026-11"])
        await connection.execute("INSERT INTO prices VALUES ('2026-11', $1, '')", book)
        for offset, hour, job, lane in used:
            await connection.execute(
                "INSERT INTO ledger VALUES (0, 0, $1, 'p', 1, $2, 'usage', '', $3, $4, 1, 'train',"
                " $5, '2026-11', $6, $6, 0)",
                *(offset, hour, TENANT, job, lane, HOUR_MS),
            )
        for month, agreed in ((july, (half,)), (august, ())):
            closed = closed_month(month, first, BillingTerms(discounts=agreed))
            await connection.execute(
                "INSERT INTO statements VALUES ($1, $2, NULL, $3, 0)", TENANT, month.name, closed
            )
        books = PostgresBooks(world.runtime.store, connection)
        share = BillShare(month=september, late=first, cut=cut)
        statement = await books.statement(TENANT, ended, share)
        await connection.execute(
            "INSERT INTO statements VALUES ($1, $2, $3, $4, 0)",
            *(TENANT, september.name, msgspec.to_builtins(ended), msgspec.to_builtins(statement)),
        )
    shown = await world.show_invoice(september.name)
    assert [(line.kind, line.amount_micro) for line in shown.contract] == [
        ("discount", -1_200_000),
        ("overage", 1_600_000),
    ]


async def test_review2_m3_each_book_prices_its_part_of_a_month_in_postgresql(world: World) -> None:
    """The plan moves within the month; answers without a version are of the book of its end."""
    september = period("2026-09")
    first_ms, end_ms = september.first_hour * HOUR_MS, september.end_ms
    connection = pool_of(world.runtime.store)
    ended = PeriodEnded(period="2026-09", soft_gpu_ms=1, before=None, price_version="2026-11")
    cheap = structs.replace(
        read_books()["2026-11"], storage_micro_per_gb_month=20_000, answers=ANSWER_PRICES
    )
    dear = structs.replace(cheap, version="dear", storage_micro_per_gb_month=40_000)
    async with running(*projectors(world, LEDGER, TENANTS, STORAGE)):
        await connection.execute(
            "INSERT INTO tenants VALUES ($1, 'standard', 1, 1, 1, 'dear')", TENANT
        )
        for book, since in ((cheap, 0), (dear, first_ms + 15 * DAY_MS)):
            encoded = msgspec.to_builtins(book)
            await connection.execute(
                "INSERT INTO prices VALUES ($1, $2, '')", book.version, encoded
            )
            await connection.execute(
                "INSERT INTO held_books VALUES ($1, $2, $3)", TENANT, since, book.version
            )
        kept = (("a", first_ms - 5, FOREVER), ("b", 0, first_ms), ("c", end_ms, FOREVER))
        for name, since, until in kept:
            await connection.execute(
                "INSERT INTO storage VALUES ($1, $2, $3, $4, $5)", TENANT, name, GB, since, until
            )
        counted = ((september.first_hour - 1, ""), (september.end_hour - 1, ""))
        for offset, (hour, version) in enumerate((*counted, (september.first_hour, "dear"))):
            await connection.execute(
                "INSERT INTO answers VALUES ($1, $2, 0, 0, $3, 2000000, 1000000, 500000, $4)",
                *(TENANT, hour, offset, version),
            )
        cut = Cut(offsets=(9,) * PARTITIONS, incarnations=(0,) * PARTITIONS)
        share = BillShare(
            month=september, late=structs.replace(cut, offsets=(0,) * PARTITIONS), cut=cut
        )
        statement = await PostgresBooks(world.runtime.store, connection).statement(
            TENANT, ended, share
        )
    (bill,) = statement.bills
    stored = [(kept.byte_hours, kept.amount_micro) for kept in bill.storage_charges]
    assert stored == [(360 * GB, 10_000), (360 * GB, 20_000)]
    answered = [(use.price_version, use.amount_micro) for use in bill.answer_charges]
    assert answered == [("2026-11", 500_000), ("dear", 500_000)]
