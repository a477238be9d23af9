"""Lines of a bill: one for each job, hour, kind and meter; late ones say of which month they are.

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
from schemas.records import build_from
from schemas.submission import Price
from schemas.training import Device, LeaseHardware
from schemas.units import HOUR_MS, GpuMs, Micro, Tokens, month_of
from tunery.billing.periods import BillShare, Period, period_of
from tunery.plan.price import hourly_micro, job_cost, lane_price, line_micro, tokens_micro

Kind: TypeAlias = Literal["usage", "credit"]
Meter: TypeAlias = Literal["time", "tokens"]
WORK_OF_ROLE: Final[Mapping[Role, str]] = {
    "train": "training",
    "eval": "evaluation",
    "serve": "serving",
}
WHERE_BOOKS_ARE: Final = "import it with `tunery prices import <version>.json`"
TRAINED_TOKENS: Final = "trained tokens"
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
    "estimate_exceeded": "time estimate too low",
}


class PriceMissing(Exception):
    """The ledger names a price that no price book has; the message says where to put it."""


class LedgerRow(Struct, frozen=True, kw_only=True):
    """One slice of use (`gpu_ms` is what is billable) or one credit (`gpu_ms` is negative).

    Trained tokens have the sign of the time. They are billed where the book has a price of them.
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
    tokens: Tokens = 0
    journal_partition: int = 0
    incarnation: int = 0
    journal_offset: int = 0


class Line(Struct, frozen=True, kw_only=True):
    """One job, one hour, one kind, of time or of tokens; the other is 0 then.

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
    overage_gpu_ms: GpuMs  # the part above the month's soft limit
    role: Role
    device: Device
    accelerator: str
    spot: bool
    cause: str = ""
    meter: Meter = "time"
    tokens: Tokens = 0
    token_micro_per_million: Micro = 0


class PricedJob(NamedTuple):
    """A job under one price. Its time and its tokens are rounded as two sums.

    A job keeps the price of its admission.
    """

    job_id: str
    lane: Lane
    price_version: str


class PricedUse(NamedTuple):
    """The part of a job's usage that has one hourly price."""

    job: PricedJob
    role: Role
    device: Device
    accelerator: str
    spot: bool

    @property
    def hardware(self) -> LeaseHardware:
        return LeaseHardware(device=self.device, accelerator=self.accelerator, spot=self.spot)


class EarlierUse(NamedTuple):
    """Use of an earlier month that is on earlier bills."""

    hour_utc: int
    use: PricedUse
    gpu_ms: GpuMs
    tokens: Tokens


class BilledUsage(Struct, frozen=True, kw_only=True):
    # rows of the bill, in any order; rows of one line may be summed into one
    rows: tuple[LedgerRow, ...]
    before: Mapping[PricedUse, GpuMs]  # time of the same jobs on earlier bills
    tokens_before: Mapping[PricedJob, Tokens] = {}  # their trained tokens on earlier bills
    # usage on earlier bills, of all jobs, in the months of late rows. Needed if the price book of a
    # late row has volume tiers, or if its month has a price of overage.
    months_before: tuple[EarlierUse, ...] = ()


class LineKey(NamedTuple):
    """The fields by which rows are grouped into a line. Sorts as the lines of an invoice do."""

    hour_utc: int  # number of the UTC hour
    job_id: str
    is_credit: bool  # whether the time is credited
    role: Role
    lane: Lane
    price_version: str
    cause: str  # the cause of a credit
    device: Device
    accelerator: str
    spot: bool
    meter: Meter = "time"


def select_usage(rows: Iterable[LedgerRow], share: BillShare) -> BilledUsage:
    """Return the usage on the bill of `share` from rows of the ledger."""
    billed, before, tokens = [], Counter[PricedUse](), Counter[PricedJob]()
    earlier = list[EarlierUse]()
    for row in rows:
        position = row.hour_utc, row.journal_partition, row.incarnation, row.journal_offset
        if share.has(*position):
            billed.append(row)
        elif share.is_earlier(*position):
            use = priced_use(row)
            before[use] += row.gpu_ms
            tokens[use.job] += row.tokens
            earlier.append(EarlierUse(row.hour_utc, use, row.gpu_ms, row.tokens))
    late = {_month(row.hour_utc) for row in billed if row.hour_utc < share.month.first_hour}
    return BilledUsage(
        rows=tuple(billed),
        before=before,
        tokens_before=tokens,
        months_before=tuple(use for use in earlier if _month(use.hour_utc) in late),
    )


def bill_lines(
    usage: BilledUsage, books: Mapping[str, PriceBook], soft_gpu_ms: GpuMs | None, month: Period
) -> tuple[Line, ...]:
    """The lines of a month's bill, by hour and job. Raises PriceMissing."""
    together: dict[LineKey, list[LedgerRow]] = {}
    prices, net = HourlyPrices(books), 0
    for row in usage.rows:
        if row.gpu_ms or row.used_gpu_ms or not row.tokens:
            together.setdefault(_line_key(row, "time"), []).append(row)
        if row.tokens and prices.price(priced_use(row).job).token_micro_per_million:
            together.setdefault(_line_key(row, "tokens"), []).append(row)
    costs, lines = JobCosts(prices), list[Line]()
    for use, gpu_ms in usage.before.items():
        costs.add_time(use, gpu_ms)
    for job, tokens in usage.tokens_before.items():
        costs.add_tokens(job, tokens)
    for key in sorted(together):
        rows, use = together[key], priced_use(key)
        is_time, late = key.meter == "time", key.hour_utc < month.first_hour
        gpu_ms = sum(row.gpu_ms for row in rows) if is_time else 0
        tokens = 0 if is_time else sum(row.tokens for row in rows)
        amount = costs.add_time(use, gpu_ms) if is_time else costs.add_tokens(use.job, tokens)
        lines.append(
            build_from(
                Line,
                key,
                kind="credit" if key.is_credit else "usage",
                starts_at=_starts_at(key.hour_utc),
                description=_description(key, late=late),
                currency=prices.price(use.job).currency,
                used_gpu_ms=sum(row.used_gpu_ms for row in rows) if is_time else 0,
                gpu_ms=gpu_ms,
                gpu_hour_micro=prices.hourly_micro(use) if is_time else 0,
                amount_micro=amount,
                overage_gpu_ms=0
                if late or soft_gpu_ms is None
                else above(net, gpu_ms, soft_gpu_ms),
                tokens=tokens,
                token_micro_per_million=(
                    0 if is_time else prices.price(use.job).token_micro_per_million
                ),
            )
        )
        net += 0 if late else gpu_ms
    return tuple(lines)


def _line_key(row: LedgerRow, meter: Meter) -> LineKey:
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
        meter=meter,
    )


def priced_use(row: LedgerRow | LineKey | Line) -> PricedUse:
    """Return the fields of a row or line that determine its price."""
    job = PricedJob(job_id=row.job_id, lane=row.lane, price_version=row.price_version)
    return PricedUse(job, row.role, row.device, row.accelerator, row.spot)


class HourlyPrices:
    """Prices of a GPU-hour out of books, each looked for once."""

    def __init__(self, books: Mapping[str, PriceBook]) -> None:
        self._books = books
        self._known: dict[tuple[object, ...], Micro] = {}
        self._prices: dict[tuple[str, Lane], Price] = {}

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
        key = (job.price_version, job.lane)
        known = self._prices.get(key)
        if known is None:
            known = lane_price(book_of(self._books, *key), job.lane)
            self._prices[key] = known
        return known


class JobCosts:
    """Sums of jobs while their lines are made, or what all their lines are."""

    def __init__(self, prices: HourlyPrices) -> None:
        self._prices = prices
        self._times, self._tokens = Counter[PricedJob](), Counter[PricedJob]()

    def add_time(self, use: PricedUse, gpu_ms: GpuMs) -> Micro:
        """Add time to a job; return the rounded cost that it adds. Raises PriceMissing."""
        before, time = self._times[use.job], gpu_ms * self._prices.hourly_micro(use)
        self._times[use.job] = before + time
        return line_micro(before, time)

    def add_tokens(self, job: PricedJob, tokens: Tokens) -> Micro:
        """Add trained tokens to a job; return the rounded cost they add. Raises PriceMissing."""
        price, before = self._prices.price(job).token_micro_per_million, self._tokens[job]
        self._tokens[job] = before + tokens
        return tokens_micro(before + tokens, price) - tokens_micro(before, price)

    def costs(self) -> Mapping[PricedJob, Micro]:
        """Return the cost of each job. Raises PriceMissing."""
        return {
            job: job_cost(self._times[job], self._tokens[job], self._prices.price(job))
            for job in self._times | self._tokens
        }


@lru_cache(maxsize=10_000)
def _month(hour_utc: int) -> str:
    return month_of(hour_utc)


@lru_cache(maxsize=1_000)
def _starts_at(hour_utc: int) -> str:
    return datetime.fromtimestamp(hour_utc * HOUR_MS // 1000, UTC).isoformat()


def _description(key: LineKey, *, late: bool) -> str:
    work = f"{WORK_OF_ROLE[key.role]}{words_of(key.accelerator, spot=key.spot)}"
    if key.meter == "tokens":
        work = TRAINED_TOKENS
    if key.is_credit:
        work = f"credit for {work}: {CREDIT_OF_CAUSE.get(key.cause, key.cause)}"
    return f"{work}, late for {period_of(key.hour_utc * HOUR_MS).name}" if late else work


def words_of(accelerator: str, *, spot: bool) -> str:
    """Return the hardware in a line's description, such as " on h200, spot"; empty if unknown."""
    return (f" on {accelerator}" if accelerator else "") + (", spot" if spot else "")


def above(before: GpuMs, gpu_ms: GpuMs, soft: GpuMs) -> GpuMs:
    """Return how much of `gpu_ms` exceeds a month's soft limit after `before` was used."""
    return max(before + gpu_ms - soft, 0) - max(before - soft, 0)


def book_of(books: Mapping[str, PriceBook], version: str, lane: Lane) -> PriceBook:
    """The book of a version, which has a price for the lane. Raises PriceMissing."""
    book = books.get(version)
    if book is None or lane not in book.gpu_hour_micro:
        raise PriceMissing(f"no price for lane {lane} in version {version!r}; {WHERE_BOOKS_ARE}")
    return book
