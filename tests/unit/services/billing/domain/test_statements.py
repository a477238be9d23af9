"""Months end and are closed once; operators adjust the bill of the current month."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.account import (
    AdjustInvoice,
    CloseInvoice,
    InvoiceAdjusted,
    InvoiceAdjustment,
    InvoiceClosed,
    PeriodEnded,
    Statement,
)
from schemas.envelope import Rejected, Tick
from schemas.units import HOUR_MS
from services.billing.app import ACCOUNTS
from services.billing.domain.periods import period
from services.billing.domain.state import CLOSE_AFTER_MS
from tests.unit.services.billing.domain.test_decide import create_tenant
from tests.unit.services.scheduler.fold import Decider, of

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
    due = ACCOUNTS.deadline(decider.state)
    return None if due is None else due.at


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
