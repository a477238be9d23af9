"""Lines of a bill: one for each job, hour and kind; late ones say of which month they are.

Time is summed in whole GPU-milliseconds. Money is rounded cumulatively for each job: a line is what
the job costs with it less what it costs without, so lines add up to the job's cost exactly.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from schemas.account import Lane
from schemas.billing import PriceBook
from schemas.pool import Role
from schemas.submission import Price
from schemas.training import Device, LeaseHardware
from schemas.units import HOUR_MS, GpuMs, Micro
from tunery.billing.periods import BillShare, Period, period_of
from tunery.plan.price import hourly_micro, lane_price, line_micro

Kind: TypeAlias = Literal["usage", "credit"]
WORK_OF_ROLE: Final[Mapping[Role, str]] = {"train": "training", "eval": "evaluation"}
WHERE_BOOKS_ARE: Final = (
    "add its file to the folder that TUNERY_BILLING_PRICES_DIR names, and start billing again"
)
CREDIT_OF_CAUSE: Final[Mapping[str, str]] = {
    "lost": "machine lost",
    "preempted": "preempted",
    "bad_node": "faulty machine",
    "platform": "platform error",
    "skipped_checkpoint": "unusable checkpoint",
    "correction": "correction of measured time",
    "oom": "memory estimate too low",
    "platform_error": "job failed by platform error",
    "attempts_exhausted": "job failed after too many attempts",
}


class PriceMissing(Exception):
    """The ledger names a price that no price book has; the message says where to put it."""


class LedgerRow(Struct, frozen=True, kw_only=True):
    """One slice of use (`gpu_ms` is what is billable) or one credit (`gpu_ms` is negative).

    Partition, incarnation and offset say where its event is in the pool's journal.
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
    device: Device = "cpu"
    accelerator: str = ""
    spot: bool = False
    journal_partition: int = 0
    incarnation: int = 0
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
    currency: str
    used_gpu_ms: GpuMs
    gpu_ms: GpuMs
    gpu_hour_micro: Micro
    amount_micro: Micro
    overage_gpu_ms: GpuMs
    role: Role
    device: Device
    accelerator: str
    spot: bool
    cause: str = ""


class PricedJob(NamedTuple):
    """What is rounded as one sum. A job keeps the lane and the price of its admission."""

    job_id: str
    lane: Lane
    price_version: str


class PricedUse(NamedTuple):
    """What of a job has one price."""

    job: PricedJob
    role: Role
    device: Device
    accelerator: str
    spot: bool

    @property
    def hardware(self) -> LeaseHardware:
        return LeaseHardware(device=self.device, accelerator=self.accelerator, spot=self.spot)


class BilledUsage(Struct, frozen=True, kw_only=True):
    """What is on one bill.

    rows: of the bill, in any order; those of one line may be one sum.
    before: what earlier bills have of the same jobs.
    """

    rows: tuple[LedgerRow, ...]
    before: Mapping[PricedUse, GpuMs]


class LineKey(NamedTuple):
    """What the rows of one line have in common. Sorts as the lines of an invoice do.

    hour_utc: number of the UTC hour
    is_credit: time that is credited
    cause: of a credit
    """

    hour_utc: int
    job_id: str
    is_credit: bool
    role: Role
    lane: Lane
    price_version: str
    cause: str
    device: Device
    accelerator: str
    spot: bool


def select_usage(rows: Iterable[LedgerRow], share: BillShare) -> BilledUsage:
    """What of the ledger's rows is on the bill that `share` is of."""
    billed, before = [], Counter[PricedUse]()
    for row in rows:
        position = row.hour_utc, row.journal_partition, row.incarnation, row.journal_offset
        if share.has(*position):
            billed.append(row)
        elif share.is_earlier(*position):
            before[priced_use(row)] += row.gpu_ms
    return BilledUsage(rows=tuple(billed), before=before)


def bill_lines(
    usage: BilledUsage, books: Mapping[str, PriceBook], soft_gpu_ms: GpuMs | None, month: Period
) -> tuple[Line, ...]:
    """The lines of a month's bill, by hour and job. Raises PriceMissing."""
    together: dict[LineKey, list[LedgerRow]] = {}
    for row in usage.rows:
        together.setdefault(_line_key(row), []).append(row)
    prices, billed, lines, net = HourlyPrices(books), Counter[PricedJob](), [], 0
    for use, gpu_ms in usage.before.items():
        billed[use.job] += gpu_ms * prices.hourly_micro(use)
    for key in sorted(together):
        gpu_ms = sum(row.gpu_ms for row in together[key])
        late = key.hour_utc < month.first_hour
        use = priced_use(key)
        hourly = prices.hourly_micro(use)
        lines.append(
            Line(
                job_id=key.job_id,
                kind="credit" if key.is_credit else "usage",
                hour_utc=key.hour_utc,
                starts_at=_starts_at(key.hour_utc),
                description=_description(key, late=late),
                lane=key.lane,
                price_version=key.price_version,
                currency=book_of(books, key.price_version, key.lane).currency,
                used_gpu_ms=sum(row.used_gpu_ms for row in together[key]),
                gpu_ms=gpu_ms,
                gpu_hour_micro=hourly,
                amount_micro=line_micro(billed[use.job], gpu_ms * hourly),
                overage_gpu_ms=0 if late else _overage(net, gpu_ms, soft_gpu_ms),
                role=key.role,
                device=key.device,
                accelerator=key.accelerator,
                spot=key.spot,
                cause=key.cause,
            )
        )
        billed[use.job] += gpu_ms * hourly
        net += 0 if late else gpu_ms
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
        device=row.device,
        accelerator=row.accelerator,
        spot=row.spot,
    )


def priced_use(row: LedgerRow | LineKey | Line) -> PricedUse:
    """What the price of a row or a line depends on."""
    job = PricedJob(job_id=row.job_id, lane=row.lane, price_version=row.price_version)
    return PricedUse(job, row.role, row.device, row.accelerator, row.spot)


class HourlyPrices:
    """Prices of a GPU-hour out of books, each looked for once."""

    def __init__(self, books: Mapping[str, PriceBook]) -> None:
        self._books = books
        self._known: dict[tuple[object, ...], Micro] = {}

    def hourly_micro(self, use: PricedUse) -> Micro:
        """Raises PriceMissing."""
        key = (use.job.price_version, use.job.lane, *use[1:])
        known = self._known.get(key)
        if known is None:
            known = hourly_micro(self.price(use.job), use.role, use.hardware)
            self._known[key] = known
        return known

    def price(self, job: PricedJob) -> Price:
        """The prices of a job. Raises PriceMissing."""
        return lane_price(book_of(self._books, job.price_version, job.lane), job.lane)


@lru_cache(maxsize=1_000)
def _starts_at(hour_utc: int) -> str:
    return datetime.fromtimestamp(hour_utc * HOUR_MS // 1000, UTC).isoformat()


def _description(key: LineKey, *, late: bool) -> str:
    work = f"{WORK_OF_ROLE[key.role]}{words_of(key.accelerator, spot=key.spot)}"
    if key.is_credit:
        work = f"credit for {work}: {CREDIT_OF_CAUSE.get(key.cause, key.cause)}"
    return f"{work}, late for {period_of(key.hour_utc * HOUR_MS).name}" if late else work


def words_of(accelerator: str, *, spot: bool) -> str:
    """What a line says of its hardware: " on h200, spot"; nothing where nothing was told."""
    return (f" on {accelerator}" if accelerator else "") + (", spot" if spot else "")


def _overage(before: GpuMs, gpu_ms: GpuMs, soft: GpuMs | None) -> GpuMs:
    return 0 if soft is None else max(before + gpu_ms - soft, 0) - max(before - soft, 0)


def book_of(books: Mapping[str, PriceBook], version: str, lane: Lane) -> PriceBook:
    """The book of a version, which has a price for the lane. Raises PriceMissing."""
    book = books.get(version)
    if book is None or lane not in book.gpu_hour_micro:
        raise PriceMissing(f"no price for lane {lane} in version {version!r}; {WHERE_BOOKS_ARE}")
    return book
