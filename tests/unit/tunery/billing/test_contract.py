"""Contract terms: discounts, overage and commitments as lines of the month, right to the unit."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.billing import (
    BillingTerms,
    Commitment,
    Discount,
    InvoiceAdjustment,
    Months,
    OveragePrice,
    Statement,
    TaxRate,
)
from schemas.units import HOUR_MS, PPM
from tests.unit.tunery.billing.test_invoice import BOOKS, HOUR, MONTH, bills, credit, month, row
from tunery.billing.contract import is_month, refuse_contract
from tunery.billing.invoice import Invoice, make_invoices
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import BillShare, Cut

TENTH = Discount(reference="K-1", rate_ppm=100_000)
MINIMUM = Commitment(reference="K-2", amount_micro=5_000_000, currency="EUR")
NOVEMBER = Months(first="2026-11", last="2026-11")


def bill_under(terms: BillingTerms, *rows: LedgerRow, **changes: Any) -> Invoice:
    """The invoice of rows that all came after the month before was closed."""
    share = BillShare(month=MONTH, late=Cut(offsets=(0,)))
    billed = replace(month(), terms=terms, **changes)
    (invoice,) = make_invoices(billed, select_usage(rows, share), BOOKS)
    return invoice


def closed(name: str, terms: BillingTerms, soft_gpu_ms: int = 0) -> dict[str, Statement]:
    """A month that is closed, by these terms."""
    statement = Statement(
        period=name,
        cut=(0,),
        currency="EUR",
        soft_gpu_ms=soft_gpu_ms,
        gpu_ms=0,
        amount_micro=0,
        terms=terms,
    )
    return {name: statement}


def added(invoice: Invoice) -> list[tuple[str, str, int]]:
    return [(line.kind, line.reference, line.amount_micro) for line in invoice.contract]


def test_a_discount_is_a_line_before_taxes() -> None:
    vat = TaxRate(name="VAT", rate_ppm=190_000)
    invoice = bill_under(BillingTerms(discounts=(TENTH,), taxes=(vat,)), row())
    assert added(invoice) == [("discount", "K-1/2026-11", -240_000)]
    assert (invoice.net_micro, invoice.total_micro) == (2_160_000, 2_570_000)


def test_a_discount_is_of_its_lane_and_its_months() -> None:
    premium = replace(row(job_id="ftjob-2"), lane="premium")
    terms = BillingTerms(discounts=(replace(TENTH, lane="premium", months=NOVEMBER),))
    assert added(bill_under(terms, row(), premium)) == [("discount", "K-1/2026-11", -320_000)]
    december = replace(TENTH, months=Months(first="2026-12"))
    assert added(bill_under(BillingTerms(discounts=(december,)), row())) == []


def test_a_late_credit_takes_back_the_discount_of_its_own_month() -> None:
    late = credit(HOUR_MS, MONTH.first_hour - 1)
    october = closed("2026-10", BillingTerms(discounts=(TENTH,)))
    invoice = bill_under(BillingTerms(), row(), late, closed=october)
    assert added(invoice) == [("discount", "K-1/2026-10", 240_000)]


def test_a_job_that_is_credited_entirely_costs_nothing_under_any_discount() -> None:
    invoice = bill_under(BillingTerms(discounts=(TENTH,)), row(), credit(HOUR_MS))
    assert invoice.amount_micro == 0


@pytest.mark.parametrize(
    ("price", "amount"),
    [
        (OveragePrice(surcharge_ppm=500_000), 1_200_000),
        (OveragePrice(gpu_hour_micro=3_000_000, currency="EUR"), 600_000),
        (OveragePrice(gpu_hour_micro=3_000_000, currency="USD"), None),
    ],
)
def test_time_above_the_soft_limit_costs_more(price: OveragePrice, amount: int | None) -> None:
    rows = (row(), row(HOUR + 1), credit(HOUR_MS // 2, HOUR + 1), row(HOUR + 2, HOUR_MS // 2))
    invoice = bill_under(BillingTerms(overage=price), *rows, soft_gpu_ms=HOUR_MS)
    assert invoice.overage_gpu_ms == HOUR_MS
    assert added(invoice) == ([] if amount is None else [("overage", "", amount)])
    assert added(bill_under(BillingTerms(overage=price), *rows)) == []


def test_money_b4_a_late_credit_gives_back_the_list_price_and_no_overage() -> None:
    terms = BillingTerms(overage=OveragePrice(surcharge_ppm=500_000))
    late = credit(HOUR_MS, MONTH.first_hour - 1)
    invoice = bill_under(terms, late, soft_gpu_ms=0)
    assert (added(invoice), invoice.overage_gpu_ms) == ([], 0)
    assert invoice.amount_micro == -2_400_000


def test_a_month_below_its_minimum_gets_a_line_up_to_it() -> None:
    terms = BillingTerms(discounts=(TENTH,), commitment=MINIMUM)
    invoice = bill_under(terms, row())
    assert added(invoice)[-1] == ("commitment", "K-2", 2_840_000)
    assert invoice.amount_micro == 5_000_000
    assert bill_under(terms).amount_micro == 5_000_000  # and without any use
    above = bill_under(terms, row(), row(HOUR + 1), row(HOUR + 2))
    assert [kind for kind, _, _ in added(above)] == ["discount"]


def test_neither_adjustments_nor_late_lines_count_for_the_minimum() -> None:
    goodwill = InvoiceAdjustment(
        reference="T-1", reason="goodwill", currency="EUR", amount_micro=-1_000_000
    )
    terms = BillingTerms(commitment=MINIMUM)
    late = credit(HOUR_MS, MONTH.first_hour - 1)
    invoice = bill_under(terms, row(), late, adjustments=(goodwill,))
    assert added(invoice) == [("commitment", "K-2", 2_600_000)]
    assert invoice.amount_micro == 5_000_000 - 2_400_000 - 1_000_000


def test_a_commitment_is_on_the_invoice_in_the_tenants_currency_alone() -> None:
    terms = BillingTerms(commitment=MINIMUM)
    dollars = replace(row(), price_version="usd")
    invoices = bills(replace(month(), terms=terms), dollars)
    assert [(entry.currency, added(entry)) for entry in invoices] == [
        ("EUR", [("commitment", "K-2", 5_000_000)]),
        ("USD", []),
    ]
    outside = replace(MINIMUM, months=Months(last="2026-10"))
    assert added(bill_under(BillingTerms(commitment=outside), row())) == []


@pytest.mark.parametrize(
    ("terms", "code", "param"),
    [
        ({"discounts": (replace(TENTH, rate_ppm=-1),)}, "discount_out_of_range", "discounts"),
        ({"discounts": (replace(TENTH, rate_ppm=PPM + 1),)}, "discount_out_of_range", "discounts"),
        ({"discounts": (TENTH, TENTH)}, "discount_references", "discounts"),
        (
            {
                "discounts": (
                    replace(TENTH, rate_ppm=600_000, months=Months(last="2026-12")),
                    replace(TENTH, reference="K-9", rate_ppm=500_000, lane="free", months=NOVEMBER),
                )
            },
            "discounts_above_all",
            "discounts",
        ),
        (
            {"discounts": tuple(replace(TENTH, reference=f"K-{at}") for at in range(21))},
            "discounts_at_most",
            "discounts",
        ),
        (
            {"discounts": (replace(TENTH, months=Months(first="2026-13")),)},
            "months_malformed",
            "discounts",
        ),
        (
            {"discounts": (replace(TENTH, months=Months(first="2026-12", last="2026-11")),)},
            "months_malformed",
            "discounts",
        ),
        ({"overage": OveragePrice()}, "overage_out_of_range", "overage"),
        ({"overage": OveragePrice(surcharge_ppm=-1)}, "overage_out_of_range", "overage"),
        (
            {"overage": OveragePrice(gpu_hour_micro=-1, currency="EUR")},
            "overage_out_of_range",
            "overage",
        ),
        (
            {"overage": OveragePrice(gpu_hour_micro=1, currency="USD")},
            "currency_of_another",
            "overage",
        ),
        ({"commitment": replace(MINIMUM, amount_micro=0)}, "commitment_out_of_range", "commitment"),
        ({"commitment": replace(MINIMUM, currency="euro")}, "currency_malformed", "commitment"),
        ({"commitment": replace(MINIMUM, currency="USD")}, "currency_of_another", "commitment"),
        (
            {"commitment": replace(MINIMUM, months=Months(last="soon"))},
            "months_malformed",
            "commitment",
        ),
    ],
)
def test_terms_that_make_no_sense_are_named(terms: dict[str, Any], code: str, param: str) -> None:
    refused = refuse_contract(BillingTerms(**terms), "EUR")
    assert refused is not None
    assert (refused[0].code, refused[1]) == (code, param)


def test_discounts_of_different_months_may_each_be_all() -> None:
    whole = replace(TENTH, rate_ppm=PPM, months=NOVEMBER)
    other = replace(whole, reference="K-9", months=Months(first="2026-12"))
    assert refuse_contract(BillingTerms(discounts=(whole, other), commitment=MINIMUM), None) is None
    assert [is_month(name) for name in ("2026-11", "2026-1", "11-2026", "")] == [
        True,
        *(False,) * 3,
    ]
