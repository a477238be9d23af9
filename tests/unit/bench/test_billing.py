"""The year that the benchmark of billing measures."""

from random import Random

from bench.billing import MONTHS, _month
from schemas.pool import UsageCredited


def test_a_month_has_slices_credits_and_late_rows() -> None:
    november = MONTHS[10]
    events = list(_month(Random(1), november, 2_000, 0))
    assert len(events) == 2_000
    late = [event for event in events if event.hour_utc < november.first_hour]
    assert 0 < len(late) < 100
    assert 0 < sum(isinstance(event, UsageCredited) for event in events) < 100
    assert len({event.lease.job_id for event in events}) == 500
