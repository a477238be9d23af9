"""Invoices from the read models: the facts of closed months, and lines made of usage.

The gateway folds the journals itself and makes lines with the functions that billing closes a month
with: services meet only through Kafka, and a closed invoice is compared with its fact.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from schemas.billing import BillingTerms, PriceBook, Statement
from schemas.records import build_from
from schemas.session import TOKEN_KINDS
from schemas.units import HOUR_MS
from services.gateway.views.ports import Buckets, Cursor, IntRange, Where
from services.gateway.views.table import R, Table
from services.gateway.views.tables.accounts import TENANTS, TenantRow
from services.gateway.views.tables.billing import (
    ADJUSTMENTS,
    ANSWER_USES,
    BILLING_TERMS,
    CREDIT_NOTES,
    HELD_BOOKS,
    MONTHS,
    SESSION_USES,
    STORED,
    MonthRow,
)
from services.gateway.views.tables.jobs import USAGE, UsageRow
from services.gateway.web.deps import Deps
from services.gateway.web.domain.errors import ApiError, invalid, not_found
from tunery.billing.answers import AnswersOfMonth
from tunery.billing.invoice import Altered, BilledMonth, Invoice, make_invoices
from tunery.billing.lines import WHERE_BOOKS_ARE, LedgerRow, PriceMissing, select_usage
from tunery.billing.periods import BillShare, Period, in_force, period, period_of, share_of
from tunery.billing.sessions import SessionUse, tokens_in
from tunery.billing.storage import FOREVER, BookPeriod, StorageUse, StoredObject, storage_of_month
from tunery.billing.volume import late_months

PAGE: Final = 10_000
MONTHS_MAX: Final = 1_200  # a hundred years
JOBS_MAX: Final = 1_000  # of one query
INVOICE_ID: Final = re.compile(r"(\d{4}-\d{2})-([A-Z]{3})")
OFFSET_MAX: Final = 2**62
NOT_REPRODUCED: Final = "invoice_not_reproduced"


class BilledTenant(NamedTuple):
    """Inputs that all invoices of a tenant share: its plan, terms, price book, and months."""

    plan: TenantRow
    terms: Mapping[str, BillingTerms]  # first month → terms that apply from it on
    book: PriceBook
    months: Mapping[str, MonthRow]

    @property
    def closed(self) -> dict[str, Statement]:
        return {
            name: row.statement for name, row in self.months.items() if row.statement is not None
        }


async def find_tenant(deps: Deps, tenant: str) -> BilledTenant | None:
    """The tenant, None: there is none. Raises ApiError 500 when its price book is missing."""
    plan = await deps.views.first(TENANTS, {"id": tenant})
    if plan is None:
        return None
    book = await _book(deps, plan.price_version)
    rows = await deps.views.page(MONTHS, {"tenant": tenant}, limit=MONTHS_MAX, descending=False)
    return BilledTenant(
        plan=plan,
        terms=await terms_by_month(deps, tenant),
        book=book,
        months={row.id: row for row in rows},
    )


async def terms_by_month(deps: Deps, tenant: str) -> Mapping[str, BillingTerms]:
    """Month → the terms of the tenant's invoices from it on."""
    return {row.id: row.terms for row in await _all(deps, BILLING_TERMS, {"tenant": tenant})}


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
    share = share_of(month, list(tenant.closed.values()))
    rows = await _read_usage(deps, tenant.plan.id, share)
    billed = await _billed_month(deps, tenant, month)
    versions = {row.price_version for row in rows}
    versions |= {use.price_version for use in billed.storage}
    versions |= {use.price_version for use in billed.answers}
    versions |= {use.price_version for use in billed.sessions}
    books = await _books(deps, versions - {""})
    if more := await _late_months(deps, tenant, rows, month, books):
        rows += more
        books = {**books, **await _books(deps, {row.price_version for row in more})}
    try:
        return make_invoices(billed, select_usage(rows, share), books)
    except (Altered, PriceMissing) as error:
        raise ApiError(500, NOT_REPRODUCED, str(error)) from error


async def _billed_month(deps: Deps, tenant: BilledTenant, month: Period) -> BilledMonth:
    plan, row = tenant.plan, tenant.months.get(month.name)
    where = {"tenant": plan.id, "period": month.name}
    price_version = plan.price_version if row is None else row.ended.price_version
    book = tenant.book if row is None else await _book(deps, price_version)
    terms = in_force(tenant.terms, month.name, BillingTerms())
    return BilledMonth(
        tenant=plan.id,
        month=month,
        soft_gpu_ms=plan.limits.soft_gpu_ms if row is None else row.ended.soft_gpu_ms,
        currency=book.currency,
        terms=terms if row is None or row.ended.terms is None else row.ended.terms,
        adjustments=tuple(entry.adjustment for entry in await _all(deps, ADJUSTMENTS, where)),
        notes=tuple(row.note for row in await _all(deps, CREDIT_NOTES, where)),
        ended=row is not None,
        storage=await _storage(deps, tenant, month),
        answers=await answers_of_month(deps, plan.id, month, price_version),
        sessions=await _sessions(deps, plan.id, month, price_version),
        closed={name: entry for name, entry in tenant.closed.items() if name < month.name},
        statement=None if row is None else row.statement,
    )


async def _storage(deps: Deps, tenant: BilledTenant, month: Period) -> tuple[StorageUse, ...]:
    """Return the tenant's storage use in the month so far under each of its price books."""
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
    held = (
        BookPeriod(row.since, row.price_version)
        for row in await _all(deps, HELD_BOOKS, {"tenant": tenant.plan.id})
    )
    return storage_of_month(kept, held, month, deps.clock.now_ms())


async def answers_of_month(
    deps: Deps, tenant: str, month: Period, price_version: str, key_id: str | None = None
) -> tuple[AnswersOfMonth, ...]:
    """Return the usage of the tenant's models in the month so far under each of its price books."""
    where = {"tenant": tenant} if key_id is None else {"tenant": tenant, "key_id": key_id}
    hours = Buckets("hour_utc", month.first_hour, month.end_hour, month.end_hour)
    counts = ("prompt_tokens", "cached_tokens", "completion_tokens")
    sums = await deps.views.sums(
        ANSWER_USES,
        where,
        hours,
        by=("price_version",),
        of=counts,
        limit=PAGE,
    )
    totals: dict[str, Counter[str]] = {}
    for record in sums:
        version = record["price_version"] or price_version
        totals.setdefault(version, Counter()).update({name: record[name] for name in counts})
    return tuple(
        AnswersOfMonth(price_version=version, **of_book)
        for version, of_book in sorted(totals.items())
    )


async def _sessions(
    deps: Deps, tenant: str, month: Period, price_version: str
) -> tuple[SessionUse, ...]:
    """Return the tokens of each session in the month so far.

    price_version: the price book of sessions whose events do not say it
    """
    by = ("session_id", "price_version")
    sums: list[Mapping[str, Any]] = []
    while True:
        more = await deps.views.sums(
            SESSION_USES,
            {"tenant": tenant},
            Buckets("hour_utc", month.first_hour, month.end_hour, month.end_hour),
            by=by,
            of=TOKEN_KINDS,
            limit=PAGE,
            after=tuple(sums[-1][column] for column in by) if sums else (),
        )
        sums += more
        if len(more) < PAGE:
            break
    uses = (
        SessionUse(
            session_id=record["session_id"],
            price_version=record["price_version"] or price_version,
            tokens=tokens_in(record),
        )
        for record in sums
        if any(record[kind] for kind in TOKEN_KINDS)
    )
    return tuple(sorted(uses, key=lambda use: (use.session_id, use.price_version)))


async def _book(deps: Deps, version: str) -> PriceBook:
    """The price book of a version. Raises ApiError 500 when it is missing."""
    book = await deps.prices.book(version)
    if book is None:
        missing = f"no price book {version!r} on the log; {WHERE_BOOKS_ARE}"
        raise ApiError(500, NOT_REPRODUCED, missing)
    return book


async def _books(deps: Deps, versions: set[str]) -> Mapping[str, PriceBook]:
    books = {version: await deps.prices.book(version) for version in versions}
    return {version: book for version, book in books.items() if book is not None}


async def _late_months(
    deps: Deps,
    tenant: BilledTenant,
    rows: Sequence[LedgerRow],
    month: Period,
    books: Mapping[str, PriceBook],
) -> tuple[LedgerRow, ...]:
    """Return ledger rows of the months that late rows belong to, where tiers or overage depend on
    them; no row twice.
    """
    known = {_position(row) for row in rows}
    more: list[LedgerRow] = []
    for late in late_months(rows, month, books, tenant.closed):
        hours = IntRange(late.month.first_hour, late.month.end_hour)
        where: dict[str, Any] = {"tenant": tenant.plan.id, "hour_utc": hours}
        if late.price_versions is not None:
            where["price_version"] = tuple(late.price_versions)
        more += map(_ledger_row, await _all(deps, USAGE, where))
    return tuple(row for row in more if _position(row) not in known)


def _position(row: LedgerRow) -> tuple[int, int, int]:
    return row.journal_partition, row.incarnation, row.journal_offset


async def _read_usage(deps: Deps, tenant: str, share: BillShare) -> tuple[LedgerRow, ...]:
    """Return the ledger rows that may be on the bill, and earlier bills' rows of the same jobs."""
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
    return build_from(LedgerRow, row, gpu_ms=row.billable_gpu_ms, cause=row.cause or "")
