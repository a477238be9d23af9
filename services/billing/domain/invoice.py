"""An invoice is a pure function of ledger rows and price books.

Time is summed in whole GPU-milliseconds; money is rounded once, per line, to millionths of the
currency unit. The total is the sum of the lines, so it is right to the unit by construction.
"""

from calendar import monthrange
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from schemas.account import Lane
from schemas.estimate import PriceBook, line_micro
from schemas.pool import Role
from schemas.units import HOUR_MS, GpuMs, Micro

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
}


class PriceMissing(Exception):
    """The ledger names a price that no price book has; the message says where to put it."""


class Mixed(Exception):
    """The period has prices in more than one currency; they cannot be one invoice."""


class LedgerRow(Struct, frozen=True, kw_only=True):
    """One slice of use (`gpu_ms` is what is billable) or one credit (`gpu_ms` is negative)."""

    kind: Kind
    job_id: str
    role: Role
    lane: Lane
    price_version: str
    hour: int
    used_gpu_ms: GpuMs
    gpu_ms: GpuMs
    cause: str = ""


class Period(Struct, frozen=True, kw_only=True):
    """A calendar month (UTC) as hours since the epoch: [first_hour, end_hour)."""

    name: str
    first_hour: int
    end_hour: int


class Line(Struct, frozen=True, kw_only=True):
    """One job, one hour, one kind. `overage_gpu_ms`: the part above the month's soft limit."""

    job_id: str
    kind: Kind
    hour: int
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
    """`amount_micro` is the sum of the lines' amounts, `gpu_ms` the sum of their times."""

    tenant: str
    period: str
    currency: str
    status: Literal["open"]
    lines: tuple[Line, ...]
    used_gpu_ms: GpuMs
    gpu_ms: GpuMs
    credited_gpu_ms: GpuMs
    overage_gpu_ms: GpuMs
    credited_micro: Micro
    amount_micro: Micro


def period(name: str) -> Period:
    """`2026-11` → its hours. Raises ValueError with what is expected."""
    try:
        first = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{name!r} is not a month; write it like 2026-11") from None
    first_hour = int(first.timestamp()) * 1000 // HOUR_MS
    hours = 24 * monthrange(first.year, first.month)[1]
    return Period(name=name, first_hour=first_hour, end_hour=first_hour + hours)


def invoice(
    tenant: str,
    month: Period,
    rows: Iterable[LedgerRow],
    books: Mapping[str, PriceBook],
    soft_gpu_ms: GpuMs | None,
    currency: str,
) -> Invoice:
    """The bill of one month. `currency` is used when there are no rows.

    Raises PriceMissing, Mixed.
    """
    grouped: dict[_Group, list[LedgerRow]] = {}
    for row in rows:
        if month.first_hour <= row.hour < month.end_hour:
            grouped.setdefault(_group(row), []).append(row)
    lines: list[Line] = []
    net = 0
    for group in sorted(grouped):
        line = _line(grouped[group], books, net, soft_gpu_ms)
        net += line.gpu_ms
        lines.append(line)
    currencies = {books[line.price_version].currency for line in lines} or {currency}
    if len(currencies) > 1:
        raise Mixed(f"{tenant}, {month.name}: prices in {', '.join(sorted(currencies))}")
    credited = [line for line in lines if line.kind == "credit"]
    return Invoice(
        tenant=tenant,
        period=month.name,
        currency=currencies.pop(),
        status="open",
        lines=tuple(lines),
        used_gpu_ms=sum(line.used_gpu_ms for line in lines),
        gpu_ms=net,
        credited_gpu_ms=-sum(line.gpu_ms for line in credited),
        overage_gpu_ms=sum(line.overage_gpu_ms for line in lines),
        credited_micro=-sum(line.amount_micro for line in credited),
        amount_micro=sum(line.amount_micro for line in lines),
    )


_Group: TypeAlias = tuple[int, str, int, str, str, str, str]


def _group(row: LedgerRow) -> _Group:
    """Sorts by hour, job, and use before credit."""
    credit = 1 if row.kind == "credit" else 0
    return (row.hour, row.job_id, credit, row.role, row.lane, row.price_version, row.cause)


def _line(
    rows: list[LedgerRow], books: Mapping[str, PriceBook], before: GpuMs, soft: GpuMs | None
) -> Line:
    first = rows[0]
    price = gpu_hour_price(books, first.price_version, first.lane)
    gpu_ms = sum(row.gpu_ms for row in rows)
    work = WORK_OF_ROLE[first.role]
    if first.kind == "credit":
        work = f"credit for {work}: {CREDIT_OF_CAUSE.get(first.cause, first.cause)}"
    start = datetime.fromtimestamp(first.hour * HOUR_MS // 1000, UTC)
    over = 0 if soft is None else _above(before + gpu_ms, soft) - _above(before, soft)
    return Line(
        job_id=first.job_id,
        kind=first.kind,
        hour=first.hour,
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
    book = books.get(version)
    if book is None or lane not in book.gpu_hour_micro:
        raise PriceMissing(
            f"no price for lane {lane} in version {version!r}; "
            f"add it as services/billing/prices/{version}.json, or set TUNERY_BILLING_PRICES_DIR"
        )
    return book.gpu_hour_micro[lane]


def decimal_amount(micro: Micro) -> Decimal:
    """Currency units, six places: for people and for files."""
    return (Decimal(micro) / MICRO).quantize(Decimal("0.000001"), context=EXACT)
