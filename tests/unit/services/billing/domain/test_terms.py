"""Billing terms of each month, and the currency of agreed amounts."""

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.account import (
    BillingTermsSet,
    CloseInvoice,
    PeriodEnded,
    PlanScheduled,
    PlanSet,
    SetBillingTerms,
    SetPlan,
)
from schemas.billing import (
    BillingTerms,
    Commitment,
    Discount,
    Months,
    OveragePrice,
    PriceBook,
    Statement,
    TaxRate,
)
from schemas.envelope import Rejected, Tick
from schemas.streams import GLOBAL
from schemas.units import HOUR_MS, Ms
from services.billing.app import ACCOUNTS
from services.billing.domain import terms as terms_by_month
from tests.unit.services.billing.domain.test_decide import create_tenant, prices
from tests.unit.services.scheduler.fold import Decider, of
from tunery.billing.periods import CLOSE_AFTER_MS, period

NOVEMBER = period("2026-11")
MIDDLE: Ms = NOVEMBER.first_hour * HOUR_MS + 14 * 24 * HOUR_MS
ON_THE_FIRST = NOVEMBER.end_ms + HOUR_MS // 2  # at 00:30, before November is closed
PLAN = create_tenant().terms
OLD, NEW = TaxRate(name="VAT", rate_ppm=160_000), TaxRate(name="VAT", rate_ppm=190_000)
HALF = Discount(reference="K-1", rate_ppm=500_000)
LEAST = Commitment(reference="K-2", amount_micro=500_000_000, currency="EUR")
DEARER = OveragePrice(gpu_hour_micro=9_000_000, currency="EUR")


def tenant() -> Decider:
    """A tenant with prices in EUR. There are price books in USD and JPY as well."""
    decider = Decider(ACCOUNTS, "acme", NOVEMBER.first_hour * HOUR_MS)
    for version, currency in ((PLAN.price_version, "EUR"), ("usd", "USD"), ("jpy", "JPY")):
        book = PriceBook(
            version=version,
            currency=currency,
            gpu_hour_micro={"standard": 2_400_000},
            token_micro_per_million=0,
            effective_from="2026-11-01",
        )
        decider.when(prices(book), GLOBAL)
    decider.accept(create_tenant())
    decider.at = MIDDLE
    return decider


def set_terms(terms: BillingTerms, month: str | None = None) -> SetBillingTerms:
    return SetBillingTerms(terms=terms, from_month=month)


def plan_in(version: str, start: str = "next_month") -> SetPlan:
    """Change the plan to another price book."""
    terms = replace(PLAN, price_version=version)
    return SetPlan(terms=terms, start="now" if start == "now" else "next_month")


def closed_terms(decider: Decider, name: str) -> BillingTerms:
    """Close a month, and return the terms that it is billed by."""
    decider.at = max(decider.at, period(name).end_ms + CLOSE_AFTER_MS)
    ended = of(decider.when(Tick()), PeriodEnded)
    assert ended.period == name
    terms: BillingTerms = ended.terms
    statement = Statement(
        period=name,
        cut=(0,) * 8,
        currency="EUR",
        soft_gpu_ms=1,
        gpu_ms=0,
        amount_micro=0,
        terms=terms,
    )
    decider.accept(CloseInvoice(statement=statement))
    assert decider.refolded() == decider.state
    return terms


@pytest.mark.parametrize(
    "changed",
    [
        BillingTerms(taxes=(NEW,)),
        BillingTerms(taxes=(OLD,), discounts=(HALF,)),
        BillingTerms(taxes=(OLD,), commitment=LEAST),
        BillingTerms(taxes=(OLD,), overage=DEARER),
        BillingTerms(),
    ],
)
def test_review2_m8_terms_that_are_set_on_the_first_are_those_of_the_new_month(
    changed: BillingTerms,
) -> None:
    agreed = BillingTerms(taxes=(OLD,))
    decider = tenant().accept(set_terms(agreed))
    decider.at = ON_THE_FIRST
    assert of(decider.when(set_terms(changed)), BillingTermsSet).from_month == "2026-12"
    assert closed_terms(decider, "2026-11") == agreed
    assert closed_terms(decider, "2026-12") == changed
    assert closed_terms(decider, "2027-01") == changed


def test_review2_m8_each_change_has_its_first_month_and_later_ones_stay() -> None:
    first, second, third = (BillingTerms(due_days=days) for days in (1, 2, 3))
    decider = tenant().accept(set_terms(third, "2027-01"), set_terms(first))
    decider.at = ON_THE_FIRST
    decider.accept(set_terms(second, "2026-11"))  # not closed yet: a correction
    assert closed_terms(decider, "2026-11") == second
    assert closed_terms(decider, "2026-12") == second
    assert closed_terms(decider, "2027-01") == third


@pytest.mark.parametrize("month", ["2026-10", "2026-11"])
def test_review2_m8_the_terms_of_a_month_that_is_over_are_final(month: str) -> None:
    decider = tenant()
    decider.at = NOVEMBER.end_ms + CLOSE_AFTER_MS
    decider.accept(Tick())
    refused = of(decider.when(set_terms(BillingTerms(taxes=(NEW,)), month)), Rejected)
    assert (refused.reason.code, refused.param) == ("month_over", "from_month")


@pytest.mark.parametrize("month", ["", "2026-13", "2026-1", "x"])
def test_review2_m8_a_first_month_is_a_month(month: str) -> None:
    refused = of(tenant().when(set_terms(BillingTerms(due_days=1), month)), Rejected)
    assert (refused.code, refused.reason.code) == (errors.MALFORMED, "month_malformed")


def test_a_tenant_has_a_limited_number_of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms_by_month, "TERMS_MAX", 2)
    decider = tenant().accept(
        set_terms(BillingTerms(due_days=1)), set_terms(BillingTerms(due_days=2), "2027-01")
    )
    refused = of(decider.when(set_terms(BillingTerms(due_days=3), "2027-02")), Rejected)
    assert refused.reason.code == "terms_months_at_most"
    decider.accept(set_terms(BillingTerms(due_days=3), "2027-01"))


@pytest.mark.parametrize("start", ["now", "next_month"])
@pytest.mark.parametrize("version", ["usd", "jpy"])
@pytest.mark.parametrize(
    ("terms", "term"),
    [
        (BillingTerms(commitment=LEAST), "commitment"),
        (BillingTerms(overage=DEARER), "overage"),
        (BillingTerms(overage=DEARER, commitment=LEAST), "overage"),
    ],
)
def test_review2_m1_no_plan_in_another_currency_while_amounts_bind(
    terms: BillingTerms, term: str, version: str, start: str
) -> None:
    decider = tenant().accept(set_terms(terms))
    refused = of(decider.when(plan_in(version, start)), Rejected)
    assert (refused.code, refused.param) == (errors.ILLEGAL_STATE, "price_version")
    month = "2026-11" if start == "now" else "2026-12"
    assert refused.reason.params == {
        "term": term,
        "currency": "EUR",
        "period": month,
        "own": version.upper(),
    }
    # once the amounts end in the month in which the plan begins, the plan may change
    decider.accept(set_terms(BillingTerms(), month))
    expected = PlanSet if start == "now" else PlanScheduled
    assert of(decider.when(plan_in(version, start)), expected)


def test_review2_m1_terms_without_amounts_follow_to_any_currency() -> None:
    terms = BillingTerms(discounts=(HALF,), overage=OveragePrice(surcharge_ppm=1), taxes=(OLD,))
    decider = tenant().accept(set_terms(terms), plan_in("usd", "now"), plan_in("jpy"))
    assert closed_terms(decider, "2026-11") == terms


def test_review2_m1_a_minimum_that_ends_before_the_plan_begins_does_not_block_it() -> None:
    ending = replace(LEAST, months=Months(last="2026-11"))
    decider = tenant().accept(set_terms(BillingTerms(commitment=ending)), plan_in("usd"))
    later = replace(LEAST, months=Months(first="2027-02"))
    refused = of(decider.when(set_terms(BillingTerms(commitment=later))), Rejected)
    assert refused.reason.params["period"] == "2027-02"
    assert closed_terms(decider, "2026-11").commitment == ending


def test_review2_m1_terms_after_a_scheduled_plan_are_in_its_currency() -> None:
    decider = tenant().accept(plan_in("usd"))
    for terms in (BillingTerms(commitment=LEAST), BillingTerms(overage=DEARER)):
        for month in (None, "2026-12", "2027-03"):
            refused = of(decider.when(set_terms(terms, month)), Rejected)
            assert refused.code == errors.MALFORMED, (terms, month)
    dollars = BillingTerms(commitment=replace(LEAST, currency="USD"))
    decider.accept(set_terms(dollars, "2026-12"))
    assert of(decider.when(set_terms(dollars)), Rejected).param == "commitment"
    # nor can the plan go back to EUR while the terms are in USD
    assert of(decider.when(plan_in(PLAN.price_version)), Rejected).param == "price_version"
    decider.accept(
        set_terms(BillingTerms(commitment=replace(LEAST, months=Months(last="2026-11"))))
    )
    assert closed_terms(decider, "2026-11").commitment is not None
    assert closed_terms(decider, "2026-12") == dollars


def test_review2_m8_a_month_that_has_its_own_terms_keeps_them_also_if_they_were_the_same() -> None:
    first, second = BillingTerms(due_days=1), BillingTerms(due_days=2)
    decider = tenant().accept(set_terms(first), set_terms(first, "2027-01"))
    decider.accept(set_terms(second, "2026-12"))
    assert decider.when(set_terms(first, "2027-01")) == ()
    assert closed_terms(decider, "2026-11") == first
    assert closed_terms(decider, "2026-12") == second
    assert closed_terms(decider, "2027-01") == first
