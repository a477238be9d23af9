"""Reads the ledger in PostgreSQL, and makes bills of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from schemas.account import PeriodEnded, Statement
from schemas.topics import PARTITIONS, POOL
from schemas.units import GpuMs
from services.billing.domain.invoice import Adjustment, Invoice, LedgerRow, invoice
from services.billing.domain.periods import Cut, Period, Share, share_of
from tunery.plan.price import PriceBook
from tunery.runtime.store.abstract import Store

LEDGER: Final = "ledger"  # the projection
# Rows of earlier months may be late ones; the bill knows which are its own.
ROWS = """
SELECT kind, job_id, role, lane, price_version, hour, used_gpu_ms, gpu_ms, cause,
    journal_partition, journal_offset
FROM ledger WHERE tenant = $1 AND hour < $2
ORDER BY hour, job_id, journal_partition, incarnation, journal_offset, lease, kind, cause
"""
STATEMENTS = "SELECT statement::text FROM statements WHERE tenant = $1 ORDER BY period"
ADJUSTMENTS = """
SELECT reference, reason, currency, amount_micro
FROM adjustments WHERE tenant = $1 AND period = $2
"""


class Connection(Protocol):
    """What is used of an asyncpg connection or pool; its search path names billing's schema."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]: ...


class NoTenant(Exception):
    """There is no such tenant."""


async def read_invoice(
    connection: Connection, tenant: str, month: Period, books: Mapping[str, PriceBook]
) -> Invoice:
    """The bill of one month as it is now. Give it one snapshot: all that is read belongs together.

    Raises NoTenant, PriceMissing, Mixed, Altered.
    """
    soft, rows = await _soft_limit(connection, tenant), await read_rows(connection, tenant, month)
    if soft is None and not rows:
        raise NoTenant(tenant)
    found = await connection.fetch(STATEMENTS, tenant)
    closed = [msgspec.json.decode(row[0], type=Statement) for row in found]
    return invoice(
        tenant,
        month,
        rows,
        books,
        soft,
        newest(books),
        share=share_of(month, closed),
        adjustments=await _adjustments(connection, tenant, month),
        statement=next((one for one in closed if one.period == month.name), None),
    )


class PostgresBooks:
    """Implements the port `Books`."""

    def __init__(self, store: Store, books: Mapping[str, PriceBook]) -> None:
        self._store, self._books = store, books

    async def reached(self) -> Cut:
        saved = await self._store.positions(LEDGER)
        return tuple(saved[POOL.name, p].position.offset for p in range(PARTITIONS))

    async def statement(self, tenant: str, ended: PeriodEnded, share: Share) -> Statement:
        pool, month = self._store.pool, share.month
        made = invoice(
            tenant,
            month,
            await read_rows(pool, tenant, month),
            self._books,
            ended.soft_gpu_ms,
            newest(self._books),
            share=share,
            adjustments=await _adjustments(pool, tenant, month),
        )
        return Statement(
            period=month.name,
            cut=tuple(share.cut or ()),
            currency=made.currency,
            soft_gpu_ms=ended.soft_gpu_ms,
            gpu_ms=made.gpu_ms,
            amount_micro=made.amount_micro,
        )


def newest(books: Mapping[str, PriceBook]) -> str:
    """Currency of the newest book, for bills that nothing is on."""
    return books[max(books)].currency


async def read_rows(connection: Connection, tenant: str, month: Period) -> tuple[LedgerRow, ...]:
    found = await connection.fetch(ROWS, tenant, month.end_hour)
    return tuple(msgspec.convert(dict(row), LedgerRow) for row in found)


async def _adjustments(
    connection: Connection, tenant: str, month: Period
) -> tuple[Adjustment, ...]:
    found = await connection.fetch(ADJUSTMENTS, tenant, month.name)
    return tuple(msgspec.convert(dict(row), Adjustment) for row in found)


async def _soft_limit(connection: Connection, tenant: str) -> GpuMs | None:
    """None when there is no such tenant."""
    query = "SELECT soft_gpu_ms FROM tenants WHERE tenant = $1"
    found = await connection.fetch(query, tenant)
    return int(found[0]["soft_gpu_ms"]) if found else None
