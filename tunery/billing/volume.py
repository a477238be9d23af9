"""Volume tiers: discounts by a month's quantity of a rate, as lines of the month.

Jobs are priced, held and listed at a rate's first price, which does not depend on what else a month
has. The lower prices of its tiers are a line of the invoice. A line is what all of the month's
quantity takes off less what was taken off before, each rounded once; so a late credit takes back
the tiers that its use had reached, and a month that is credited entirely costs 0.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from schemas.account import Lane
from schemas.billing import PriceBook, Rate, Statement, Tier
from schemas.units import HOUR_MS, PPM, Micro, month_of
from tunery.billing.currency import in_units
from tunery.billing.lines import (
    BilledUsage,
    HourlyPrices,
    LedgerRow,
    Line,
    Meter,
    PricedUse,
    priced_use,
)
from tunery.billing.periods import Period, period
from tunery.plan.price import find_rate, volume_micro

MonthKind: TypeAlias = Literal["volume", "discount", "overage", "commitment"]


class MonthLine(Struct, frozen=True, kw_only=True):
    """A charge or reduction for a whole month, from volume tiers or contract terms."""

    kind: MonthKind
    reference: str  # id of the rate, the discount or the commitment; empty for overage
    description: str  # text for the invoice, with the rate
    amount_micro: Micro  # negative for a reduction
    period: str  # the month of the usage
    lane: str = ""  # the lane of the usage; empty: any


class Volume(NamedTuple):
    """A quantity to which tiers apply: one rate in a month."""

    period: str
    price_version: str
    lane: Lane
    rate: Rate | None  # None: trained tokens

    @property
    def meter(self) -> Meter:
        return "time" if self.rate is not None else "tokens"


def volume_lines(
    lines: Sequence[Line], usage: BilledUsage, books: Mapping[str, PriceBook]
) -> tuple[MonthLine, ...]:
    """Return reductions of these lines, all in one currency, by tier. Raises PriceMissing."""
    tiered = {version: book for version, book in books.items() if has_tiers(book)}
    if not tiered:
        return ()
    prices = HourlyPrices(tiered)
    billed, before = Counter[Volume](), Counter[Volume]()
    for line in lines:
        for volume in _volumes(priced_use(line), month_of(line.hour_utc), tiered, prices):
            if volume.meter == line.meter:
                billed[volume] += line.gpu_ms if line.meter == "time" else line.tokens
    for earlier in usage.months_before:
        for volume in _volumes(earlier.use, month_of(earlier.hour_utc), tiered, prices):
            before[volume] += earlier.gpu_ms if volume.meter == "time" else earlier.tokens
    candidates = (
        _line(volume, before[volume], quantity, tiered[volume.price_version])
        for volume, quantity in billed.items()
    )
    return tuple(sorted((line for line in candidates if line.amount_micro), key=_order))


class LateMonth(NamedTuple):
    """A month that late rows belong to."""

    month: Period
    price_versions: list[str] | None  # price books of the use that matters; None: all


def late_months(
    rows: Iterable[LedgerRow],
    month: Period,
    books: Mapping[str, PriceBook],
    closed: Mapping[str, Statement],
) -> list[LateMonth]:
    """Return the months whose usage on earlier bills is needed for the bill of `month`.

    Volume tiers depend on the month's usage under their book, overage on all of the month's usage.
    """
    tiered = sorted(version for version, book in books.items() if has_tiers(book))
    versions: dict[str, list[str] | None] = {}
    for row in rows:
        name = month_of(row.hour_utc)
        terms = closed[name].terms if name in closed else None
        if row.hour_utc >= month.first_hour:
            continue
        if terms is not None and terms.overage is not None:
            versions[name] = None
        elif row.price_version in tiered:
            versions.setdefault(name, tiered)
    return [LateMonth(period(name), used) for name, used in sorted(versions.items())]


def has_tiers(book: PriceBook) -> bool:
    """True if any price of the book falls with a month's quantity."""
    return bool(book.token_tiers) or any(rate.tiers for rate in book.rates)


def _volumes(
    use: PricedUse, period: str, tiered: Mapping[str, PriceBook], prices: HourlyPrices
) -> Iterator[Volume]:
    """Yield the tiered quantities that a use counts towards: its time and its tokens."""
    _, lane, version = use.job
    if version not in tiered:
        return
    rate = find_rate(prices.price(use.job), use.role, use.hardware)
    if rate is not None and rate.tiers:
        yield Volume(period, version, lane, rate)
    if tiered[version].token_tiers:
        yield Volume(period, version, lane, None)


def _line(volume: Volume, before: int, quantity: int, book: PriceBook) -> MonthLine:
    rate = volume.rate
    if rate is None:
        per, unit_micro, tiers = PPM, book.token_micro_per_million, book.token_tiers
    else:
        per, unit_micro, tiers = HOUR_MS, rate.gpu_hour_micro, rate.tiers
    reduction = volume_micro(before + quantity, per, unit_micro, tiers)
    reduction -= volume_micro(before, per, unit_micro, tiers)
    named = "/".join((volume.price_version, *_names(volume)))
    return MonthLine(
        kind="volume",
        reference=f"{named}/{volume.period}",
        description=f"{', '.join(_names(volume))}, {volume.period}: {_words(tiers, rate)}",
        amount_micro=-reduction,
        period=volume.period,
        lane=volume.lane,
    )


def _names(volume: Volume) -> Iterable[str]:
    rate = volume.rate
    if rate is None:
        return (volume.lane, "tokens")
    spot = {True: "spot", False: "not spot", None: None}[rate.spot]
    named = (rate.lane, rate.role, rate.device, spot)
    return tuple(name for name in named if name is not None)


def _words(tiers: Iterable[Tier], rate: Rate | None) -> str:
    unit = "million tokens" if rate is None else "GPU-hours"
    each = (f"{in_units(tier.unit_micro)} above {tier.above:,}" for tier in tiers)
    return f"{', '.join(each)} {unit}"


def _order(line: MonthLine) -> tuple[str, str]:
    return line.period, line.reference
