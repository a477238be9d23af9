"""Reads the ledger in PostgreSQL, and makes invoices of it."""

from collections.abc import Mapping
from typing import Final

import msgspec

from schemas.account import (
    PeriodEnded,
)
from schemas.billing import (
    BillingTerms,
    CreditNote,
    InvoiceAdjustment,
    PriceBook,
    Statement,
)
from schemas.topics import PARTITIONS, POOL
from schemas.units import HOUR_MS, Ms
from services.billing.adapters.usage import QueryConnection, read_usage
from tunery.billing.answers import AnswersOfMonth
from tunery.billing.invoice import BilledMonth, Invoice, close_invoice, is_billable, make_invoices
from tunery.billing.lines import WHERE_BOOKS_ARE, LedgerRow, PriceMissing
from tunery.billing.periods import BillShare, Cut, Period, share_of
from tunery.billing.storage import FOREVER, StorageUse, StoredObject, kept_byte_hours
from tunery.runtime.store.abstract import Store

LEDGER: Final = "ledger"  # the projection
STORAGE: Final = "storage"  # likewise
ROWS = """
SELECT kind, job_id, role, lane, price_version, hour_utc, used_gpu_ms, gpu_ms, cause,
    device, accelerator, spot, tokens,
    journal_partition, incarnation, journal_offset
FROM ledger WHERE tenant = $1 AND hour_utc < $2
ORDER BY hour_utc, job_id, journal_partition, incarnation, journal_offset, lease, kind, cause
"""
TENANT = "SELECT soft_gpu_ms, price_version FROM tenants WHERE tenant = $1"
PRICES = "SELECT book::text FROM prices"
TERMS = "SELECT terms::text FROM billing_terms WHERE tenant = $1"
MONTHS = """
SELECT period, ended::text, statement::text FROM statements WHERE tenant = $1 ORDER BY period
"""
NOTES = "SELECT note::text FROM credit_notes WHERE tenant = $1 AND period = $2 ORDER BY number"
KEPT = """
SELECT bytes, since, until FROM storage WHERE tenant = $1 AND until > $2 AND since < $3
"""
ANSWERS = """
SELECT coalesce(sum(prompt_tokens), 0)::bigint, coalesce(sum(cached_tokens), 0)::bigint,
    coalesce(sum(completion_tokens), 0)::bigint
FROM answers WHERE tenant = $1 AND hour_utc >= $2 AND hour_utc < $3
"""
ADJUSTMENTS = """
SELECT reference, reason, currency, amount_micro
FROM adjustments WHERE tenant = $1 AND period = $2
"""


class NoTenant(Exception):
    """There is no such tenant."""


async def read_invoices(
    connection: QueryConnection,
    tenant: str,
    month: Period,
    seller: str = "",
    now: Ms = FOREVER,
) -> tuple[Invoice, ...]:
    """The invoices of one month as they are `now`, one for each currency.

    `connection` holds one snapshot, so all reads agree. Raises NoTenant, PriceMissing, Altered.
    """
    books = await read_prices(connection)
    plans = await connection.fetch(TENANT, tenant)
    if not plans:
        raise NoTenant(tenant)
    months = {row["period"]: row for row in await connection.fetch(MONTHS, tenant)}
    closed = [
        msgspec.json.decode(row["statement"], type=Statement)
        for row in months.values()
        if row["statement"] is not None
    ]
    ended = None
    if month.name in months and months[month.name]["ended"] is not None:
        ended = msgspec.json.decode(months[month.name]["ended"], type=PeriodEnded)
    terms = await _terms(connection, tenant)
    price_version = plans[0]["price_version"] if ended is None else ended.price_version
    billed = BilledMonth(
        tenant=tenant,
        month=month,
        soft_gpu_ms=plans[0]["soft_gpu_ms"] if ended is None else ended.soft_gpu_ms,
        currency=_currency(books, plans[0]["price_version"]),
        terms=terms if ended is None or ended.terms is None else ended.terms,
        seller=seller,
        adjustments=await _adjustments(connection, tenant, month),
        notes=await _notes(connection, tenant, month),
        ended=ended is not None,
        storage=await _storage(connection, tenant, month, price_version, now),
        answers=await _answers(connection, tenant, month, price_version),
        statement={entry.period: entry for entry in closed}.get(month.name),
    )
    usage = await read_usage(connection, tenant, share_of(month, closed), books)
    return make_invoices(billed, usage, books)


class PostgresBooks:
    """Implements the port `Books`."""

    def __init__(self, store: Store, connection: QueryConnection, seller: str = "") -> None:
        self._store, self._connection, self._seller = store, connection, seller

    async def reached(self) -> Cut:
        saved = await self._store.positions(LEDGER)
        positions = [saved[POOL.name, partition].position for partition in range(PARTITIONS)]
        return Cut(
            offsets=tuple(position.offset for position in positions),
            incarnations=tuple(position.acceptance.incarnation for position in positions),
        )

    async def stored(self) -> Mapping[tuple[str, int], int]:
        saved = await self._store.positions(STORAGE)
        return {partition: entry.position.offset for partition, entry in saved.items()}

    async def statement(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        """The bills of a closed month. Raises PriceMissing."""
        month, cut = share.month, share.cut
        books = await read_prices(self._connection)
        plans = await self._connection.fetch(TENANT, tenant)
        currency = _currency(books, plans[0]["price_version"] if plans else "")
        billed = BilledMonth(
            tenant=tenant,
            month=month,
            soft_gpu_ms=ended.soft_gpu_ms,
            currency=currency,
            terms=ended.terms or BillingTerms(),
            seller=self._seller,
            adjustments=await _adjustments(self._connection, tenant, month),
            storage=await _storage(
                self._connection, tenant, month, ended.price_version, month.end_ms
            ),
            answers=await _answers(self._connection, tenant, month, ended.price_version),
        )
        usage = await read_usage(self._connection, tenant, share, books)
        invoices = make_invoices(billed, usage, books)
        own = {invoice.currency: invoice for invoice in invoices}.get(currency)
        return Statement(
            period=month.name,
            cut=() if cut is None else cut.offsets,
            currency=currency,
            soft_gpu_ms=ended.soft_gpu_ms,
            gpu_ms=0 if own is None else own.gpu_ms,
            amount_micro=0 if own is None else own.amount_micro,
            incarnations=() if cut is None else cut.incarnations,
            bills=tuple(close_invoice(entry) for entry in invoices if is_billable(entry)),
            terms=ended.terms,
        )


def _currency(books: Mapping[str, PriceBook], version: str) -> str:
    """That of the tenant's price book. Raises PriceMissing."""
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
    connection: QueryConnection, tenant: str, month: Period, price_version: str, now: Ms
) -> StorageUse:
    rows = await connection.fetch(KEPT, tenant, month.first_hour * HOUR_MS, month.end_ms)
    kept = (StoredObject(**row) for row in rows)
    byte_hours = kept_byte_hours(kept, month, now)
    return StorageUse(price_version=price_version, byte_hours=byte_hours)


async def _answers(
    connection: QueryConnection, tenant: str, month: Period, price_version: str
) -> AnswersOfMonth:
    ((read, cached, written),) = await connection.fetch(
        ANSWERS, tenant, month.first_hour, month.end_hour
    )
    return AnswersOfMonth(
        price_version=price_version,
        prompt_tokens=read,
        cached_tokens=cached,
        completion_tokens=written,
    )


async def _terms(connection: QueryConnection, tenant: str) -> BillingTerms:
    rows = await connection.fetch(TERMS, tenant)
    return msgspec.json.decode(rows[0][0], type=BillingTerms) if rows else BillingTerms()


async def _adjustments(
    connection: QueryConnection, tenant: str, month: Period
) -> tuple[InvoiceAdjustment, ...]:
    rows = await connection.fetch(ADJUSTMENTS, tenant, month.name)
    return tuple(msgspec.convert(dict(row), InvoiceAdjustment) for row in rows)


async def _notes(connection: QueryConnection, tenant: str, month: Period) -> tuple[CreditNote, ...]:
    rows = await connection.fetch(NOTES, tenant, month.name)
    return tuple(msgspec.json.decode(row[0], type=CreditNote) for row in rows)
