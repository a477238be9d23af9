"""Prepaid credits: used up by closed months, the first to expire first, and never below zero."""

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.account import CloseInvoice, ImportPrices, InvoiceClosed, SetPlan
from schemas.billing import Bill, PrepaidCredit, PrepaidUse, Statement
from schemas.envelope import Rejected, Tick
from schemas.prepaid import (
    GrantPrepaid,
    PrepaidExpired,
    PrepaidGranted,
    PrepaidRevoked,
    RevokePrepaid,
)
from schemas.streams import GLOBAL
from schemas.units import Micro
from services.billing.domain import prepaid
from services.billing.domain.state import PrepaidBalance
from tests.unit.services.billing.domain.test_statements import NOVEMBER, bill, statement, tenant
from tests.unit.services.scheduler.fold import Decider, of
from tests.unit.tunery.billing.test_invoice import BOOKS
from tunery.billing.periods import CLOSE_AFTER_MS, period

CREDIT = PrepaidCredit(reference="P-1", amount_micro=10_000_000, currency="EUR")


def granted(decider: Decider, *prepaid_credits: PrepaidCredit) -> Decider:
    return decider.accept(*(GrantPrepaid(credit=credit) for credit in prepaid_credits))


def closed(decider: Decider, *bills: Bill, name: str = "2026-11") -> tuple[object, ...]:
    """The events of closing a month with these bills."""
    decider.at = period(name).end_ms + CLOSE_AFTER_MS
    decider.accept(Tick())
    closing: Statement = replace(statement(name), bills=bills)
    return decider.when(CloseInvoice(statement=closing))


def total(micro: Micro, currency: str = "EUR") -> Bill:
    """A bill of which this is to be paid."""
    return replace(bill(), currency=currency, net_micro=micro, total_micro=micro, taxes=())


def left(decider: Decider) -> dict[str, Micro]:
    return {name: balance.left_micro for name, balance in balances(decider).items()}


def balances(decider: Decider) -> dict[str, PrepaidBalance]:
    return dict(decider.state.tenants["acme"].prepaid)


def test_the_first_to_expire_pays_first_and_the_rest_stays() -> None:
    later = replace(CREDIT, reference="P-2", last_month="2027-01")
    sooner = replace(CREDIT, reference="P-3", last_month="2026-12")
    decider = granted(tenant(), CREDIT, later, sooner)
    (event,) = closed(decider, total(15_000_000))
    assert isinstance(event, InvoiceClosed)
    assert event.statement.bills[0].prepaid == (
        PrepaidUse(reference="P-3", amount_micro=10_000_000, left_micro=0),
        PrepaidUse(reference="P-2", amount_micro=5_000_000, left_micro=5_000_000),
    )
    assert left(decider) == {"P-1": 10_000_000, "P-2": 5_000_000, "P-3": 0}
    assert decider.refolded() == decider.state


def test_what_is_left_expires_with_its_last_month() -> None:
    decider = granted(tenant(), replace(CREDIT, last_month="2026-11"))
    _, expired = closed(decider, total(4_000_000))
    assert expired == PrepaidExpired(reference="P-1", amount_micro=6_000_000)
    balance = balances(decider)["P-1"]
    assert (balance.used_micro, balance.expired_micro, balance.left_micro) == (
        4_000_000,
        6_000_000,
        0,
    )
    closed(decider, name="2026-12")
    other = replace(balance.credit, last_month=None)
    again = of(decider.when(GrantPrepaid(credit=other)), Rejected)
    assert again.reason.code == "prepaid_exists"  # a reference is of one payment, for good


def test_a_credit_pays_neither_other_currencies_nor_months_before_it() -> None:
    decider = tenant()
    decider.at = NOVEMBER.end_ms  # December has begun, November is not closed
    granted(decider, CREDIT)
    (event,) = closed(decider, total(1_000_000), total(1_000_000, "USD"))
    assert isinstance(event, InvoiceClosed)
    assert [entry.prepaid for entry in event.statement.bills] == [(), ()]
    (december,) = closed(decider, total(1_000_000), total(1_000_000, "USD"), name="2026-12")
    assert isinstance(december, InvoiceClosed)
    assert [len(entry.prepaid) for entry in december.statement.bills] == [1, 0]


def test_an_invoice_below_zero_is_carried_forward_as_a_credit() -> None:
    decider = tenant()
    event, carried = closed(decider, total(-3_000_000))
    assert isinstance(event, InvoiceClosed)
    assert event.statement.bills[0].carried_micro == 3_000_000
    assert isinstance(carried, PrepaidGranted)
    assert (carried.credit.reference, carried.first_month) == ("carried:acme-0001", "2026-12")
    (december,) = closed(decider, total(5_000_000), name="2026-12")
    assert isinstance(december, InvoiceClosed)
    assert december.statement.bills[0].prepaid[0].amount_micro == 3_000_000


@pytest.mark.parametrize(
    ("credit", "code", "param"),
    [
        (replace(CREDIT, amount_micro=0), "prepaid_out_of_range", "amount_micro"),
        (replace(CREDIT, amount_micro=-10_000), "prepaid_out_of_range", "amount_micro"),
        (replace(CREDIT, amount_micro=10**15 + 10_000), "prepaid_out_of_range", "amount_micro"),
        (replace(CREDIT, amount_micro=10_001), "prepaid_out_of_range", "amount_micro"),
        (replace(CREDIT, currency="euro"), "currency_malformed", "currency"),
        (replace(CREDIT, currency="USD"), "currency_of_another", "currency"),
        (replace(CREDIT, last_month="2026-10"), "prepaid_expired", "last_month"),
        (replace(CREDIT, last_month="soon"), "months_malformed", "last_month"),
        (replace(CREDIT, reference="carried:acme-0001"), "prepaid_reserved", "reference"),
    ],
)
def test_credits_that_make_no_sense_are_named(credit: PrepaidCredit, code: str, param: str) -> None:
    decider = tenant()
    book = replace(BOOKS["2026-11"], effective_from="2026-11-01")
    decider.when(ImportPrices(book=book, sha256="a" * 64), GLOBAL)
    refused = of(decider.when(GrantPrepaid(credit=credit)), Rejected)
    assert (refused.reason.code, refused.param) == (code, param)
    assert decider.when(GrantPrepaid(credit=CREDIT)) != ()


def test_a_reference_is_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decider = granted(tenant(), CREDIT)
    assert decider.when(GrantPrepaid(credit=CREDIT)) == ()
    other = of(decider.when(GrantPrepaid(credit=replace(CREDIT, amount_micro=10_000))), Rejected)
    assert (other.code, other.param) == (errors.ALREADY_EXISTS, "reference")
    monkeypatch.setattr(prepaid, "PREPAID_MAX", 1)
    second = GrantPrepaid(credit=replace(CREDIT, reference="P-2"))
    assert of(decider.when(second), Rejected).reason.code == "prepaid_at_most"


def test_what_is_left_of_a_revoked_credit_pays_nothing_and_its_reference_stays_used() -> None:
    decider = granted(tenant(), CREDIT)
    closed(decider, total(4_000_000))
    revoked = decider.when(RevokePrepaid(reference="P-1"))
    assert revoked == (PrepaidRevoked(reference="P-1", amount_micro=6_000_000),)
    assert decider.when(RevokePrepaid(reference="P-1")) == ()
    assert (left(decider), balances(decider)["P-1"].used_micro) == ({"P-1": 0}, 4_000_000)
    assert decider.when(GrantPrepaid(credit=CREDIT)) == ()
    assert of(decider.when(RevokePrepaid(reference="P-9")), Rejected).code == errors.NOT_FOUND


def test_what_was_carried_forward_is_not_revoked() -> None:
    decider = tenant()
    closed(decider, total(-4_000_000))
    (reference,) = balances(decider)
    refused = of(decider.when(RevokePrepaid(reference=reference)), Rejected)
    assert (refused.code, refused.param) == (errors.MALFORMED, "reference")


@pytest.mark.parametrize("currency", ["USD", "JPY"])
def test_review2_m11_money_in_a_currency_without_prices_can_be_paid_back(currency: str) -> None:
    decider = granted(tenant(), CREDIT)
    closed(decider, total(-3_000_000))
    carried = RevokePrepaid(reference="carried:acme-0001")
    assert of(decider.when(carried), Rejected).reason.code == "prepaid_reserved"
    book = replace(BOOKS["2026-11"], version=currency, currency=currency)
    decider.when(
        ImportPrices(book=replace(book, effective_from="2026-11-01"), sha256="a" * 64), GLOBAL
    )
    plan = replace(decider.state.tenants["acme"].terms, price_version=currency)
    decider.accept(SetPlan(terms=plan))
    for reference, micro in (("P-1", 10_000_000), ("carried:acme-0001", 3_000_000)):
        revoked = of(decider.when(RevokePrepaid(reference=reference)), PrepaidRevoked)
        assert (revoked.reference, revoked.amount_micro) == (reference, micro)
    assert decider.refolded() == decider.state
