"""Invoices: sums right to the unit, one rounding a line, the month's edges."""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.billing import BillingTerms, InvoiceAdjustment, PriceBook, TaxRate
from schemas.units import HOUR_MS
from tunery.billing.invoice import BilledMonth, Invoice, make_invoices
from tunery.billing.lines import LedgerRow, PriceMissing, select_usage
from tunery.billing.periods import BillShare, period
from tunery.plan.price import line_micro, usage_micro

BOOKS = {
    version: PriceBook(
        version=version,
        currency="EUR",
        gpu_hour_micro={"premium": 3_200_000, "standard": per_hour, "free": 0},
        token_micro_per_million=0,
    )
    for version, per_hour in (("2026-11", 2_400_000), ("2026-12", 2_399_999))
}
DOLLARS = replace(BOOKS["2026-11"], version="usd", currency="USD")
YEN = replace(BOOKS["2026-11"], version="jpy", currency="JPY")
MONTH = period("2026-11")
HOUR = MONTH.first_hour + 13


def row(hour_utc: int = HOUR, gpu_ms: int = HOUR_MS, job_id: str = "ftjob-1") -> LedgerRow:
    return LedgerRow(
        kind="usage",
        job_id=job_id,
        role="train",
        lane="standard",
        price_version="2026-11",
        hour_utc=hour_utc,
        used_gpu_ms=gpu_ms,
        gpu_ms=gpu_ms,
    )


def credit(gpu_ms: int, hour_utc: int = HOUR) -> LedgerRow:
    return replace(row(hour_utc), kind="credit", used_gpu_ms=0, gpu_ms=-gpu_ms, cause="lost")


def month(**changes: Any) -> BilledMonth:
    """A month of a tenant without a limit."""
    return BilledMonth(tenant="acme", month=MONTH, soft_gpu_ms=None, currency="EUR", **changes)


def bills(billed: BilledMonth, *rows: LedgerRow) -> tuple[Invoice, ...]:
    books = {**BOOKS, "usd": DOLLARS, "jpy": YEN}
    return make_invoices(billed, select_usage(rows, BillShare(month=MONTH)), books)


def bill(*rows: LedgerRow, soft: int | None = None) -> Invoice:
    (invoice,) = bills(replace(month(), soft_gpu_ms=soft), *rows)
    return invoice


def test_the_example_of_the_architecture() -> None:
    """2 slots, 8,400,000 used, 8,000,000 billable over two hours, 560,000 credited."""
    invoiced = bill(
        replace(row(HOUR, 4_800_000), used_gpu_ms=4_800_000),
        replace(row(HOUR + 1, 3_200_000), used_gpu_ms=3_600_000),
        credit(560_000, HOUR + 1),
    )
    assert [line.kind for line in invoiced.lines] == ["usage", "usage", "credit"]
    assert (invoiced.used_gpu_ms, invoiced.gpu_ms, invoiced.credited_gpu_ms) == (
        8_400_000,
        7_440_000,
        560_000,
    )
    assert [line.amount_micro for line in invoiced.lines] == [3_200_000, 2_133_333, -373_333]
    assert invoiced.amount_micro == 4_960_000
    assert "machine lost" in invoiced.lines[2].description


def test_slices_of_one_job_and_hour_are_one_line_and_one_rounding() -> None:
    invoiced = bill(row(gpu_ms=1), row(gpu_ms=1), row(gpu_ms=1))
    (line,) = invoiced.lines
    assert line.gpu_ms == 3
    assert line.amount_micro == usage_micro(3 * 2_400_000) == 2


def test_half_units_are_rounded_to_even() -> None:
    half_hour = HOUR_MS // 2
    assert [usage_micro(half_hour * price) for price in (1, 3, 5)] == [0, 2, 2]
    assert line_micro(0, -half_hour * 3) == -2


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**9))
def test_time_is_rounded_as_decimals_are(gpu_ms: int, price: int) -> None:
    exact = Context(prec=60, rounding=ROUND_HALF_EVEN)
    amount = exact.divide(Decimal(gpu_ms * price), Decimal(HOUR_MS))
    assert usage_micro(gpu_ms * price) == amount.quantize(Decimal(1), context=exact)


def test_only_hours_of_the_month_count() -> None:
    assert bill(row(MONTH.first_hour - 1), row(MONTH.end_hour)).lines == ()
    assert len(bill(row(MONTH.first_hour), row(MONTH.end_hour - 1)).lines) == 2
    assert MONTH.end_hour - MONTH.first_hour == 30 * 24
    assert period("2028-02").end_hour - period("2028-02").first_hour == 29 * 24


def test_usage_above_the_soft_limit_is_marked_as_overage() -> None:
    invoiced = bill(row(), row(HOUR + 1), credit(HOUR_MS, HOUR + 2), soft=HOUR_MS + 1000)
    assert [line.overage_gpu_ms for line in invoiced.lines] == [0, HOUR_MS - 1000, 1000 - HOUR_MS]
    assert invoiced.overage_gpu_ms == 0


def test_a_price_that_is_in_no_book_is_named() -> None:
    with pytest.raises(PriceMissing, match="2027-01"):
        bill(replace(row(), price_version="2027-01"))


def test_money_b7_each_currency_has_an_invoice() -> None:
    goodwill = InvoiceAdjustment(
        reference="T-1", reason="goodwill", currency="GBP", amount_micro=-1_000_000
    )
    rows = (row(), replace(row(job_id="ftjob-2"), price_version="usd"))
    invoices = bills(month(adjustments=(goodwill,)), *rows)
    assert [(entry.currency, entry.amount_micro) for entry in invoices] == [
        ("EUR", 2_400_000),
        ("GBP", -1_000_000),
        ("USD", 2_400_000),
    ]


def test_money_b7_nothing_in_the_currency_of_the_tenant_is_no_invoice() -> None:
    (dollars,) = bills(month(), replace(row(), price_version="usd"))
    assert dollars.currency == "USD"
    (empty,) = bills(month())
    assert (empty.currency, empty.total_micro, empty.status) == ("EUR", 0, "draft")


TAXES = BillingTerms(
    taxes=(TaxRate(name="VAT", rate_ppm=190_000), TaxRate(name="levy", rate_ppm=5_000))
)


def test_an_invoice_is_rounded_once_to_what_can_be_paid_and_taxed_by_rate() -> None:
    (invoice,) = bills(month(terms=TAXES), row(gpu_ms=1_234_567))  # 0.823045
    assert (invoice.net_micro, invoice.rounding_micro) == (820_000, -3_045)
    assert [tax.amount_micro for tax in invoice.taxes] == [160_000, 0]
    assert invoice.total_micro == 980_000


def test_the_smallest_amount_depends_on_the_currency() -> None:
    (yen,) = bills(month(terms=TAXES), replace(row(), price_version="jpy"))
    assert (yen.amount_micro, yen.net_micro, yen.total_micro) == (2_400_000, 2_000_000, 2_000_000)


def test_adjustments_are_on_the_invoice_and_in_its_sum() -> None:
    goodwill = InvoiceAdjustment(
        reference="T-1", reason="goodwill", currency="EUR", amount_micro=-1_000_000
    )
    (invoice,) = bills(month(adjustments=(goodwill,)), row())
    assert invoice.amount_micro == invoice.lines[0].amount_micro - 1_000_000


@pytest.mark.parametrize("name", ["2026", "2026-13", "11-2026", "", "2026-11-01"])
def test_a_month_is_written_one_way(name: str) -> None:
    with pytest.raises(ValueError, match="2026-11"):
        period(name)


ROWS = st.builds(
    LedgerRow,
    kind=st.just("usage"),
    job_id=st.sampled_from(["ftjob-1", "ftjob-2"]),
    role=st.sampled_from(["train", "eval"]),
    lane=st.sampled_from(["premium", "standard", "free"]),
    price_version=st.sampled_from(["2026-11", "2026-12"]),
    hour_utc=st.integers(MONTH.first_hour, MONTH.first_hour + 5),
    used_gpu_ms=st.integers(0, 10**9),
    gpu_ms=st.integers(0, 10**9),
)


@given(st.lists(ROWS, max_size=30), st.randoms(use_true_random=False), st.integers(0, 10**9))
def test_sums_equal_the_ledger_in_any_order(
    rows: list[LedgerRow], random: Random, soft: int
) -> None:
    invoiced = bill(*rows, soft=soft)
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert bill(*shuffled, soft=soft) == invoiced
    assert invoiced.gpu_ms == sum(usage.gpu_ms for usage in rows)
    assert invoiced.used_gpu_ms == sum(usage.used_gpu_ms for usage in rows)
    assert invoiced.amount_micro == sum(line.amount_micro for line in invoiced.lines)
    assert invoiced.overage_gpu_ms == max(invoiced.gpu_ms - soft, 0)
    for line in invoiced.lines:
        exact = Decimal(line.gpu_ms) * line.gpu_hour_micro / HOUR_MS
        assert abs(exact - line.amount_micro) <= 1
    assert invoiced.net_micro == invoiced.amount_micro + invoiced.rounding_micro
