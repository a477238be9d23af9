"""Invoices from the read models: the facts of closed months, and lines made of usage.

The gateway folds the journals itself and makes lines with the functions that billing closes a month
with: services meet only through Kafka, and a closed invoice is compared with its fact.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from schemas.billing import BillingTerms, PriceBook, Statement
from schemas.units import HOUR_MS
from services.gateway.accounts.tables import TENANTS, TenantRow
from services.gateway.billing.tables import (
    ADJUSTMENTS,
    ANSWER_USES,
    BILLING_TERMS,
    CREDIT_NOTES,
    MONTHS,
    STORED,
    MonthRow,
)
from services.gateway.jobs.tables import USAGE, UsageRow
from services.gateway.ports import Buckets, Cursor, IntRange, Where
from services.gateway.views.table import R, Table
from services.gateway.web.deps import Deps
from services.gateway.web.errors import ApiError, invalid, not_found
from tunery.billing.answers import AnswersOfMonth
from tunery.billing.invoice import Altered, BilledMonth, Invoice, make_invoices
from tunery.billing.lines import WHERE_BOOKS_ARE, LedgerRow, PriceMissing, select_usage
from tunery.billing.periods import BillShare, Period, period, period_of, share_of
from tunery.billing.storage import FOREVER, StorageUse, StoredObject, kept_byte_hours
from tunery.billing.volume import late_months

PAGE: Final = 10_000
MONTHS_MAX: Final = 1_200  # a hundred years
JOBS_MAX: Final = 1_000  # of one query
INVOICE_ID: Final = re.compile(r"(\d{4}-\d{2})-([A-Z]{3})")
OFFSET_MAX: Final = 2**62
NOT_REPRODUCED: Final = "invoice_not_reproduced"


class BilledTenant(NamedTuple):
    """What all invoices of a tenant are made of: its plan, terms, price book, and months."""

    plan: TenantRow
    terms: BillingTerms
    book: PriceBook
    months: Mapping[str, MonthRow]

    @property
    def closed(self) -> list[Statement]:
        return [row.statement for row in self.months.values() if row.statement is not None]


async def find_tenant(deps: Deps, tenant: str) -> BilledTenant | None:
    """The tenant, None: there is none. Raises ApiError 500 when its price book is missing."""
    plan = await deps.views.first(TENANTS, {"id": tenant})
    if plan is None:
        return None
    terms = await deps.views.first(BILLING_TERMS, {"id": tenant})
    book = await deps.prices.book(plan.price_version)
    if book is None:
        missing = f"no price book {plan.price_version!r} on the log; {WHERE_BOOKS_ARE}"
        raise ApiError(500, NOT_REPRODUCED, missing)
    rows = await deps.views.page(MONTHS, {"tenant": tenant}, limit=MONTHS_MAX, descending=False)
    return BilledTenant(
        plan=plan,
        terms=BillingTerms() if terms is None else terms.terms,
        book=book,
        months={row.id: row for row in rows},
    )


async def find_invoice(deps: Deps, tenant: str, name: str) -> Invoice:
    """An invoice by its id. Raises ApiError 404, and 500 when it is not what was closed."""
    matched = INVOICE_ID.fullmatch(name)
    if matched is None:
        raise not_found("invoice", name, "invoice_id")
    month = _begun(deps, matched[1], "invoice_id")
    for invoice in await read_invoices(deps, await find_tenant(deps, tenant), month):
        if invoice.currency == matched[2]:
            return invoice
    raise not_found("invoice", name, "invoice_id")


def begun_months(
    deps: Deps, tenant: BilledTenant | None, only: str | None = None
) -> Sequence[Period]:
    """The tenant's months, the running one first; or `only` this one. Raises ApiError 400."""
    if only is not None:
        return (_begun(deps, only, "period"),)
    months: list[Period] = []
    month = period_of(deps.clock.now_ms() if tenant is None else tenant.plan.created_at)
    while month.first_hour <= deps.clock.now_ms() // HOUR_MS:
        months.append(month)
        month = month.following()
    return months[::-1]


def _begun(deps: Deps, name: str, param: str) -> Period:
    """The month of a name. Raises ApiError 400 for none, and for one that has not begun."""
    try:
        month = period(name)
    except (ValueError, OverflowError):
        raise invalid(f"{name!r} is not a month; write it like 2026-11.", param) from None
    if month.first_hour > deps.clock.now_ms() // HOUR_MS:
        raise invalid(f"{name} has not begun.", param)
    return month


async def read_invoices(
    deps: Deps, tenant: BilledTenant | None, month: Period
) -> tuple[Invoice, ...]:
    """The invoices of a month, one for each currency; none for one before the tenant's first.

    Raises ApiError 500 when one is not what was closed, or a price book is missing.
    """
    if tenant is None or month.name < period_of(tenant.plan.created_at).name:
        return ()
    share = share_of(month, tenant.closed)
    rows = await _read_usage(deps, tenant.plan.id, share)
    billed = await _billed_month(deps, tenant, month)
    books = await _books(
        deps, {billed.storage.price_version, *(row.price_version for row in rows)} - {""}
    )
    rows += await _late_months(deps, tenant.plan.id, rows, month, books)
    try:
        return make_invoices(billed, select_usage(rows, share), books)
    except (Altered, PriceMissing) as error:
        raise ApiError(500, NOT_REPRODUCED, str(error)) from error


async def _billed_month(deps: Deps, tenant: BilledTenant, month: Period) -> BilledMonth:
    plan, row = tenant.plan, tenant.months.get(month.name)
    where = {"tenant": plan.id, "period": month.name}
    price_version = plan.price_version if row is None else row.ended.price_version
    return BilledMonth(
        tenant=plan.id,
        month=month,
        soft_gpu_ms=plan.limits.soft_gpu_ms if row is None else row.ended.soft_gpu_ms,
        currency=tenant.book.currency,
        terms=tenant.terms if row is None or row.ended.terms is None else row.ended.terms,
        adjustments=tuple(entry.adjustment for entry in await _all(deps, ADJUSTMENTS, where)),
        notes=tuple(row.note for row in await _all(deps, CREDIT_NOTES, where)),
        ended=row is not None,
        storage=await _storage(deps, tenant, month, price_version),
        answers=await answers_of_month(deps, plan.id, month, price_version),
        statement=None if row is None else row.statement,
    )


async def _storage(
    deps: Deps, tenant: BilledTenant, month: Period, price_version: str
) -> StorageUse:
    """What the tenant has kept in the month so far."""
    first = month.first_hour * HOUR_MS
    where = {
        "tenant": tenant.plan.id,
        "until": IntRange(first + 1, FOREVER + 1),
        "since": IntRange(0, month.end_ms),
    }
    kept = (
        StoredObject(bytes=row.bytes, since=row.since, until=row.until)
        for row in await _all(deps, STORED, where)
    )
    byte_hours = kept_byte_hours(kept, month, deps.clock.now_ms())
    return StorageUse(price_version=price_version, byte_hours=byte_hours)


async def answers_of_month(
    deps: Deps, tenant: str, month: Period, price_version: str, key_id: str | None = None
) -> AnswersOfMonth:
    """What the tenant's models have answered in the month so far; `key_id`: to this key alone."""
    where = {"tenant": tenant} if key_id is None else {"tenant": tenant, "key_id": key_id}
    hours = Buckets("hour_utc", month.first_hour, month.end_hour, 1)
    counts = ("prompt_tokens", "cached_tokens", "completion_tokens")
    sums = await deps.views.sums(
        ANSWER_USES,
        where,
        hours,
        by=(),
        of=counts,
        limit=month.end_hour - month.first_hour,
    )
    totals = {name: sum(record[name] for record in sums) for name in counts}
    return AnswersOfMonth(price_version=price_version, **totals)


async def _books(deps: Deps, versions: set[str]) -> Mapping[str, PriceBook]:
    books = {version: await deps.prices.book(version) for version in versions}
    return {version: book for version, book in books.items() if book is not None}


async def _late_months(
    deps: Deps,
    tenant: str,
    rows: Sequence[LedgerRow],
    month: Period,
    books: Mapping[str, PriceBook],
) -> tuple[LedgerRow, ...]:
    """What months have that late rows are of, where volume tiers depend on it; no row twice."""
    known = {_position(row) for row in rows}
    more: list[LedgerRow] = []
    for late in late_months(rows, month, books):
        hours = IntRange(late.month.first_hour, late.month.end_hour)
        where = {"tenant": tenant, "hour_utc": hours, "price_version": tuple(late.price_versions)}
        more += map(_ledger_row, await _all(deps, USAGE, where))
    return tuple(row for row in more if _position(row) not in known)


def _position(row: LedgerRow) -> tuple[int, int, int]:
    return row.journal_partition, row.incarnation, row.journal_offset


async def _read_usage(deps: Deps, tenant: str, share: BillShare) -> tuple[LedgerRow, ...]:
    """What may be on the bill, and what earlier bills have of the same jobs: not all of history."""
    month = share.month
    own = {"tenant": tenant}
    earlier = {**own, "hour_utc": IntRange(0, month.first_hour)}
    rows = list(
        await _all(deps, USAGE, {**own, "hour_utc": IntRange(month.first_hour, month.end_hour)})
    )
    rows += await _late(deps, earlier, share)
    known = {(row.job_id, row.id) for row in rows}
    jobs = sorted({row.job_id for row in rows})
    for start in range(0, len(jobs), JOBS_MAX):
        some = tuple(jobs[start : start + JOBS_MAX])
        before = await _all(deps, USAGE, {**earlier, "job_id": some})
        rows += (row for row in before if (row.job_id, row.id) not in known)
    return tuple(map(_ledger_row, rows))


async def _late(deps: Deps, earlier: Where, share: BillShare) -> list[UsageRow]:
    """Rows of earlier months that were written after the month before was closed."""
    rows: list[UsageRow] = []
    if share.late is None:
        return rows
    for partition, offset in enumerate(share.late.offsets):
        incarnation = share.late.incarnations[partition] if share.late.incarnations else 0
        of_partition = {**earlier, "journal_partition": partition}
        same = {"incarnation": incarnation, "journal_offset": IntRange(offset, OFFSET_MAX)}
        later = {"incarnation": IntRange(incarnation + 1, OFFSET_MAX)}
        for written in (same, later):
            rows += await _all(deps, USAGE, {**of_partition, **written})
    return rows


async def _all(deps: Deps, table: Table[R], where: Where) -> list[R]:
    rows: list[R] = []
    after = None
    while True:
        more = await deps.views.page(table, where, limit=PAGE, after=after, descending=False)
        rows += more
        if len(more) < PAGE:
            return rows
        after = Cursor(*table.position(more[-1]))


def _ledger_row(row: UsageRow) -> LedgerRow:
    return LedgerRow(
        kind="credit" if row.kind == "credit" else "usage",
        job_id=row.job_id,
        role=row.role,
        lane=row.lane,
        price_version=row.price_version,
        hour_utc=row.hour_utc,
        used_gpu_ms=row.used_gpu_ms,
        gpu_ms=row.billable_gpu_ms,
        cause=row.cause or "",
        device=row.device,
        accelerator=row.accelerator,
        spot=row.spot,
        tokens=row.tokens,
        journal_partition=row.journal_partition,
        incarnation=row.incarnation,
        journal_offset=row.journal_offset,
    )
