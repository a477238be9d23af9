"""Months end and are closed once; operators adjust the bill of the current month."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.account import (
    AdjustInvoice,
    BillingTermsSet,
    CloseInvoice,
    CreditNoteIssued,
    InvoiceAdjusted,
    InvoiceClosed,
    PeriodEnded,
    SetBillingTerms,
    SetPlan,
)
from schemas.billing import Bill, BillingTerms, InvoiceAdjustment, Statement, TaxAmount, TaxRate
from schemas.envelope import Rejected, Tick
from schemas.streams import GLOBAL
from schemas.units import DAY_MS, HOUR_MS
from services.billing.app import ACCOUNTS
from services.billing.domain import statements
from tests.ticks import next_tick
from tests.unit.services.billing.domain.test_decide import BOOK, create_tenant, prices
from tests.unit.services.scheduler.fold import Decider, of
from tunery.billing.periods import CLOSE_AFTER_MS, period

NOVEMBER = period("2026-11")
DUE = NOVEMBER.end_ms + CLOSE_AFTER_MS
GOODWILL = AdjustInvoice(
    adjustment=InvoiceAdjustment(
        reference="T-1", amount_micro=-5_000_000, currency="EUR", reason="goodwill"
    )
)


def goodwill(**changes: Any) -> AdjustInvoice:
    """`GOODWILL` with changes of its fields."""
    return AdjustInvoice(adjustment=replace(GOODWILL.adjustment, **changes))


def tenant() -> Decider:
    return Decider(ACCOUNTS, "acme", NOVEMBER.first_hour * HOUR_MS + 7).accept(create_tenant())


def statement(name: str = "2026-11") -> Statement:
    return Statement(
        period=name,
        cut=(3,) * 8,
        currency="EUR",
        soft_gpu_ms=1,
        gpu_ms=5,
        amount_micro=9,
    )


def deadline(decider: Decider) -> int | None:
    due = next_tick(ACCOUNTS, decider.state)
    return None if due is None else due[0]


def test_a_month_ends_once_and_only_when_its_last_slices_had_time() -> None:
    decider = tenant()
    assert deadline(decider) == DUE
    decider.at = DUE - 1
    assert decider.when(Tick()) == ()
    decider.at = DUE
    ended = of(decider.when(Tick()), PeriodEnded)
    assert (ended.period, ended.before) == ("2026-11", None)
    assert ended.soft_gpu_ms == create_tenant().terms.limits.soft_gpu_ms
    assert (decider.when(Tick()), deadline(decider)) == ((), None)


def test_the_first_outcome_closes_it_and_the_next_month_follows() -> None:
    decider = tenant()
    decider.at = DUE
    assert decider.when(CloseInvoice(statement=statement())) == ()  # no closing was due
    decider.accept(Tick())
    assert decider.when(CloseInvoice(statement=statement("2026-10"))) == ()
    assert of(decider.when(CloseInvoice(statement=statement())), InvoiceClosed)
    other = replace(statement(), amount_micro=1)
    assert decider.when(CloseInvoice(statement=other)) == ()
    assert deadline(decider) == period("2026-12").end_ms + CLOSE_AFTER_MS
    decider.at = period("2026-12").end_ms + CLOSE_AFTER_MS
    assert of(decider.when(Tick()), PeriodEnded).before == statement()
    assert decider.refolded() == decider.state


def test_an_adjustment_is_on_the_bill_of_its_month_once() -> None:
    decider = tenant()
    adjusted = of(decider.when(GOODWILL), InvoiceAdjusted)
    assert (adjusted.period, adjusted.adjustment) == ("2026-11", GOODWILL.adjustment)
    again = of(decider.when(GOODWILL), Rejected)
    assert (again.code, again.param) == (errors.ALREADY_EXISTS, "reference")
    decider.at = NOVEMBER.end_ms  # November is not closed yet, and gets nothing new all the same
    later = of(decider.when(goodwill(reference="T-2")), InvoiceAdjusted)
    assert later.period == "2026-12"


@pytest.mark.parametrize("amount", [0, 10**15 + 1, -(10**15) - 1])
def test_amounts_must_make_sense(amount: int) -> None:
    refused = of(tenant().when(goodwill(amount_micro=amount)), Rejected)
    assert (refused.code, refused.param) == (errors.MALFORMED, "amount_micro")


def test_nothing_is_closed_or_adjusted_for_an_unknown_tenant() -> None:
    stranger = Decider(ACCOUNTS, "acme", DUE)
    assert stranger.when(Tick()) == stranger.when(CloseInvoice(statement=statement())) == ()
    assert of(stranger.when(GOODWILL), Rejected).code == errors.NOT_FOUND


def test_money_c8_a_month_closes_with_the_limit_that_it_ended_with() -> None:
    decider = tenant()
    terms = create_tenant().terms
    limits = replace(terms.limits, soft_gpu_ms=terms.limits.soft_gpu_ms + 1)
    raised = replace(terms, limits=limits, price_version="next")
    decider.at = NOVEMBER.end_ms + HOUR_MS
    decider.when(prices(replace(BOOK, version="next")), GLOBAL)
    decider.accept(SetPlan(terms=raised))
    decider.at = DUE
    ended = of(decider.when(Tick()), PeriodEnded)
    assert ended.soft_gpu_ms == terms.limits.soft_gpu_ms
    assert ended.price_version == terms.price_version
    decider.accept(CloseInvoice(statement=statement()))
    decider.at = period("2026-12").end_ms + CLOSE_AFTER_MS
    following = of(decider.when(Tick()), PeriodEnded)
    assert following.soft_gpu_ms == terms.limits.soft_gpu_ms + 1
    assert following.price_version == "next"
    assert decider.refolded() == decider.state


VAT = TaxRate(name="VAT", rate_ppm=190_000)


def bill(currency: str = "EUR") -> Bill:
    """A bill of 100.00 with 19.00 of tax."""
    return Bill(
        currency=currency,
        gpu_ms=5,
        amount_micro=100_000_000,
        net_micro=100_000_000,
        taxes=(TaxAmount(rate=VAT, amount_micro=19_000_000),),
        total_micro=119_000_000,
    )


def closed(*bills: Bill) -> Decider:
    """A tenant whose November was closed with these bills."""
    decider = tenant()
    decider.accept(SetBillingTerms(terms=BillingTerms(taxes=(VAT,), due_days=14)))
    decider.at = DUE
    terms = of(decider.when(Tick()), PeriodEnded).terms
    decider.accept(CloseInvoice(statement=replace(statement(), bills=bills, terms=terms)))
    return decider


def test_invoices_are_numbered_without_a_gap_when_their_month_is_closed() -> None:
    decider = closed(bill(), bill("USD"))
    decider.at = period("2026-12").end_ms + CLOSE_AFTER_MS
    decider.accept(Tick())
    last = of(
        decider.when(CloseInvoice(statement=replace(statement("2026-12"), bills=(bill(),)))),
        InvoiceClosed,
    )
    assert decider.state.tenants["acme"].closed == last.statement
    first = decider.state.tenants["acme"].issued["2026-11"]
    assert {code: invoice.number for code, invoice in first.items()} == {
        "EUR": "acme-0001",
        "USD": "acme-0002",
    }
    (third,) = last.statement.bills
    assert (third.number, third.issued_at) == ("acme-0003", decider.at)
    assert third.due_at == decider.at + 30 * DAY_MS
    assert decider.refolded() == decider.state


def test_a_closed_invoice_is_corrected_by_credit_notes_of_at_most_its_amount() -> None:
    decider = closed(bill())
    credit = replace(goodwill(amount_micro=-60_000_000), period="2026-11")
    note = of(decider.when(credit), CreditNoteIssued).note
    assert (note.number, note.invoice) == ("acme-C0001", "acme-0001")
    assert (note.net_micro, note.total_micro) == (-60_000_000, -71_400_000)
    second = replace(goodwill(amount_micro=-60_000_000, reference="T-2"), period="2026-11")
    assert of(decider.when(second), Rejected).reason.code == "credit_out_of_range"
    rest = replace(goodwill(amount_micro=-40_000_000, reference="T-2"), period="2026-11")
    assert of(decider.when(rest), CreditNoteIssued).note.number == "acme-C0002"
    again = of(decider.when(credit), Rejected)
    assert again.code == errors.ALREADY_EXISTS
    assert decider.refolded() == decider.state


@pytest.mark.parametrize(
    ("month", "code"),
    [
        ("2026-10", "invoice_missing"),
        ("2027-01", "month_not_begun"),
        ("2026-13", "month_malformed"),
    ],
)
def test_a_month_that_cannot_be_adjusted_is_named(month: str, code: str) -> None:
    refused = of(closed(bill()).when(replace(goodwill(), period=month)), Rejected)
    assert (refused.reason.code, refused.param) == (code, "period")


def test_a_month_is_adjusted_until_its_closing_begins() -> None:
    decider = tenant()
    decider.at = DUE - 1
    late = replace(goodwill(), period="2026-11")
    assert of(decider.when(late), InvoiceAdjusted).period == "2026-11"
    decider.at = DUE
    decider.accept(Tick())
    refused = of(decider.when(replace(goodwill(reference="T-2"), period="2026-11")), Rejected)
    assert refused.reason.code == "month_being_closed"


def test_money_c8_adjustments_are_limited_by_the_month_and_not_for_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statements, "ADJUSTMENTS_MAX", 5)
    decider = tenant()
    for number in range(5):
        decider.accept(goodwill(reference=f"T-{number}"))
    full = of(decider.when(goodwill(reference="more")), Rejected)
    assert full.reason.code == "adjustments_at_most"
    decider.at = NOVEMBER.end_ms
    assert of(decider.when(goodwill(reference="more")), InvoiceAdjusted).period == "2026-12"
    decider.at = DUE
    decider.accept(Tick())
    decider.accept(CloseInvoice(statement=statement()))
    decider.at = period("2026-12").end_ms + CLOSE_AFTER_MS
    decider.accept(Tick())
    decider.accept(CloseInvoice(statement=statement("2026-12")))
    assert set(decider.state.tenants["acme"].adjustments) == {"more"}


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        (BillingTerms(taxes=(VAT,) * 6), "taxes_at_most"),
        (BillingTerms(taxes=(replace(VAT, rate_ppm=-1),)), "tax_out_of_range"),
        (BillingTerms(due_days=-1), "due_days_out_of_range"),
    ],
)
def test_billing_terms_must_make_sense(terms: BillingTerms, code: str) -> None:
    assert of(tenant().when(SetBillingTerms(terms=terms)), Rejected).reason.code == code


def test_billing_terms_that_are_the_same_change_nothing() -> None:
    decider = tenant()
    terms = BillingTerms(taxes=(VAT,))
    assert of(decider.when(SetBillingTerms(terms=terms)), BillingTermsSet).terms == terms
    assert decider.when(SetBillingTerms(terms=terms)) == ()
