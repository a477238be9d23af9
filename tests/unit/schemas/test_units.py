"""Integer units: hours and months of moments, and quotients rounded up."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.units import DAY_MS, HOUR_MS, divide_up, hour_of, month_of

NUMBERS = st.integers(-(2**80), 2**80)


@pytest.mark.parametrize(
    ("at", "hour"),
    [(0, 0), (HOUR_MS - 1, 0), (HOUR_MS, 1), (DAY_MS, 24), (-1, -1), (-HOUR_MS, -1)],
)
def test_an_hour_begins_with_its_first_millisecond(at: int, hour: int) -> None:
    assert hour_of(at) == hour


@pytest.mark.parametrize(
    ("value", "divisor", "quotient"),
    [(0, 3, 0), (1, 3, 1), (3, 3, 1), (4, 3, 2), (-4, 3, -1), (10**30 + 1, 10**15, 10**15 + 1)],
)
def test_quotients_are_rounded_up_exactly(value: int, divisor: int, quotient: int) -> None:
    assert divide_up(value, divisor) == quotient


@given(NUMBERS, st.integers(1, 2**70))
def test_a_rounded_quotient_is_the_least_that_covers_the_value(value: int, divisor: int) -> None:
    quotient = divide_up(value, divisor)
    assert (quotient - 1) * divisor < value <= quotient * divisor


def test_a_division_by_zero_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        divide_up(1, 0)


@pytest.mark.parametrize(
    ("moment", "month"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), "1970-01"),
        (datetime(2026, 11, 30, 23, tzinfo=UTC), "2026-11"),
        (datetime(2026, 12, 1, 0, tzinfo=UTC), "2026-12"),
        (datetime(2028, 2, 29, 12, tzinfo=UTC), "2028-02"),
    ],
)
def test_known_months(moment: datetime, month: str) -> None:
    assert month_of(int(moment.timestamp() * 1000) // HOUR_MS) == month


@given(hour=st.integers(0, 10**7))
def test_months_agree_with_the_calendar(hour: int) -> None:
    moment = datetime.fromtimestamp(hour * 3600, tz=UTC)
    assert month_of(hour) == f"{moment:%Y-%m}"
