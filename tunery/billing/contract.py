"""Contract terms of a month's invoice: discounts, overage, a minimum commitment. Pure functions.

They apply to a whole month, so they are lines of the invoice and not of jobs. Every line is rounded
once, half to even, to the millionth. Late lines count for the discounts of their own month, and
neither for overage nor for a commitment: those are of the month that the invoice is of.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from schemas.account import LANES
from schemas.billing import BillingTerms, Commitment, Discount, Months, OveragePrice
from schemas.envelope import Reason
from schemas.reasons import refusing
from schemas.units import HOUR_MS, PPM, Micro, divide_half_even
from tunery.billing.currency import in_units, is_currency, percent
from tunery.billing.lines import Line
from tunery.billing.periods import Period, period, period_of
from tunery.billing.volume import MonthLine

DISCOUNTS_MAX: Final = 20
SURCHARGE_PPM_MAX: Final = 10 * PPM
CONTRACT_MICRO_MAX: Final[Micro] = 10**15


class UseOfMonth(NamedTuple):
    """What terms are applied to, all in one currency.

    lines: of jobs.
    volume: what volume tiers take off them.
    charged_micro: what storage and answers cost.
    """

    lines: Sequence[Line]
    volume: Sequence[MonthLine]
    charged_micro: Micro


def contract_lines(
    terms: BillingTerms, use: UseOfMonth, month: Period, currency: str, *, is_own: bool
) -> tuple[MonthLine, ...]:
    """The lines that follow from the terms for an invoice in `currency` with this use.

    is_own: whether it is the invoice in the tenant's own currency, the only one with a commitment.
    """
    discounts = tuple(_discounts(terms, use.lines, use.volume))
    overage = tuple(_overage(terms.overage, use.lines, month, currency))
    months_own = sum(line.amount_micro for line in use.lines if not _is_late(line, month))
    months_own += use.charged_micro
    monthly = (*use.volume, *discounts, *overage)
    months_own += sum(line.amount_micro for line in monthly if line.period == month.name)
    commitment = tuple(_commitment(terms.commitment, months_own, month, currency)) if is_own else ()
    return (*discounts, *overage, *commitment)


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


def is_in(months: Months, name: str) -> bool:
    """Whether the month of this name is one of them."""
    return (months.first is None or months.first <= name) and (
        months.last is None or name <= months.last
    )


def _is_late(line: Line, month: Period) -> bool:
    return line.hour_utc < month.first_hour


def _discounts(
    terms: BillingTerms, lines: Iterable[Line], volume: Iterable[MonthLine]
) -> Iterator[MonthLine]:
    """Each discount with the month of use that it is of; late use is discounted by its own month.

    So a late credit takes back the discount that its use had.
    """
    if not terms.discounts:
        return
    listed: dict[str, Counter[str]] = {}
    for line in lines:
        of_month = listed.setdefault(period_of(line.hour_utc * HOUR_MS).name, Counter())
        of_month[line.lane] += line.amount_micro
    for reduction in volume:
        listed.setdefault(reduction.period, Counter())[reduction.lane] += reduction.amount_micro
    for discount in terms.discounts:
        for name, of_month in sorted(listed.items()):
            if is_in(discount.months, name):
                amount = _discounted(discount, of_month)
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


def _discounted(discount: Discount, listed: Mapping[str, Micro]) -> Micro:
    lanes = listed if discount.lane is None else (discount.lane,)
    list_micro = sum(listed.get(lane, 0) for lane in lanes)
    return -divide_half_even(list_micro * discount.rate_ppm, PPM)


def _overage(
    price: OveragePrice | None, lines: Iterable[Line], month: Period, currency: str
) -> Iterator[MonthLine]:
    """What time above the soft limit costs besides its list price."""
    if price is None:
        return
    over = [line for line in lines if line.overage_gpu_ms]
    if not over:
        return
    if price.gpu_hour_micro is None:
        exact = sum(line.overage_gpu_ms * line.gpu_hour_micro for line in over)
        amount = divide_half_even(exact * price.surcharge_ppm, HOUR_MS * PPM)
        words = f"{percent(price.surcharge_ppm)} more"
    elif price.currency == currency:
        exact = sum(
            line.overage_gpu_ms * (price.gpu_hour_micro - line.gpu_hour_micro) for line in over
        )
        amount = divide_half_even(exact, HOUR_MS)
        words = f"{in_units(price.gpu_hour_micro)} {currency} a GPU-hour instead of the list price"
    else:
        return
    yield MonthLine(
        kind="overage",
        reference="",
        description=f"GPU time above the soft limit: {words}",
        amount_micro=amount,
        period=month.name,
    )


def _commitment(
    commitment: Commitment | None, used_micro: Micro, month: Period, currency: str
) -> Iterator[MonthLine]:
    """What is missing of the minimum. Adjustments do not count: a goodwill credit stays one."""
    if commitment is None or commitment.currency != currency:
        return
    missing = commitment.amount_micro - used_micro
    if missing > 0 and is_in(commitment.months, month.name):
        yield MonthLine(
            kind="commitment",
            reference=commitment.reference,
            description=f"{commitment.reference}: up to the month's minimum",
            amount_micro=missing,
            period=month.name,
        )


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
    """Whether it is written like 2026-11."""
    try:
        return period(name).name == name
    except (ValueError, OverflowError):
        return False


def _are_wrong(months: Months) -> bool:
    names = [name for name in (months.first, months.last) if name is not None]
    return not all(map(is_month, names)) or names != sorted(names)
