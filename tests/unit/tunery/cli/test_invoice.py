"""What operators and finance read and type."""

import csv
import io

import click
import pytest
from rich.console import Console

from schemas.billing import (
    BillingTerms,
    InvoiceAdjustment,
    PriceBook,
    TaxRate,
)
from tunery.billing.invoice import BilledMonth, Invoice, make_invoices
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import BillShare, period
from tunery.cli.invoice import _micro, _write_csv, table

BOOK = PriceBook(
    version="v", currency="EUR", gpu_hour_micro={"standard": 3_600_000}, token_micro_per_million=0
)
MONTH = period("2026-11")
GOODWILL = InvoiceAdjustment(
    reference="T-17", reason="goodwill", currency="EUR", amount_micro=-5_000_000
)


def sample(soft: int | None = None) -> Invoice:
    used = LedgerRow(
        kind="usage",
        job_id="ftjob-1",
        role="train",
        lane="standard",
        price_version="v",
        hour_utc=MONTH.first_hour,
        used_gpu_ms=2_000,
        gpu_ms=2_000,
    )
    billed = BilledMonth(
        tenant="acme",
        month=MONTH,
        soft_gpu_ms=soft,
        currency="EUR",
        terms=BillingTerms(taxes=(TaxRate(name="VAT", rate_ppm=190_000),)),
        adjustments=(GOODWILL,),
    )
    (invoice,) = make_invoices(billed, select_usage([used], BillShare(month=MONTH)), {"v": BOOK})
    return invoice


@pytest.mark.parametrize(
    ("typed", "micro"),
    [("-5.00", -5_000_000), ("0.000001", 1), ("12", 12_000_000), ("1e1", 10_000_000)],
)
def test_amounts_are_exact(typed: str, micro: int) -> None:
    assert _micro(typed) == micro


@pytest.mark.parametrize("typed", ["", "five", "0.0000001", "NaN", "Infinity", "5,00"])
def test_other_amounts_are_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter, match="at most six decimals"):
        _micro(typed)


@pytest.mark.parametrize("soft", [None, 1])
def test_an_adjustment_is_a_line_and_in_the_total(soft: int | None) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table(sample(soft)))
    shown = " ".join(console.export_text().split())
    assert "Invoice · 2026-11 · acme · draft" in shown
    assert "adjustment: goodwill, T-17 -5.000000" in shown
    assert "rounding: to what can be paid -0.002000" in shown
    assert "tax: VAT 19 % -0.950000" in shown
    assert shown.endswith("-5.950000")


def test_the_lines_of_a_csv_sum_to_the_invoice(capsys: pytest.CaptureFixture[str]) -> None:
    _write_csv((sample(),))
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["kind"] for line in lines] == ["usage", "adjustment", "rounding", "tax"]
    assert sum(float(line["amount"]) for line in lines) == pytest.approx(-5.95)
