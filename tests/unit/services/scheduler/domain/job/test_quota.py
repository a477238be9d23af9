"""Budget windows are calendar months, and no order of facts passes a limit."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.units import HOUR_MS
from services.scheduler.domain.job.quota import month_of


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
