"""An invoice is a pure function of ledger rows and price books.

Time is summed in whole GPU-milliseconds; money is rounded once, per line, to millionths of the
currency unit. The total is the sum of the lines, so it is right to the unit by construction.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from schemas.account import InvoiceAdjustment, Lane, Statement
from schemas.pool import Role
from schemas.units import HOUR_MS, GpuMs, Micro
from services.billing.domain.periods import BillShare, Period, period_of
from tunery.plan.price import LineKey, PriceBook, by_line, line_micro

Kind: TypeAlias = Literal["usage", "credit"]
# 28 digits are enough for any sum of GPU-milliseconds times any price; 60 leave no doubt
EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)
MICRO: Final = Decimal(1_000_000)
WORK_OF_ROLE: Final[Mapping[Role, str]] = {"train": "training", "eval": "evaluation"}
CREDIT_OF_CAUSE: Final[Mapping[str, str]] = {
    "lost": "machine lost",
    "preempted": "preempted",
    "bad_node": "faulty machine",
    "platform": "platform error",
    "skipped_checkpoint": "unusable checkpoint",
    "oom": "memory estimate too low",
    "platform_error": "job failed by platform error",
    "attempts_exhausted": "job failed after too many attempts",
}


class PriceMissing(Exception):
    """The ledger names a price that no price book has; the message says where to put it."""


class Mixed(Exception):
    """The period has prices in more than one currency; they cannot be one invoice."""


class Altered(Exception):
    """The bill of a closed month is not what it was: the ledger or a price book was changed."""


class LedgerRow(Struct, frozen=True, kw_only=True):
    """One slice of use (`gpu_ms` is what is billable) or one credit (`gpu_ms` is negative).

    Partition and offset say where its event is in the pool's journal.
    """

    kind: Kind
    job_id: str
    role: Role
    lane: Lane
    price_version: str
    hour_utc: int
    used_gpu_ms: GpuMs
    gpu_ms: GpuMs
    cause: str = ""
    journal_partition: int = 0
    journal_offset: int = 0


class Line(Struct, frozen=True, kw_only=True):
    """One job, one hour, one kind. `overage_gpu_ms`: the part above the month's soft limit.

    A line of an earlier month came after that was closed; it is above no limit of this one.
    """

    job_id: str
    kind: Kind
    hour_utc: int
    starts_at: str
    description: str
    lane: Lane
    price_version: str
    used_gpu_ms: GpuMs
    gpu_ms: GpuMs
    gpu_hour_micro: Micro
    amount_micro: Micro
    overage_gpu_ms: GpuMs


class Invoice(Struct, frozen=True, kw_only=True):
    """`amount_micro` is the sum of the amounts of lines and adjustments, `gpu_ms` that of times."""

    tenant: str
    period: str
    currency: str
    status: Literal["open", "closed"]
    lines: tuple[Line, ...]
    adjustments: tuple[InvoiceAdjustment, ...]
    used_gpu_ms: GpuMs
    gpu_ms: GpuMs
    credited_gpu_ms: GpuMs
    overage_gpu_ms: GpuMs
    credited_micro: Micro
    amount_micro: Micro


def invoice(
    tenant: str,
    month: Period,
    rows: Iterable[LedgerRow],
    books: Mapping[str, PriceBook],
    soft_gpu_ms: GpuMs | None,
    currency: str,
    *,
    share: BillShare | None = None,
    adjustments: Iterable[InvoiceAdjustment] = (),
    statement: Statement | None = None,
) -> Invoice:
    """The bill of one month. `currency` is used when nothing is on it.

    `share` says which rows are on it, those of the month's hours when not given; `adjustments` are
    the month's. With the `statement` that closed it, limit and currency are those of then.
    Raises PriceMissing, Mixed, Altered.
    """
    if statement is not None:
        soft_gpu_ms, currency = statement.soft_gpu_ms, statement.currency
    lines = _lines(rows, books, soft_gpu_ms, share or BillShare(month=month))
    added = tuple(sorted(adjustments, key=lambda adjustment: adjustment.reference))
    currencies = {books[line.price_version].currency for line in lines}
    currencies = currencies | {adjustment.currency for adjustment in added} or {currency}
    if len(currencies) > 1:
        raise Mixed(f"{tenant}, {month.name}: prices in {', '.join(sorted(currencies))}")
    credited = [line for line in lines if line.kind == "credit"]
    invoice = Invoice(
        tenant=tenant,
        period=month.name,
        currency=currencies.pop(),
        status="open" if statement is None else "closed",
        lines=lines,
        adjustments=added,
        used_gpu_ms=sum(line.used_gpu_ms for line in lines),
        gpu_ms=sum(line.gpu_ms for line in lines),
        credited_gpu_ms=-sum(line.gpu_ms for line in credited),
        overage_gpu_ms=sum(line.overage_gpu_ms for line in lines),
        credited_micro=-sum(line.amount_micro for line in credited),
        amount_micro=sum(line.amount_micro for line in lines)
        + sum(adjustment.amount_micro for adjustment in added),
    )
    if statement is not None:
        _compare(invoice, statement)
    return invoice


def _compare(invoice: Invoice, statement: Statement) -> None:
    now = (invoice.currency, invoice.gpu_ms, invoice.amount_micro)
    then = (statement.currency, statement.gpu_ms, statement.amount_micro)
    if now != then:
        raise Altered(
            f"{invoice.tenant}, {invoice.period} was closed with {then} (currency, "
            f"GPU-milliseconds, millionths) and is {now} now; "
            "look for a changed price book or ledger"
        )


def _lines(
    rows: Iterable[LedgerRow],
    books: Mapping[str, PriceBook],
    soft_gpu_ms: GpuMs | None,
    share: BillShare,
) -> tuple[Line, ...]:
    billed = (
        row for row in rows if share.has(row.hour_utc, row.journal_partition, row.journal_offset)
    )
    lines: list[Line] = []
    net = 0
    for key, together in by_line(billed, _line_key).items():
        if key.hour_utc < share.month.first_hour:
            lines.append(_line(together, books, late=True))
        else:
            lines.append(_line(together, books, net, soft_gpu_ms))
            net += lines[-1].gpu_ms
    return tuple(lines)


def _line_key(row: LedgerRow) -> LineKey:
    return LineKey(
        hour_utc=row.hour_utc,
        job_id=row.job_id,
        is_credit=row.kind == "credit",
        role=row.role,
        lane=row.lane,
        price_version=row.price_version,
        cause=row.cause,
    )


def _line(
    rows: list[LedgerRow],
    books: Mapping[str, PriceBook],
    before: GpuMs = 0,
    soft: GpuMs | None = None,
    *,
    late: bool = False,
) -> Line:
    first = rows[0]
    price = gpu_hour_price(books, first.price_version, first.lane)
    gpu_ms = sum(row.gpu_ms for row in rows)
    work = WORK_OF_ROLE[first.role]
    if first.kind == "credit":
        work = f"credit for {work}: {CREDIT_OF_CAUSE.get(first.cause, first.cause)}"
    if late:
        work = f"{work}, late for {period_of(first.hour_utc * HOUR_MS).name}"
    start = datetime.fromtimestamp(first.hour_utc * HOUR_MS // 1000, UTC)
    over = 0 if soft is None else _above(before + gpu_ms, soft) - _above(before, soft)
    return Line(
        job_id=first.job_id,
        kind=first.kind,
        hour_utc=first.hour_utc,
        starts_at=start.isoformat(),
        description=work,
        lane=first.lane,
        price_version=first.price_version,
        used_gpu_ms=sum(row.used_gpu_ms for row in rows),
        gpu_ms=gpu_ms,
        gpu_hour_micro=price,
        amount_micro=line_micro(gpu_ms, price),
        overage_gpu_ms=over,
    )


def _above(gpu_ms: GpuMs, soft: GpuMs) -> GpuMs:
    return max(gpu_ms - soft, 0)


def gpu_hour_price(books: Mapping[str, PriceBook], version: str, lane: Lane) -> Micro:
    """Price of a GPU-hour in a lane. Raises PriceMissing when no book has it."""
    book = books.get(version)
    if book is None or lane not in book.gpu_hour_micro:
        raise PriceMissing(
            f"no price for lane {lane} in version {version!r}; "
            f"add {version}.json to the folder that TUNERY_BILLING_PRICES_DIR names"
        )
    return book.gpu_hour_micro[lane]


def decimal_amount(micro: Micro) -> Decimal:
    """Currency units, six places: for people and for files."""
    return (Decimal(micro) / MICRO).quantize(Decimal("0.000001"), context=EXACT)
