"""A bucket never gives more tokens than its capacity and its refill, for any arrivals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.web.domain.token_bucket import MINUTE_US, duration, take

GAPS = st.lists(st.integers(0, 5_000_000), min_size=1, max_size=200)


@given(per_minute=st.integers(1, 600), gaps=GAPS)
def test_no_window_holds_more_than_the_bucket_and_its_refill(
    per_minute: int, gaps: list[int]
) -> None:
    now, full_at = 0, 0
    passed = list[int]()
    for gap in gaps:
        now += gap
        full_at, allowance = take(full_at, now, per_minute)
        if allowance.allowed:
            passed.append(now)
    each = MINUTE_US // per_minute
    for first, begin in enumerate(passed):
        for count, end in enumerate(passed[first:], 1):
            assert count <= per_minute + (end - begin) // each


@given(per_minute=st.integers(1, 600), gaps=GAPS)
def test_after_retry_ms_a_token_is_available(per_minute: int, gaps: list[int]) -> None:
    now, full_at = 0, 0
    for gap in gaps:
        now += gap
        full_at, allowance = take(full_at, now, per_minute)
        if not allowance.allowed:
            assert allowance.remaining == 0
            _, later = take(full_at, now + 1_000 * allowance.retry_ms, per_minute)
            assert later.allowed


def test_remaining_counts_down_and_refills() -> None:
    full_at, left = 0, []
    for _ in range(4):
        full_at, allowance = take(full_at, 0, 3)
        left.append((allowance.allowed, allowance.remaining))
    assert left == [(True, 2), (True, 1), (True, 0), (False, 0)]
    _, allowance = take(full_at, MINUTE_US, 3)
    assert (allowance.allowed, allowance.remaining, allowance.reset_ms) == (True, 2, 20_000)


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0, "0ms"), (12, "12ms"), (1_000, "1s"), (1_500, "1.5s"), (360_000, "6m0s")],
)
def test_durations_are_written_as_openai_writes_them(ms: int, shown: str) -> None:
    assert duration(ms) == shown
