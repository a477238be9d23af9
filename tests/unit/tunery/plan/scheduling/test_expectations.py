"""When leases end, what a stop costs them, and until when both stay as they are."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.tunery.plan.scheduling.clusters import HOUR, MINUTE, ran, request
from tunery.plan.scheduling.expectations import expected_end, loss_ms, next_change
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.requests import Running

AT = 10 * HOUR


def lease(hours: int, lane: str = "free") -> Running:
    """A lease that has run for an hour. hours: expected in all."""
    return ran(request("a", lane=lane, hours=hours), (("a", 1),), HOUR, AT)


def test_a_lease_ends_at_its_p90_and_one_that_has_passed_it_goes_on_for_a_while() -> None:
    assert expected_end(lease(3), AT) == AT + 2 * HOUR
    rounded = expected_end(lease(1), AT)
    assert AT + 5 * MINUTE < rounded <= AT + 6 * MINUTE
    assert expected_end(lease(1), AT + 1) == rounded, "it stays for a while"
    assert expected_end(lease(1), AT + 10 * MINUTE) > AT + 16 * MINUTE
    unstarted = replace(lease(9), started_at=None, granted_at=AT)
    assert expected_end(unstarted, AT) == AT + 9 * HOUR


def test_a_draining_lease_ends_at_its_deadline_or_any_moment() -> None:
    assert expected_end(replace(lease(9), ends_by=AT + 5), AT) == AT + 5
    assert expected_end(replace(lease(9), ends_by=AT - 5_000), AT) == AT + 5_000
    assert expected_end(replace(lease(9), ends_by=AT - HOUR), AT) == AT + 10_000


@settings(max_examples=2 * settings().max_examples)
@given(
    ran_ms=st.integers(0, 30 * HOUR),
    saved_ms=st.integers(0, HOUR),
    p90_ms=st.integers(0, 40 * HOUR),
    ends_in=st.none() | st.integers(-HOUR, HOUR),
    within=st.integers(0, 10**9),
)
def test_nothing_changes_before_the_predicted_time(
    ran_ms: int, saved_ms: int, p90_ms: int, ends_in: int | None, within: int
) -> None:
    running = replace(
        lease(1),
        granted_at=AT - ran_ms,
        started_at=AT - ran_ms,
        saved_at=AT - min(saved_ms, ran_ms),
        p50_ms=p90_ms * 2 // 3,
        p90_ms=p90_ms,
        ends_by=None if ends_in is None else AT + ends_in,
    )
    change = next_change(running, AT, PRODUCT)
    assert change > AT
    before = AT + within % (change - AT)
    assert expected_end(running, before) == expected_end(running, AT) > before
    assert (loss_ms(running, before, PRODUCT) is None) == (loss_ms(running, AT, PRODUCT) is None)
