"""Surcharges on GPU time above a month's soft limit, as lines of the month.

Time counts towards the limit in the order of its hours, in an hour job by job, credits taken off.
A price of overage replaces lower prices, after volume tiers: time above the limit never costs less
than below it, so more use never costs less. A surcharge is on the list price.

A line is the overage of all time of the month less what earlier bills have of it, each rounded
once. So a late credit gives back the overage that its use had, and late use pays its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from schemas.account import Lane
from schemas.billing import BillingTerms, OveragePrice, PriceBook, Rate, Tier
from schemas.units import HOUR_MS, PPM, GpuMs, Micro, divide_half_even, month_of
from tunery.billing.currency import in_units, percent
from tunery.billing.lines import BilledUsage, EarlierUse, HourlyPrices, PricedUse, above, priced_use
from tunery.billing.periods import Period
from tunery.billing.volume import MonthLine
from tunery.plan.price import find_rate


class Limit(NamedTuple):
    """A month's soft limit, None: it has none; and what time above it costs."""

    soft_gpu_ms: GpuMs | None
    price: OveragePrice | None


def limit_of(soft_gpu_ms: GpuMs | None, terms: BillingTerms | None) -> Limit:
    return Limit(soft_gpu_ms, None if terms is None else terms.overage)


def overage_lines(
    usage: BilledUsage,
    limits: Mapping[str, Limit],
    books: Mapping[str, PriceBook],
    month: Period,
    currency: str,
) -> tuple[MonthLine, ...]:
    """The lines of an invoice in `currency`: one for the month, and for each that is late.

    limits: limits of the month and of earlier ones that are closed. Raises PriceMissing.
    """
    before: dict[str, list[EarlierUse]] = {}
    billed: dict[str, list[EarlierUse]] = {month.name: []}
    for earlier in usage.months_before:
        before.setdefault(month_of(earlier.hour_utc), []).append(earlier)
    for row in usage.rows:
        use = EarlierUse(row.hour_utc, priced_use(row), row.gpu_ms, row.tokens)
        billed.setdefault(month_of(row.hour_utc), []).append(use)
    lines = list[MonthLine]()
    for name, uses in sorted(billed.items()):
        limit = limits.get(name)
        if limit is None or limit.price is None or limit.soft_gpu_ms is None:
            continue
        price, earlier_uses = limit.price, before.get(name, [])
        costs = _Overage(price, limit.soft_gpu_ms, books, currency)
        amount = costs.micro([*earlier_uses, *uses]) - costs.micro(earlier_uses)
        if amount:
            late = f", late for {name}" if name < month.name else ""
            lines.append(
                MonthLine(
                    kind="overage",
                    reference=name if late else "",
                    description=f"GPU time above the soft limit{late}: {_words(price)}",
                    amount_micro=amount,
                    period=name,
                )
            )
    return tuple(lines)


class _Overage:
    """Overage of one month in one currency."""

    def __init__(
        self, price: OveragePrice, soft: GpuMs, books: Mapping[str, PriceBook], currency: str
    ) -> None:
        self._price, self._soft, self._currency = price, soft, currency
        self._prices = HourlyPrices(books)

    def micro(self, uses: Iterable[EarlierUse]) -> Micro:
        """Return the overage surcharge for all of this usage, rounded half to even."""
        if self._price.gpu_hour_micro is not None and self._price.currency != self._currency:
            return 0
        net = Counter[tuple[int, PricedUse]]()
        for used in uses:
            net[used.hour_utc, used.use] += used.gpu_ms
        total, exact = 0, 0
        quantities = Counter[tuple[str, Lane, Rate | None]]()
        for (_, use), gpu_ms in sorted(net.items()):
            over = above(total, gpu_ms, self._soft)
            total += gpu_ms
            price = self._prices.price(use.job)
            rate = find_rate(price, use.role, use.hardware)
            counted = (use.job.price_version, use.job.lane, rate)
            quantities[counted] += gpu_ms
            if price.currency != self._currency:
                continue
            listed, tiers = self._prices.hourly_micro(use), rate.tiers if rate else ()
            if self._price.gpu_hour_micro is None:
                exact += over * listed * self._price.surcharge_ppm
            else:
                # what is above the limit is the newest of what the rate has so far
                end = quantities[counted]
                exact += self._dearer(end, listed, tiers) * PPM
                exact -= self._dearer(end - over, listed, tiers) * PPM
        return divide_half_even(exact, HOUR_MS * PPM)

    def _dearer(self, quantity: GpuMs, listed: Micro, tiers: Iterable[Tier]) -> int:
        """Return the exact surcharge for a month's first `quantity` of a rate, all of it overage.

        `listed` is the rate's list price, and `tiers` are its volume tiers. The unit is micro × ms.
        """
        agreed = self._price.gpu_hour_micro or 0
        more = max(agreed - listed, 0)
        exact = quantity * more
        for tier in tiers:
            next_more = max(agreed - tier.unit_micro, 0)
            exact += max(quantity - tier.above * HOUR_MS, 0) * (next_more - more)
            more = next_more
        return exact


def _words(price: OveragePrice) -> str:
    if price.gpu_hour_micro is None:
        return f"{percent(price.surcharge_ppm)} more"
    return f"{in_units(price.gpu_hour_micro)} {price.currency} a GPU-hour instead of less"
