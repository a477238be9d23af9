"""Volume tiers: what a month's quantity of a rate takes off, right to the unit; late rows, too."""

from random import Random
from typing import Any

from msgspec.structs import replace

from schemas.billing import BillingTerms, Commitment, Discount, PriceBook, Rate, Tier
from schemas.pool import Role
from schemas.units import HOUR_MS
from tests.unit.tunery.billing.test_invoice import BOOKS, HOUR, MONTH, credit, month, row
from tunery.billing.invoice import Invoice, make_invoices
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import BillShare, Cut, Period, period
from tunery.billing.volume import late_months

TIERS = (Tier(above=2, unit_micro=2_000_000), Tier(above=5, unit_micro=1_000_000))
LANE = Rate(lane="standard", gpu_hour_micro=2_400_000, tiers=TIERS)
TENTH = BillingTerms(discounts=(Discount(reference="K-1", rate_ppm=100_000),))
OCTOBER = period("2026-10")


def tiered(**changes: Any) -> dict[str, PriceBook]:
    return {"2026-11": replace(BOOKS["2026-11"], **({"rates": (LANE,)} | changes))}


def bill(*rows: LedgerRow, books: dict[str, PriceBook] | None = None, **changes: Any) -> Invoice:
    share = BillShare(month=MONTH)
    billed = replace(month(), **changes)
    (invoice,) = make_invoices(billed, select_usage(rows, share), books or tiered())
    return invoice


def hours(count: int, first: int = HOUR) -> list[LedgerRow]:
    """`count` GPU-hours, each of another job."""
    return [row(first + number, job_id=f"ftjob-{number}") for number in range(count)]


def reductions(invoice: Invoice) -> list[int]:
    return [line.amount_micro for line in invoice.volume]


def test_money_b3_each_unit_above_a_quantity_costs_its_own_tier() -> None:
    assert reductions(bill(*hours(2))) == []
    assert reductions(bill(*hours(3))) == [-400_000]
    invoice = bill(*hours(7))
    assert reductions(invoice) == [-3 * 400_000 - 2 * 1_400_000]
    assert invoice.amount_micro == 2 * 2_400_000 + 3 * 2_000_000 + 2 * 1_000_000
    (line,) = invoice.volume
    assert (line.kind, line.reference) == ("volume", "2026-11/standard/2026-11")
    assert line.description == "standard, 2026-11: 2.00 above 2, 1.00 above 5 GPU-hours"


def test_money_b3_jobs_are_listed_at_the_first_price() -> None:
    assert {line.amount_micro for line in bill(*hours(7)).lines} == {2_400_000}


def test_money_b3_credits_of_the_month_are_not_counted() -> None:
    credited = [*hours(3), credit(HOUR_MS)]
    assert reductions(bill(*credited)) == []


def test_money_b3_each_rate_has_a_quantity_of_its_own() -> None:
    evaluation = Rate(lane="standard", gpu_hour_micro=1_000_000, role="eval")
    role: Role = "eval"
    rows = [*hours(2), *(replace(each, role=role) for each in hours(2, HOUR + 100))]
    assert reductions(bill(*rows, books=tiered(rates=(LANE, evaluation)))) == []
    assert len(reductions(bill(*rows))) == 1


def test_money_b3_tokens_have_tiers_of_a_lane() -> None:
    books = tiered(
        rates=(),
        token_micro_per_million=1_000_000,
        token_tiers=(Tier(above=3, unit_micro=400_000),),
    )
    rows = [replace(each, tokens=1_000_000) for each in hours(5)]
    (line,) = bill(*rows, books=books).volume
    assert (line.amount_micro, line.reference) == (-1_200_000, "2026-11/standard/tokens/2026-11")


def test_money_b3_discounts_and_the_commitment_count_what_tiers_take_off() -> None:
    invoice = bill(*hours(3), terms=TENTH)
    assert [line.amount_micro for line in invoice.contract] == [-680_000]
    free = replace(TENTH.discounts[0], rate_ppm=1_000_000)
    assert bill(*hours(7), terms=BillingTerms(discounts=(free,))).amount_micro == 0
    least = Commitment(reference="K-2", amount_micro=7_000_000, currency="EUR")
    invoice = bill(*hours(3), terms=BillingTerms(commitment=least))
    assert [line.amount_micro for line in invoice.contract] == [200_000]


def closed_share(of: Period, late: int, cut: int) -> BillShare:
    return BillShare(month=of, late=Cut(offsets=(late,)), cut=Cut(offsets=(cut,)))


def test_money_b3_a_late_credit_takes_back_the_tier_that_its_use_had_reached() -> None:
    rows = [
        replace(each, journal_offset=offset)
        for offset, each in enumerate([*hours(3, OCTOBER.first_hour), *hours(2)])
    ]
    late = replace(credit(HOUR_MS, OCTOBER.first_hour), job_id="ftjob-0", journal_offset=5)
    october, november = closed_share(OCTOBER, 0, 4), closed_share(MONTH, 4, 9)
    billed = replace(month(), month=OCTOBER)
    (first,) = make_invoices(billed, select_usage([*rows, late], october), tiered())
    (second,) = make_invoices(month(), select_usage([*rows, late], november), tiered())
    assert [line.amount_micro for line in first.volume] == [-400_000]
    assert [(line.period, line.amount_micro) for line in second.volume] == [("2026-10", 400_000)]
    assert sum(line.amount_micro for line in second.lines if line.hour_utc < HOUR) == -2_400_000


def test_money_b3_a_month_that_is_credited_entirely_costs_nothing() -> None:
    random = Random(7)
    for _ in range(50):
        used = [row(HOUR + n, random.randrange(1, HOUR_MS), f"ftjob-{n}") for n in range(9)]
        back = [replace(credit(each.gpu_ms, each.hour_utc), job_id=each.job_id) for each in used]
        assert bill(*used, *back, terms=TENTH).amount_micro == 0
        assert bill(*used, terms=TENTH).amount_micro > 0


def test_months_of_late_rows_are_asked_for_only_where_a_book_has_tiers() -> None:
    late = row(OCTOBER.first_hour)
    assert late_months([late, row()], MONTH, BOOKS, {}) == []
    (asked,) = late_months([late, row()], MONTH, tiered(), {})
    assert (asked.month, asked.price_versions) == (OCTOBER, ["2026-11"])
    assert late_months([row()], MONTH, tiered(), {}) == []
