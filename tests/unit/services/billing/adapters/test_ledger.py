"""Reads before a bill is made. Against PostgreSQL it is tested in tests/integration."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import msgspec
import pytest
from msgspec.structs import asdict

from schemas.account import PeriodEnded
from schemas.billing import BillingTerms, Commitment, Discount, Statement
from schemas.units import HOUR_MS, PPM
from services.billing.adapters import ledger
from services.billing.adapters.ledger import (
    BatchedConnection,
    NoTenant,
    PostgresBooks,
    read_invoices,
    read_prices,
    read_rows,
)
from tests.unit.tunery.billing.test_invoice import BOOKS, DOLLARS, row
from tunery.billing.lines import PriceMissing
from tunery.billing.periods import BillShare, Cut, period

NOVEMBER = period("2026-11")
PLAN = {"soft_gpu_ms": 1, "price_version": "2026-11"}


class Tables:
    """A connection to tables with these rows, by query; every other query finds none."""

    def __init__(self, rows: Mapping[str, Sequence[Any]]) -> None:
        self.rows = rows

    async def fetch(self, query: str, *_: Any) -> Sequence[Any]:
        return self.rows.get(query, ())


async def test_a_tenant_without_a_plan_is_named() -> None:
    with pytest.raises(NoTenant, match="acme"):
        await read_invoices(Tables({}), "acme", NOVEMBER)


async def test_a_price_book_that_is_not_on_the_log_is_named() -> None:
    with pytest.raises(PriceMissing, match="no price book '2026-11' on the log"):
        await read_invoices(Tables({ledger.TENANT: [PLAN]}), "acme", NOVEMBER)


async def test_a_month_without_use_has_one_empty_invoice_in_the_currency_of_the_plan() -> None:
    book = BOOKS["2026-11"]
    tables = Tables(
        {
            ledger.TENANT: [PLAN],
            ledger.PRICES: [(msgspec.json.encode(book),)],
        }
    )
    assert await read_prices(tables) == {"2026-11": book}
    assert await read_rows(tables, "acme", NOVEMBER) == ()
    (invoice,) = await read_invoices(tables, "acme", NOVEMBER)
    assert (invoice.currency, invoice.lines, invoice.total_micro) == (book.currency, (), 0)


class MonthTables(Tables):
    """Tables of a tenant whose plan, at the moment of reading, is not what November's end had."""

    def __init__(self, plan_now: str, usage: Sequence[Any], **rows: Sequence[Any]) -> None:
        books = [(msgspec.json.encode(book),) for book in (BOOKS["2026-11"], DOLLARS)]
        super().__init__(
            {
                ledger.TENANT: [{"soft_gpu_ms": 1, "price_version": plan_now}],
                ledger.PRICES: books,
                ledger.MONTHS: rows.get("months", ()),
                ledger.TERMS: rows.get("terms", ()),
            }
        )
        self.usage = usage

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        return self.usage if "AS billed" in query else await super().fetch(query, *args)


def used(gpu_ms: int, hour: int = NOVEMBER.first_hour) -> dict[str, Any]:
    """Use of a job, or a credit of it, as the ledger sums it."""
    written = asdict(row(hour, gpu_ms))
    columns = ("journal_partition", "incarnation", "journal_offset")
    kind = {} if gpu_ms > 0 else {"kind": "credit", "used_gpu_ms": 0, "cause": "lost"}
    return {name: value for name, value in written.items() if name not in columns} | kind


def ended(terms: BillingTerms, name: str = "2026-11", before: Statement | None = None) -> Any:
    return PeriodEnded(
        period=name, soft_gpu_ms=10**12, before=before, terms=terms, price_version="2026-11"
    )


@pytest.mark.parametrize("plan_now", ["2026-11", "usd"])
@pytest.mark.parametrize("hours", [0, 10, 300])
async def test_review2_m1_a_minimum_is_billed_whatever_the_currency_is_at_the_closing(
    plan_now: str, hours: int
) -> None:
    least = Commitment(reference="K", amount_micro=500_000_000, currency="EUR")
    over = ended(BillingTerms(commitment=least))
    usage = [used(hours * HOUR_MS)] if hours else []
    tables = MonthTables(plan_now, usage)
    store: Any = None
    share = BillShare(month=NOVEMBER, late=Cut(offsets=(0,) * 8), cut=Cut(offsets=(9,) * 8))
    statement = await PostgresBooks(store, tables).statement("acme", over, share)
    due = max(500_000_000, hours * 2_400_000)
    assert [(bill.currency, bill.net_micro) for bill in statement.bills] == [("EUR", due)]
    assert (statement.currency, statement.amount_micro) == ("EUR", due)
    # the same while it is open, and once it is closed
    open_month = {"period": "2026-11", "ended": msgspec.json.encode(over), "statement": None}
    shut = {**open_month, "statement": msgspec.json.encode(statement)}
    for months, status in (([open_month], "open"), ([shut], "closed")):
        tables = MonthTables(plan_now, usage, months=months)
        (invoice,) = await read_invoices(tables, "acme", NOVEMBER)
        assert (invoice.currency, invoice.net_micro) == ("EUR", due), status


async def test_review2_m1_a_minimum_is_on_an_invoice_in_its_own_currency_beside_others() -> None:
    least = Commitment(reference="K", amount_micro=7_000_000, currency="USD")
    terms = [
        {"from_month": "2026-11", "terms": msgspec.json.encode(BillingTerms(commitment=least))}
    ]
    euros, dollars = await read_invoices(
        MonthTables("2026-11", [used(HOUR_MS)], terms=terms), "acme", NOVEMBER
    )
    assert (euros.currency, euros.net_micro) == ("EUR", 2_400_000)
    assert (dollars.currency, dollars.net_micro) == ("USD", 7_000_000)


HALF = (Discount(reference="K-17", rate_ppm=PPM // 2),)
FIFTH = (Discount(reference="K-18", rate_ppm=PPM // 5, lane="standard"),)


@pytest.mark.parametrize(
    ("then", "now", "paid"),
    [
        ((), HALF, 120_000_000),  # agreed in December, without a first month
        (HALF, (), 60_000_000),  # removed in December
        (HALF, FIFTH, 60_000_000),
        ((*HALF, *FIFTH), HALF, 36_000_000),
    ],
)
async def test_review2_m4_a_late_credit_has_the_discounts_of_its_closed_month(
    then: tuple[Discount, ...], now: tuple[Discount, ...], paid: int
) -> None:
    store: Any = None
    first = BillShare(month=NOVEMBER, late=Cut(offsets=(0,) * 8), cut=Cut(offsets=(9,) * 8))
    agreed = ended(BillingTerms(discounts=then))
    tables = MonthTables("2026-11", [used(50 * HOUR_MS)])
    november = await PostgresBooks(store, tables).statement("acme", agreed, first)
    assert [bill.net_micro for bill in november.bills] == [paid]
    closed = {"period": "2026-11", "ended": None, "statement": msgspec.json.encode(november)}
    changed = ended(BillingTerms(discounts=now), "2026-12", november)
    share = BillShare(month=period("2026-12"), late=first.cut, cut=Cut(offsets=(19,) * 8))
    tables = MonthTables("2026-11", [used(-50 * HOUR_MS)], months=[closed])
    december = await PostgresBooks(store, tables).statement("acme", changed, share)
    assert [bill.net_micro for bill in december.bills] == [-paid]


ADDED = "SELECT bytes FROM storage WHERE tenant = $1 AND until > $2 AND n = ANY($3)"


class StubConnection:
    """Answers each request of a query with its own first argument."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        self.queries.append(query)
        if "LATERAL" not in query:
            if args and args[0] == "broken":
                raise asyncpg.NumericValueOutOfRangeError("too much")
            return [{"bytes": argument} for argument in args[:1]]
        requests = msgspec.json.decode(args[0])
        if any(request["a1"] == "broken" for request in requests):
            raise asyncpg.NumericValueOutOfRangeError("too much")
        return [{"bytes": r["a1"], "request_number": r["number"]} for r in requests]


async def test_review2_e3_tenants_that_are_read_at_one_moment_share_a_query() -> None:
    stub = StubConnection()
    connection = BatchedConnection(stub)
    names = [f"t{number}" for number in range(100)]
    results = await asyncio.gather(*(connection.fetch(ADDED, name, 7, [1, 2]) for name in names))
    assert [[row["bytes"] for row in rows] for rows in results] == [[name] for name in names]
    (query,) = stub.queries
    assert "tenant = requests.a1 AND until > requests.a2 AND n = ANY(requests.a3)" in query
    assert "(number integer, a1 text, a2 bigint, a3 bigint[])" in query


async def test_review2_e3_one_tenant_whose_sums_are_too_large_fails_alone() -> None:
    connection = BatchedConnection(StubConnection())
    results = await asyncio.gather(
        *(connection.fetch(ADDED, name, 7, None) for name in ("a", "broken", "b")),
        return_exceptions=True,
    )
    assert results[0] == [{"bytes": "a"}]
    assert results[2] == [{"bytes": "b"}]
    assert isinstance(results[1], asyncpg.DataError)


async def test_a_query_alone_and_one_without_arguments_are_sent_as_they_are() -> None:
    stub = StubConnection()
    connection = BatchedConnection(stub)
    assert await connection.fetch(ADDED, "a", 7, ["x"]) == [{"bytes": "a"}]
    await asyncio.gather(*(connection.fetch("SELECT book FROM prices") for _ in range(9)))
    assert stub.queries == [ADDED, "SELECT book FROM prices"]
    with pytest.raises(asyncpg.DataError):
        await connection.fetch(ADDED, "broken", 7, [])
