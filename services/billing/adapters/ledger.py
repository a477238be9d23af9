"""Reads the ledger in PostgreSQL, and makes bills of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from schemas.account import InvoiceAdjustment, PeriodEnded, Statement
from schemas.topics import PARTITIONS, POOL
from schemas.units import GpuMs
from services.billing.domain.invoice import Invoice, LedgerRow, invoice
from services.billing.domain.periods import BillShare, Cut, Period, share_of
from tunery.plan.price import PriceBook
from tunery.runtime.store.abstract import Store

LEDGER: Final = "ledger"  # the projection
# Rows of earlier months may be late ones; the bill knows which are its own.
ROWS = """
SELECT kind, job_id, role, lane, price_version, hour_utc, used_gpu_ms, gpu_ms, cause,
    journal_partition, journal_offset
FROM ledger WHERE tenant = $1 AND hour_utc < $2
ORDER BY hour_utc, job_id, journal_partition, incarnation, journal_offset, lease, kind, cause
"""
STATEMENTS = "SELECT statement::text FROM statements WHERE tenant = $1 ORDER BY period"
ADJUSTMENTS = """
SELECT reference, reason, currency, amount_micro
FROM adjustments WHERE tenant = $1 AND period = $2
"""


class QueryConnection(Protocol):
    """What is used of an asyncpg connection or pool; its search path names billing's schema."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        """All rows of the query."""


class NoTenant(Exception):
    """There is no such tenant."""


async def read_invoice(
    connection: QueryConnection, tenant: str, month: Period, books: Mapping[str, PriceBook]
) -> Invoice:
    """The bill of one month as it is now. `connection` holds one snapshot, so all reads agree.

    Raises NoTenant, PriceMissing, Mixed, Altered.
    """
    soft, rows = await _soft_limit(connection, tenant), await read_rows(connection, tenant, month)
    if soft is None and not rows:
        raise NoTenant(tenant)
    closed = [
        msgspec.json.decode(row[0], type=Statement)
        for row in await connection.fetch(STATEMENTS, tenant)
    ]
    return invoice(
        tenant,
        month,
        rows,
        books,
        soft,
        newest(books),
        share=share_of(month, closed),
        adjustments=await _adjustments(connection, tenant, month),
        statement={entry.period: entry for entry in closed}.get(month.name),
    )


class PostgresBooks:
    """Implements the port `Books`."""

    def __init__(
        self, store: Store, connection: QueryConnection, books: Mapping[str, PriceBook]
    ) -> None:
        self._store, self._connection, self._books = store, connection, books

    async def reached(self) -> Cut:
        saved = await self._store.positions(LEDGER)
        return tuple(saved[POOL.name, p].position.offset for p in range(PARTITIONS))

    async def statement(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        """The bill of a closed month. Raises PriceMissing, Mixed."""
        month = share.month
        bill = invoice(
            tenant,
            month,
            await read_rows(self._connection, tenant, month),
            self._books,
            ended.soft_gpu_ms,
            newest(self._books),
            share=share,
            adjustments=await _adjustments(self._connection, tenant, month),
        )
        return Statement(
            period=month.name,
            cut=tuple(share.cut or ()),
            currency=bill.currency,
            soft_gpu_ms=ended.soft_gpu_ms,
            gpu_ms=bill.gpu_ms,
            amount_micro=bill.amount_micro,
        )


def newest(books: Mapping[str, PriceBook]) -> str:
    """Currency of the newest book, for bills that nothing is on."""
    return books[max(books)].currency


async def read_rows(
    connection: QueryConnection, tenant: str, month: Period
) -> tuple[LedgerRow, ...]:
    """Ledger rows of the tenant up to the end of the month, in the order of the bill."""
    rows = await connection.fetch(ROWS, tenant, month.end_hour)
    return tuple(msgspec.convert(dict(row), LedgerRow) for row in rows)


async def _adjustments(
    connection: QueryConnection, tenant: str, month: Period
) -> tuple[InvoiceAdjustment, ...]:
    rows = await connection.fetch(ADJUSTMENTS, tenant, month.name)
    return tuple(msgspec.convert(dict(row), InvoiceAdjustment) for row in rows)


async def _soft_limit(connection: QueryConnection, tenant: str) -> GpuMs | None:
    """None when there is no such tenant."""
    query = "SELECT soft_gpu_ms FROM tenants WHERE tenant = $1"
    rows = await connection.fetch(query, tenant)
    return int(rows[0]["soft_gpu_ms"]) if rows else None
