"""Contract terms of a month's invoice: discounts, overage, a minimum commitment. Pure functions.

They apply to a whole month, so they are lines of the invoice and not of jobs. Every line is rounded
once, half to even, to the millionth. Late lines count for discounts and overage of their own month,
and for no commitment: that is of the month that the invoice is of.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, Literal, NamedTuple

from schemas.account import LANES
from schemas.billing import BillingTerms, Commitment, Discount, Months, OveragePrice
from schemas.envelope import Reason
from schemas.reasons import refusing
from schemas.units import HOUR_MS, PPM, Micro, divide_half_even
from tunery.billing.currency import is_currency, percent
from tunery.billing.lines import Line
from tunery.billing.periods import Period, in_force, period, period_of
from tunery.billing.volume import MonthLine

DISCOUNTS_MAX: Final = 20
SURCHARGE_PPM_MAX: Final = 10 * PPM
CONTRACT_MICRO_MAX: Final[Micro] = 10**15


class Stranded(NamedTuple):
    """An amount of billing terms in a currency that the tenant's prices do not have in a month."""

    term: Literal["overage", "commitment"]
    currency: str
    month: str
    own: str

    @property
    def reason(self) -> Reason:
        return refusing(
            "terms_in_another_currency",
            term=self.term,
            currency=self.currency,
            period=self.month,
            own=self.own,
        )


class UseOfMonth(NamedTuple):
    """A month's usage that contract terms apply to, all in one currency."""

    lines: Sequence[Line]  # the lines of jobs
    volume: Sequence[MonthLine]  # reductions of these lines by volume tiers
    overage: Sequence[MonthLine]  # surcharges for time above soft limits
    charged_micro: Micro  # cost of storage and answers


def contract_lines(
    terms_of: Mapping[str, BillingTerms], use: UseOfMonth, month: Period, currency: str
) -> tuple[MonthLine, ...]:
    """The lines that follow from the terms for an invoice in `currency` with this use.

    terms_of: terms of the month, and of each earlier one that is closed, for late lines.
    """
    terms = terms_of[month.name]
    discounts = tuple(_discounts(terms_of, use.lines, use.volume))
    months_own = sum(line.amount_micro for line in use.lines if not _is_late(line, month))
    months_own += use.charged_micro
    monthly = (*use.volume, *discounts, *use.overage)
    months_own += sum(line.amount_micro for line in monthly if line.period == month.name)
    commitment = tuple(_commitment(terms.commitment, months_own, month, currency))
    return (*discounts, *use.overage, *commitment)


def refuse_contract(terms: BillingTerms, currency: str | None) -> tuple[Reason, str] | None:
    """Why these terms cannot be set, and the parameter that is wrong; None: they can.

    currency: the tenant's, None: it is not known.
    """
    if reason := _refuse_discounts(terms.discounts):
        return reason, "discounts"
    if reason := _refuse_overage(terms.overage, currency):
        return reason, "overage"
    if reason := _refuse_commitment(terms.commitment, currency):
        return reason, "commitment"
    return None


def find_stranded(
    terms: Mapping[str, BillingTerms], currencies: Mapping[str, str | None], first: str
) -> Stranded | None:
    """The first amount that would be in another currency than prices, from a month on.

    terms, currencies: month → what holds from it on; a currency that is None is not known.
    """
    months = sorted({first, *(name for name in (*terms, *currencies) if name > first)})
    for begins, ends in zip_longest(months, months[1:]):
        own = in_force(currencies, begins, None)
        held = in_force(terms, begins, BillingTerms())
        overage, commitment = held.overage, held.commitment
        if own is None:
            continue
        if overage and overage.gpu_hour_micro is not None and overage.currency != own:
            return Stranded("overage", overage.currency, begins, own)
        if commitment and commitment.currency != own:
            due = commitment.months
            month = max(begins, due.first or begins)
            if (due.last is None or month <= due.last) and (ends is None or month < ends):
                return Stranded("commitment", commitment.currency, month, own)
    return None


def is_in(months: Months, name: str) -> bool:
    """True if the month of this name is within the range."""
    return (months.first is None or months.first <= name) and (
        months.last is None or name <= months.last
    )


def _is_late(line: Line, month: Period) -> bool:
    return line.hour_utc < month.first_hour


def _discounts(
    terms_of: Mapping[str, BillingTerms], lines: Iterable[Line], volume: Iterable[MonthLine]
) -> Iterator[MonthLine]:
    """Each discount with the month of use that it is of; late use has the discounts of its month.

    So a late credit takes back the discount that its use had, whatever was agreed since.
    """
    if not any(terms.discounts for terms in terms_of.values()):
        return
    listed: dict[str, Counter[str]] = {}
    for line in lines:
        of_month = listed.setdefault(period_of(line.hour_utc * HOUR_MS).name, Counter())
        of_month[line.lane] += line.amount_micro
    for reduction in volume:
        listed.setdefault(reduction.period, Counter())[reduction.lane] += reduction.amount_micro
    for name, of_month in sorted(listed.items()):
        agreed = terms_of.get(name, BillingTerms())
        for discount in agreed.discounts:
            if is_in(discount.months, name):
                lanes = of_month if discount.lane is None else (discount.lane,)
                list_micro = sum(of_month.get(lane, 0) for lane in lanes)
                amount = -divide_half_even(list_micro * discount.rate_ppm, PPM)
                words = f"{discount.reference}, {name}: {percent(discount.rate_ppm)} off"
                words += "" if discount.lane is None else f" lane {discount.lane}"
                yield MonthLine(
                    kind="discount",
                    reference=f"{discount.reference}/{name}",
                    description=words,
                    amount_micro=amount,
                    period=name,
                    lane=discount.lane or "",
                )


def _commitment(
    commitment: Commitment | None, used_micro: Micro, month: Period, currency: str
) -> Iterator[MonthLine]:
    """Yield the line that raises usage to the committed minimum.

    Adjustments do not count as usage, so a goodwill credit is not offset.
    """
    if commitment is None or committed_currency(commitment, month) != currency:
        return
    missing = commitment.amount_micro - used_micro
    if missing > 0:
        yield MonthLine(
            kind="commitment",
            reference=commitment.reference,
            description=f"{commitment.reference}: up to the month's minimum",
            amount_micro=missing,
            period=month.name,
        )


def committed_currency(commitment: Commitment | None, month: Period) -> str | None:
    """The currency of the invoice that a minimum is on, None: there is none in this month."""
    if commitment is None or not is_in(commitment.months, month.name):
        return None
    return commitment.currency


def _refuse_discounts(discounts: Sequence[Discount]) -> Reason | None:
    if len(discounts) > DISCOUNTS_MAX:
        return refusing("discounts_at_most", limit=DISCOUNTS_MAX)
    if len({discount.reference for discount in discounts}) != len(discounts):
        return refusing("discount_references")
    for discount in discounts:
        if not 0 < discount.rate_ppm <= PPM:
            return refusing("discount_out_of_range", reference=discount.reference)
        if _are_wrong(discount.months):
            return refusing("months_malformed", reference=discount.reference)
    for lane in LANES:
        for begins in discounts:  # where most overlap, one of them begins
            name = begins.months.first or ""
            together = sum(
                discount.rate_ppm
                for discount in discounts
                if discount.lane in (None, lane) and is_in(discount.months, name)
            )
            if together > PPM:
                return refusing("discounts_above_all", lane=lane)
    return None


def _refuse_overage(price: OveragePrice | None, currency: str | None) -> Reason | None:
    if price is None:
        return None
    if price.gpu_hour_micro is None:
        in_range = 0 < price.surcharge_ppm <= SURCHARGE_PPM_MAX
    else:
        in_range = price.surcharge_ppm == 0 and 0 <= price.gpu_hour_micro <= CONTRACT_MICRO_MAX
    if not in_range:
        return refusing("overage_out_of_range", limit=SURCHARGE_PPM_MAX)
    if price.gpu_hour_micro is not None:
        return refuse_currency(price.currency, currency)
    return None


def _refuse_commitment(commitment: Commitment | None, currency: str | None) -> Reason | None:
    if commitment is None:
        return None
    if not 0 < commitment.amount_micro <= CONTRACT_MICRO_MAX:
        return refusing("commitment_out_of_range", limit=CONTRACT_MICRO_MAX)
    if _are_wrong(commitment.months):
        return refusing("months_malformed", reference=commitment.reference)
    return refuse_currency(commitment.currency, currency)


def refuse_currency(code: str, own: str | None) -> Reason | None:
    """Why an amount cannot be in this currency, None: it can. `own`: the tenant's, where known."""
    if not is_currency(code):
        return refusing("currency_malformed")
    if own is not None and code != own:
        return refusing("currency_of_another", currency=code, own=own)
    return None


def is_month(name: str) -> bool:
    """True if a name is a month written as YYYY-MM."""
    try:
        return period(name).name == name
    except (ValueError, OverflowError):
        return False


def _are_wrong(months: Months) -> bool:
    names = [name for name in (months.first, months.last) if name is not None]
    return not all(map(is_month, names)) or names != sorted(names)
