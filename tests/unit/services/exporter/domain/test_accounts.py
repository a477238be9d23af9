"""On which month's invoice a row is: that of its own, or of a later one when it came late."""

import pytest

from schemas.account import (
    EndpointChanged,
    EndpointCreated,
    EndpointDeleted,
    InvoiceClosed,
    Limits,
    PlanTerms,
    TenantCreated,
)
from schemas.billing import Statement
from schemas.endpoints import EndpointChange, EndpointTerms
from schemas.envelope import Header
from schemas.sealed import Sealed
from schemas.units import Ms
from services.exporter.domain.accounts import AccountFacts, MonthOpen
from tunery.billing.periods import CLOSE_AFTER_MS, period

OCTOBER, NOVEMBER = period("2026-10"), period("2026-11")
HOUR = OCTOBER.end_hour - 1
CUT = 100
SEALED = Sealed("k", b"", b"")


def header(at: Ms, offset: int = 0) -> Header:
    return Header(
        stream="pool",
        partition=0,
        offset=offset,
        at=at,
        key="default",
        tenant="",
        seq=offset,
        command_id="c",
        incarnation=0,
    )


def accounts(*closed: str) -> AccountFacts:
    """Facts of the tenant acme, whose months were closed when the journal had CUT records."""
    known = AccountFacts()
    limits = Limits(soft_gpu_ms=0, hard_gpu_ms=0, concurrency=1)
    terms = PlanTerms(lane="standard", limits=limits, price_version="2026-11")
    known.fold("acme", TenantCreated(name=SEALED, terms=terms))
    for name in closed:
        statement = Statement(
            period=name, cut=(CUT,), currency="EUR", soft_gpu_ms=0, gpu_ms=0, amount_micro=0
        )
        known.fold("acme", InvoiceClosed(statement=statement))
    return known


def billed_month(known: AccountFacts, at: Ms, offset: int = 0, tenant: str = "acme") -> str:
    return known.billed_month(header(at, offset), tenant, HOUR).name


def test_a_row_that_comes_before_its_month_can_be_closed_is_on_its_own_bill() -> None:
    last = OCTOBER.end_ms + CLOSE_AFTER_MS - 1
    assert billed_month(accounts(), last) == "2026-10"
    assert billed_month(accounts("2026-10"), last, CUT + 1) == "2026-10"


def test_a_late_row_waits_until_its_month_is_closed_and_then_says_where_it_is() -> None:
    late = OCTOBER.end_ms + CLOSE_AFTER_MS
    with pytest.raises(MonthOpen, match="2026-10 of acme"):
        billed_month(accounts(), late)
    assert billed_month(accounts("2026-10"), late, CUT - 1) == "2026-10"
    assert billed_month(accounts("2026-10"), late, CUT) == "2026-11"


def test_a_row_that_is_later_than_two_months_is_on_the_third() -> None:
    late = NOVEMBER.end_ms + CLOSE_AFTER_MS
    with pytest.raises(MonthOpen, match="2026-11 of acme"):
        billed_month(accounts("2026-10"), late, CUT)
    assert billed_month(accounts("2026-10", "2026-11"), late, CUT) == "2026-12"


def test_usage_of_an_unknown_tenant_is_of_its_own_month() -> None:
    assert billed_month(accounts(), NOVEMBER.end_ms, tenant="unknown") == "2026-10"


def test_a_tenant_wants_usage_while_an_endpoint_subscribes_to_it() -> None:
    known = accounts()
    terms = EndpointTerms(
        endpoint_id="we_1", name=SEALED, url=SEALED, event_types=("usage.recorded",)
    )
    assert not known.wants_usage("acme")
    known.fold("acme", EndpointCreated(terms=terms))
    known.fold("acme", EndpointChanged(endpoint_id="we_1", change=EndpointChange(url=SEALED)))
    assert (known.wants_usage("acme"), known.wants_usage("other")) == (True, False)
    only_ends = EndpointChange(event_types=("fine_tuning.job.failed",))
    known.fold("acme", EndpointChanged(endpoint_id="we_1", change=only_ends))
    assert not known.wants_usage("acme")
    known.fold("acme", EndpointCreated(terms=terms))
    known.fold("acme", EndpointDeleted(endpoint_id="we_1"))
    assert not known.wants_usage("acme")


def test_events_may_be_folded_twice() -> None:
    known = accounts("2026-10", "2026-10")
    assert billed_month(known, OCTOBER.end_ms + CLOSE_AFTER_MS, CUT) == "2026-11"
