"""Foul months through production's ledger in PostgreSQL, against a second biller."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest_asyncio
from msgspec import structs

from bench.closings import close_months
from schemas.account import PeriodEnded
from schemas.billing import AnswerPrices, Statement
from schemas.envelope import Header, Message
from schemas.streams import PARTITIONS
from schemas.units import HOUR_MS
from services.billing.adapters.ledger import PostgresBooks, read_invoices
from services.billing.adapters.prices import read_books
from services.billing.app import LEDGER, STORAGE, TENANTS
from services.billing.project import project_storage, project_tenants
from tests.foul_months import FoulMonths, expect_bills
from tunery.billing.invoice import close_invoice
from tunery.billing.lines import LedgerRow, PriceMissing
from tunery.billing.periods import BillShare, Cut, period
from tunery.billing.storage import FOREVER, GB
from tunery.local.stack import Stack
from tunery.platform.store.postgres import PostgresStore, open_store, pool_of
from tunery.runtime.journal.reader import START
from tunery.runtime.store.abstract import CommitResult, RowBatch, Store
from tunery.runtime.verbs import Change, Upsert

SEEDS = 15
ANSWER_PRICES = AnswerPrices(
    prompt_micro_per_million=200_000,
    cached_micro_per_million=0,
    completion_micro_per_million=600_000,
)


@pytest_asyncio.fixture
async def store(servers: Stack) -> AsyncIterator[Store]:
    """Billing's tables in a database that no other test uses."""
    database = f"years_{uuid4().hex[:12]}"
    admin = await asyncpg.connect(servers.postgres_dsn)
    await admin.execute(f'CREATE DATABASE "{database}"')
    store = await open_store(f"{servers.postgres_dsn.rpartition('/')[0]}/{database}", "billing", 4)
    for projection in (LEDGER, STORAGE, TENANTS):
        await store.ensure(projection.described())
    yield store
    await store.close()
    await admin.execute(f'DROP DATABASE "{database}" WITH (FORCE)')
    await admin.close()


class Tables:
    """Writes rows as billing's projectors do."""

    def __init__(self, store: Store) -> None:
        self.store, self.read = store, Counter[tuple[str, tuple[str, int]]]()

    async def ledger(self, tenant: str, row: LedgerRow) -> None:
        values = msgspec.structs.asdict(row)
        position = {
            name: values.pop(name)
            for name in ("journal_partition", "incarnation", "journal_offset", "hour_utc")
        }
        kind = {name: values.pop(name) for name in ("kind", "cause")}
        key = {**position, **kind, "pool": tenant, "lease": 1}
        values |= {"tenant": tenant, "attempt": 1, "at": 0}
        await self._commit(
            LEDGER.name, LEDGER.version, ("pool", 0), (Upsert("ledger", key, values),)
        )

    async def project(self, header: Header, event: Message) -> None:
        stream = header.stream, 0
        if changes := project_tenants(header, event):
            await self._commit(TENANTS.name, TENANTS.version, stream, changes)
        if changes := project_storage(header, event):
            await self._commit(STORAGE.name, STORAGE.version, stream, changes)

    async def _commit(
        self, projection: str, version: int, partition: tuple[str, int], changes: tuple[Change, ...]
    ) -> None:
        expected = self.read[projection, partition]
        self.read[projection, partition] += 1
        position = msgspec.structs.replace(START, offset=expected + 1)
        batch = RowBatch(projection, version, partition, expected, position, changes)
        assert await self.store.commit(batch) is CommitResult.DONE


async def test_review2_bills_of_the_real_ledger_are_those_of_a_second_biller(store: Store) -> None:
    tables, connection = Tables(store), pool_of(store)
    done = Counter[str]()
    for seed in range(SEEDS):
        name = f"year-{seed}"

        async def write(row: LedgerRow, tenant: str = name) -> None:
            await tables.ledger(tenant, row)

        months = FoulMonths(seed, PostgresBooks(store, connection), write, tables.project)
        await months.play()
        expect_bills(months)
        done += months.done
        for statement in months.closed:  # and each is shown as it was closed
            shown = await read_invoices(connection, name, period(statement.period))
            bills: list[Any] = [close_invoice(invoice) for invoice in shown]
            totals = {bill.currency: bill.total_micro for bill in statement.bills}
            assert {bill.currency: bill.total_micro for bill in bills if totals} == totals
    assert (
        min(done[what] for what in ("plan", "plan refused", "terms", "terms refused", "late")) > 9
    )


async def test_review2_e3_bills_made_together_are_those_made_alone(store: Store) -> None:
    """Late rows, months, books, files and answers of many tenants, all read at one moment."""
    random, connection = Random(5), pool_of(store)
    july, august = period("2026-07"), period("2026-08")
    names = [f"t{number:02}" for number in range(30)]
    books = {
        book.version: structs.replace(
            book, storage_micro_per_gb_month=20_000, answers=ANSWER_PRICES
        )
        for book in (*read_books().values(), structs.replace(read_books()["2026-11"], version="b"))
    }
    cuts = [
        Cut(offsets=(at,) * PARTITIONS, incarnations=(0,) * PARTITIONS) for at in (0, 40, 60, 99)
    ]
    for book in books.values():
        await connection.execute(
            "INSERT INTO prices VALUES ($1, $2, '')", book.version, msgspec.to_builtins(book)
        )
    for name in names:
        for offset in range(random.randrange(20)):
            await connection.execute(
                "INSERT INTO ledger VALUES (0, 0, $1, $2, 1, $3, 'usage', '', $2, $4, 1, 'train',"
                " 'standard', $5, $6, $6, 0)",
                *(5 * offset, name, random.randrange(july.first_hour, august.end_hour)),
                *(f"ftjob-{random.randrange(4)}", random.choice(("2026-11", "b"))),
                random.randrange(10**8),
            )
        hour = random.randrange(july.first_hour, august.end_hour)
        await connection.execute(
            "INSERT INTO answers VALUES ($1, $2, 0, 0, 1, 2000000, 7, 500000, '')", name, hour
        )
        await connection.execute(
            "INSERT INTO storage VALUES ($1, 'f', $2, $3, $4)",
            *(name, GB * random.randrange(9), hour * HOUR_MS, FOREVER),
        )
        await connection.execute("INSERT INTO held_books VALUES ($1, 0, 'b')", name)
    closings = [
        (
            name,
            PeriodEnded(period=month.name, soft_gpu_ms=1, before=None, price_version=version),
            BillShare(month=month, late=cuts[first], cut=cuts[first + random.choice((1, 2))]),
        )
        for name in names
        for month, first in (((july, 0), (august, 1))[random.randrange(2)],)
        for version in (random.choice(("2026-11", "b", "missing")),)
    ]
    alone = [
        (
            await asyncio.gather(
                PostgresBooks(store, connection).statement(*closing), return_exceptions=True
            )
        )[0]
        for closing in closings
    ]
    books_together = PostgresBooks(store, connection)
    together = await asyncio.gather(
        *(books_together.statement(*closing) for closing in closings), return_exceptions=True
    )
    assert list(map(repr, together)) == list(map(repr, alone))
    assert sum(isinstance(statement, Statement) for statement in together) > 10
    assert sum(isinstance(statement, PriceMissing) for statement in together) > 2
    assert any(statement.bills for statement in together if isinstance(statement, Statement))


async def test_review2_e3_a_closing_costs_the_database_less_than_one_statement(
    store: Store,
) -> None:
    """A closing sent 11.6 statements: 100,000 tenants waited for hours."""
    assert isinstance(store, PostgresStore)
    figures = await close_months(store, 300)
    assert figures["statements_per_closing"] <= 1
