"""Rows of an invoice that are no use: what they are called, of which month, and of which number."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.account import CreditNoteIssued, InvoiceAdjusted, InvoiceClosed
from schemas.billing import (
    AnswerCharge,
    AnswerPrices,
    Bill,
    CreditNote,
    InvoiceAdjustment,
    Statement,
    StorageCharge,
    TaxAmount,
    TaxRate,
)
from schemas.envelope import Header
from schemas.units import HOUR_MS, PPM, divide_half_even
from services.exporter.domain.focus import BillingContext, ExportedCharge, make_charge
from services.exporter.domain.invoices import charges_of_account
from tests.unit.services.exporter.journals import HOUR
from tunery.billing.periods import period

VAT = TaxRate(name="VAT", rate_ppm=190_000)
ADJUSTMENT = InvoiceAdjustment(
    reference="T-1", amount_micro=-5_000_000, currency="EUR", reason="goodwill"
)
BILL = Bill(
    currency="EUR",
    gpu_ms=0,
    amount_micro=10_004_000,
    net_micro=10_000_000,
    taxes=(TaxAmount(rate=VAT, amount_micro=1_900_000),),
    total_micro=11_900_000,
    number="acme-0001",
    contract_micro=-250_000,
    volume_micro=-125_000,
    storage=StorageCharge(
        price_version="2026-11",
        byte_hours=360 * 10**9,
        micro_per_gb_month=20_000,
        amount_micro=10_000,
    ),
)
NOTE = CreditNote(
    number="acme-C0001",
    invoice="acme-0001",
    adjustment=ADJUSTMENT,
    net_micro=-5_000_000,
    taxes=(TaxAmount(rate=VAT, amount_micro=-950_000),),
    total_micro=-5_950_000,
    issued_at=(HOUR + 31 * 24) * HOUR_MS,
)
CLOSED = InvoiceClosed(
    statement=Statement(
        period="2026-11",
        cut=(),
        currency="EUR",
        soft_gpu_ms=0,
        gpu_ms=0,
        amount_micro=0,
        bills=(BILL,),
    )
)
EVENTS = (
    InvoiceAdjusted(period="2026-11", adjustment=ADJUSTMENT),
    CLOSED,
    CreditNoteIssued(period="2026-11", note=NOTE),
)


def invoice_charges() -> list[ExportedCharge]:
    """An adjustment, a closed month with contract terms, rounding and a tax, and a credit note."""
    return [
        charge
        for offset, event in enumerate(EVENTS)
        for charge in charges_of_account(header(offset), event, "Tunery")
    ]


def header(offset: int) -> Header:
    return Header(
        stream="account",
        partition=4,
        offset=offset,
        at=HOUR * HOUR_MS,
        key="acme",
        tenant="acme",
        seq=offset,
        command_id="c",
        incarnation=0,
    )


def test_money_each_part_of_an_invoice_is_a_row_of_its_category() -> None:
    rows = [charge.columns for charge in invoice_charges()]
    assert [(row["ChargeCategory"], row["ChargeClass"], row["BilledCost"]) for row in rows] == [
        ("Adjustment", None, Decimal(-5)),
        ("Usage", None, Decimal("0.01")),
        ("Adjustment", None, Decimal("-0.125")),
        ("Adjustment", None, Decimal("-0.25")),
        ("Adjustment", None, Decimal("-0.004")),
        ("Tax", None, Decimal("1.9")),
        ("Credit", "Correction", Decimal(-5)),
        ("Tax", "Correction", Decimal("-0.95")),
    ]
    assert [row["ChargeDescription"] for row in rows][:6] == [
        "goodwill, T-1",
        "files, models and sessions",
        "volume tiers",
        "contract terms",
        "rounding to what can be paid",
        "VAT 19 %",
    ]


COSTS = ("ListCost", "ContractedCost", "BilledCost", "EffectiveCost")


@pytest.mark.parametrize(
    ("volume", "agreed", "commitment", "expected"),
    [
        (0, -10_000_000, 0, (100, 90, 90, 90)),  # a discount of 10 %
        (-25_000_000, -7_500_000, 0, (100, Decimal("67.5"), Decimal("67.5"), Decimal("67.5"))),
        (0, 5_000_000, 0, (100, 105, 105, 105)),  # overage is dearer than the list
        (0, -10_000_000, 30_000_000, (130, 120, 120, 120)),  # a minimum is no saving, and no loss
        (0, 0, 0, (100, 100, 100, 100)),
    ],
)
def test_review2_f11_costs_differ_by_what_tiers_and_the_contract_take_off(
    volume: int, agreed: int, commitment: int, expected: tuple[Any, ...]
) -> None:
    """Use of 100.00 at list price; savings are the difference of list and contracted costs."""
    net = 100_000_000 + volume + agreed + commitment
    tax = divide_half_even(net * VAT.rate_ppm, 10_000 * PPM) * 10_000
    bill = replace(
        BILL,
        amount_micro=net,
        net_micro=net,
        taxes=(TaxAmount(rate=VAT, amount_micro=tax),),
        volume_micro=volume,
        contract_micro=agreed + commitment,
        commitment_micro=commitment,
        storage=None,
    )
    context = BillingContext(
        tenant="acme", month=period("2026-11"), currency="EUR", provider="Tunery"
    )
    usage = make_charge(header(0), context, Decimal(100), {"ChargeCategory": "Usage"})
    statement = replace(CLOSED.statement, bills=(bill,))
    closed = [*charges_of_account(header(1), replace(CLOSED, statement=statement), "Tunery")]
    rows = [each.columns for each in (usage, *closed)]
    before_tax = [row for row in rows if row["ChargeCategory"] != "Tax"]
    assert tuple(sum(row[cost] for row in before_tax) for cost in COSTS) == expected
    (taxed,) = [row for row in rows if row["ChargeCategory"] == "Tax"]
    assert taxed["ListCost"] == expected[0] * Decimal("0.19")
    assert taxed["ContractedCost"] == taxed["BilledCost"] == Decimal(tax) / 10**6


def test_money_storage_is_use_of_half_a_gigabyte_month() -> None:
    row = invoice_charges()[1].columns
    priced = row["PricingQuantity"], row["ConsumedQuantity"], row["ListUnitPrice"]
    assert priced == (Decimal("0.5"), Decimal("0.5"), Decimal("0.02"))
    assert (row["PricingUnit"], row["SkuPriceId"]) == ("GB-Months", "2026-11/storage")


def test_money_answers_are_use_of_tokens_by_their_price() -> None:
    charge = AnswerCharge(
        price_version="2026-11",
        prices=AnswerPrices(
            prompt_micro_per_million=200_000,
            cached_micro_per_million=50_000,
            completion_micro_per_million=600_000,
        ),
        prompt_tokens=3_000_000,
        cached_tokens=0,
        completion_tokens=500_000,
        amount_micro=900_000,
    )
    statement = replace(CLOSED.statement, bills=(replace(BILL, answers=charge),))
    closed = [*charges_of_account(header(1), replace(CLOSED, statement=statement), "P")]
    rows = [each.columns for each in closed if each.columns.get("SkuMeter") == "Tokens"]
    assert [(row["ChargeDescription"], row["PricingQuantity"]) for row in rows] == [
        ("answers: tokens read", Decimal(3_000_000)),
        ("answers: tokens written", Decimal(500_000)),
    ]
    for row in rows:
        assert row["PricingQuantity"] * row["ListUnitPrice"] == row["BilledCost"]


def test_rows_of_a_closed_month_are_of_its_invoice_and_notes_of_their_own_number() -> None:
    charges = invoice_charges()
    assert [charge.month for charge in charges] == ["2026-11"] * 6 + ["2026-12"] * 2
    rows = [charge.columns for charge in charges]
    assert [row["InvoiceId"] for row in rows] == ["2026-11-EUR"] * 6 + ["acme-C0001"] * 2
    assert {f"{row['ChargePeriodStart']:%Y-%m-%d}" for row in rows} == {"2026-11-01"}
    assert {row["x_Topic"] for row in rows} == {"tunery.account.journal.v1"}
    assert [row["x_JournalOffset"] for row in rows] == [0, 1, 1, 1, 1, 1, 2, 2]


def test_other_events_have_no_rows() -> None:
    assert list(charges_of_account(header(0), object(), "Tunery")) == []
