"""Reads the ledger in PostgreSQL, and makes invoices of it."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any, Final, Protocol

import asyncpg
import msgspec

from schemas.account import PeriodEnded
from schemas.billing import BillingTerms, CreditNote, InvoiceAdjustment, PriceBook, Statement
from schemas.streams import PARTITIONS
from schemas.topics import POOL
from schemas.units import HOUR_MS, Ms
from services.billing.adapters.usage import QueryConnection, read_usage
from tunery.billing.answers import AnswersOfMonth
from tunery.billing.invoice import BilledMonth, Invoice, make_invoices, statement_of
from tunery.billing.lines import WHERE_BOOKS_ARE, LedgerRow, PriceMissing
from tunery.billing.periods import BillShare, Cut, Period, in_force, share_of
from tunery.billing.storage import FOREVER, BookPeriod, StorageUse, StoredObject, storage_of_month
from tunery.runtime.batching import Batcher
from tunery.runtime.store.abstract import SavedPosition, Store, StreamPartition

# Run the same query of many tenants as one.
#
# At a month's end 100,000 tenants need the same eight queries. The queries, and the code that makes
# a bill, are still written for one tenant.

QUERIES_TOGETHER_MAX: Final = 100  # tenants with 400,000 rows a year each take 17 seconds
ARGUMENT: Final = re.compile(r"\$(\d+)")
#: errors after which each tenant's query runs alone, because one tenant's cannot be computed or is
#: slow
ALONE_AFTER: Final = (asyncpg.DataError, TimeoutError)
TOGETHER: Final = """
SELECT answer.*, requests.number AS request_number
FROM json_to_recordset($1::text::json) AS requests (number integer{columns})
CROSS JOIN LATERAL ({query}) AS answer
"""


class BatchedConnection:
    """Implements `QueryConnection`. Rows of a batch are dictionaries with the query's columns.

    Each batch is its own statement, so queries that must see the same snapshot cannot use this.
    """

    def __init__(self, connection: QueryConnection) -> None:
        self._connection = connection
        self._batchers: dict[str, Batcher[Sequence[Any], Sequence[Any]]] = {}

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        types = [_type_of(argument) for argument in args]
        columns = "".join(f", a{position} {name}" for position, name in enumerate(types, 1))
        together = TOGETHER.format(columns=columns, query=ARGUMENT.sub(r"requests.a\1", query))
        if together not in self._batchers:
            run = partial(self._fetch_all, query, together)
            self._batchers[together] = Batcher(run, QUERIES_TOGETHER_MAX, ALONE_AFTER)
        return await self._batchers[together](args)

    async def _fetch_all(
        self, query: str, together: str, requests: Sequence[Sequence[Any]]
    ) -> Sequence[Sequence[Any]]:
        """Return the rows for each tenant's arguments, in the order of the query."""
        if all(args == requests[0] for args in requests):
            return [await self._connection.fetch(query, *requests[0])] * len(requests)
        arguments = [
            {"number": number, **{f"a{position}": value for position, value in enumerate(args, 1)}}
            for number, args in enumerate(requests)
        ]
        rows: list[list[Any]] = [[] for _ in requests]
        for record in await self._connection.fetch(
            together, msgspec.json.encode(arguments).decode()
        ):
            row = dict(record)
            rows[row.pop("request_number")].append(row)
        return rows


def _type_of(argument: Any) -> str:
    """Return the SQL type in which an argument is sent as JSON. Queries cast to other types."""
    match argument:
        case int():
            return "bigint"
        case [int(), *_]:
            return "bigint[]"
        case list():
            return "text[]"
        case _:
            return "text"


# names of the projections
LEDGER: Final = "ledger"
STORAGE: Final = "storage"
ROWS = """
SELECT kind, job_id, role, lane, price_version, hour_utc, used_gpu_ms, gpu_ms, cause,
    device, accelerator, spot, tokens,
    journal_partition, incarnation, journal_offset
FROM ledger WHERE tenant = $1 AND hour_utc < $2
ORDER BY hour_utc, job_id, journal_partition, incarnation, journal_offset, lease, kind, cause
"""
TENANT = "SELECT soft_gpu_ms, price_version FROM tenants WHERE tenant = $1"
PRICES = "SELECT book::text FROM prices"
TERMS = "SELECT from_month, terms::text FROM billing_terms WHERE tenant = $1"
MONTHS = """
SELECT period, ended::text, statement::text FROM statements WHERE tenant = $1 ORDER BY period
"""
NOTES = "SELECT note::text FROM credit_notes WHERE tenant = $1 AND period = $2 ORDER BY number"
KEPT = """
SELECT bytes, since, until FROM storage WHERE tenant = $1 AND until > $2 AND since < $3
"""
HELD_BOOKS = "SELECT since, price_version FROM held_books WHERE tenant = $1 AND since < $2"
# Counted before their book was kept: by that of the month's end, $4, as invoices said then.
ANSWERS = """
SELECT coalesce(nullif(price_version, ''), $4) AS price_version,
    sum(prompt_tokens)::bigint AS prompt_tokens, sum(cached_tokens)::bigint AS cached_tokens,
    sum(completion_tokens)::bigint AS completion_tokens
FROM answers WHERE tenant = $1 AND hour_utc >= $2 AND hour_utc < $3
GROUP BY 1 ORDER BY 1
"""
ADJUSTMENTS = """
SELECT reference, reason, currency, amount_micro
FROM adjustments WHERE tenant = $1 AND period = $2
"""


class NoTenant(Exception):
    """There is no such tenant."""


async def read_invoices(
    connection: QueryConnection, tenant: str, month: Period
) -> tuple[Invoice, ...]:
    """Return the invoices of one month, one for each currency.

    `connection` holds one snapshot, so all reads agree. Raises NoTenant, PriceMissing, Altered.
    """
    books = await read_prices(connection)
    plans = await connection.fetch(TENANT, tenant)
    if not plans:
        raise NoTenant(tenant)
    months = {row["period"]: row for row in await connection.fetch(MONTHS, tenant)}
    closed = _closed(months.values())
    ended = None
    if month.name in months and months[month.name]["ended"] is not None:
        ended = msgspec.json.decode(months[month.name]["ended"], type=PeriodEnded)
    terms = await _terms(connection, tenant, month)
    price_version = plans[0]["price_version"] if ended is None else ended.price_version
    billed = BilledMonth(
        tenant=tenant,
        month=month,
        soft_gpu_ms=plans[0]["soft_gpu_ms"] if ended is None else ended.soft_gpu_ms,
        currency=_currency(books, price_version),
        terms=terms if ended is None or ended.terms is None else ended.terms,
        adjustments=await _adjustments(connection, tenant, month),
        notes=await _notes(connection, tenant, month),
        ended=ended is not None,
        storage=await _storage(connection, tenant, month, FOREVER),
        answers=await _answers(connection, tenant, month, price_version),
        closed={name: entry for name, entry in closed.items() if name < month.name},
        statement=closed.get(month.name),
    )
    share = share_of(month, list(closed.values()))
    usage = await read_usage(connection, tenant, share, books, closed)
    return make_invoices(billed, usage, books)


class Positions(Protocol):
    """Part of a store that is needed to read how far a projection is."""

    async def positions(self, projection: str) -> Mapping[StreamPartition, SavedPosition]:
        """Return the saved position of each partition: how far its rows are written."""


async def read_reached(store: Positions) -> Cut:
    """Return the ledger's position in the pool's journal. Raises StoreUnavailable."""
    saved = await store.positions(LEDGER)
    positions = [saved[POOL.name, partition].position for partition in range(PARTITIONS)]
    return Cut(
        offsets=tuple(position.offset for position in positions),
        incarnations=tuple(position.acceptance.incarnation for position in positions),
    )


class PostgresBooks:
    """Implements the port `Books`."""

    def __init__(self, store: Store, connection: QueryConnection, seller: str = "") -> None:
        self._store, self._seller = store, seller
        self._connection = BatchedConnection(connection)
        self._statements = Batcher(self._make_statements, QUERIES_TOGETHER_MAX)

    async def reached(self) -> Cut:
        return await read_reached(self._store)

    async def stored(self) -> Mapping[tuple[str, int], int]:
        saved = await self._store.positions(STORAGE)
        return {partition: entry.position.offset for partition, entry in saved.items()}

    async def statement(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        """The bills of a closed month. Raises PriceMissing."""
        statement = await self._statements((tenant, ended, share))
        if isinstance(statement, BaseException):
            raise statement
        return statement

    async def _make_statements(
        self, closings: Sequence[tuple[str, PeriodEnded, BillShare]]
    ) -> Sequence[Statement | BaseException]:
        """Make bills side by side, so that each query runs once for all of them."""
        return await asyncio.gather(*starmap(self._make, closings), return_exceptions=True)

    async def _make(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        month = share.month
        books = await read_prices(self._connection)
        currency = _currency(books, ended.price_version)
        closed = _closed(await self._connection.fetch(MONTHS, tenant))
        billed = BilledMonth(
            tenant=tenant,
            month=month,
            soft_gpu_ms=ended.soft_gpu_ms,
            currency=currency,
            terms=ended.terms or BillingTerms(),
            seller=self._seller,
            adjustments=await _adjustments(self._connection, tenant, month),
            storage=await _storage(self._connection, tenant, month, month.end_ms),
            answers=await _answers(self._connection, tenant, month, ended.price_version),
            closed={name: entry for name, entry in closed.items() if name < month.name},
        )
        usage = await read_usage(self._connection, tenant, share, books, closed)
        invoices = make_invoices(billed, usage, books)
        return statement_of(ended, share, invoices, currency)


def _closed(months: Iterable[Mapping[str, Any]]) -> dict[str, Statement]:
    """The months that are closed, by name, the oldest first."""
    return {
        row["period"]: msgspec.json.decode(row["statement"], type=Statement)
        for row in months
        if row["statement"] is not None
    }


def _currency(books: Mapping[str, PriceBook], version: str) -> str:
    """The currency of a price book. Raises PriceMissing."""
    if version not in books:
        raise PriceMissing(f"no price book {version!r} on the log; {WHERE_BOOKS_ARE}")
    return books[version].currency


async def read_prices(connection: QueryConnection) -> Mapping[str, PriceBook]:
    """The price books on the log, by version."""
    rows = await connection.fetch(PRICES)
    books = (msgspec.json.decode(row[0], type=PriceBook) for row in rows)
    return {book.version: book for book in books}


async def read_rows(
    connection: QueryConnection, tenant: str, month: Period
) -> tuple[LedgerRow, ...]:
    """Ledger rows of the tenant up to the end of the month, in the order of the bill."""
    rows = await connection.fetch(ROWS, tenant, month.end_hour)
    return tuple(msgspec.convert(dict(row), LedgerRow) for row in rows)


async def _storage(
    connection: QueryConnection, tenant: str, month: Period, now: Ms
) -> tuple[StorageUse, ...]:
    rows = await connection.fetch(KEPT, tenant, month.first_hour * HOUR_MS, month.end_ms)
    held = await connection.fetch(HELD_BOOKS, tenant, month.end_ms)
    kept = (StoredObject(**row) for row in rows)
    return storage_of_month(kept, (BookPeriod(**row) for row in held), month, now)


async def _answers(
    connection: QueryConnection, tenant: str, month: Period, price_version: str
) -> tuple[AnswersOfMonth, ...]:
    rows = await connection.fetch(ANSWERS, tenant, month.first_hour, month.end_hour, price_version)
    return tuple(AnswersOfMonth(**row) for row in rows)


async def _terms(connection: QueryConnection, tenant: str, month: Period) -> BillingTerms:
    rows = await connection.fetch(TERMS, tenant)
    encoded = in_force({row["from_month"]: row["terms"] for row in rows}, month.name, None)
    return BillingTerms() if encoded is None else msgspec.json.decode(encoded, type=BillingTerms)


async def _adjustments(
    connection: QueryConnection, tenant: str, month: Period
) -> tuple[InvoiceAdjustment, ...]:
    rows = await connection.fetch(ADJUSTMENTS, tenant, month.name)
    return tuple(msgspec.convert(dict(row), InvoiceAdjustment) for row in rows)


async def _notes(connection: QueryConnection, tenant: str, month: Period) -> tuple[CreditNote, ...]:
    rows = await connection.fetch(NOTES, tenant, month.name)
    return tuple(msgspec.json.decode(row[0], type=CreditNote) for row in rows)
