"""Spot machines: which work bears them, which jobs are kept off them, until when they may start."""

import pytest

from schemas.units import HOUR_MS
from tunery.plan.spot import (
    KEPT_OFF_MS,
    LOSSES_WINDOW_MS,
    PRIOR_MS,
    RESTART_MS,
    bears_spot,
    kept_off_until,
    lifetime_ms,
    spot_until,
)

MINUTE = 60_000
AT = 100 * HOUR_MS


def test_machines_live_as_long_as_is_usual_until_more_of_them_are_lost() -> None:
    assert lifetime_ms(4, (), AT) == PRIOR_MS
    assert lifetime_ms(4, (AT - HOUR_MS,), AT) == PRIOR_MS
    many = [AT - hours * HOUR_MS for hours in range(1, 24)]
    assert lifetime_ms(1, many, AT) == 24 * HOUR_MS // 23
    assert lifetime_ms(1, [AT - 25 * HOUR_MS] * 40, AT) == PRIOR_MS, "they are forgotten"


@pytest.mark.parametrize(
    ("saved_every_ms", "lives_ms", "bears"),
    [
        (10 * MINUTE, PRIOR_MS, True),
        (18 * MINUTE, PRIOR_MS, True),
        (18 * MINUTE + 2, PRIOR_MS, False),
        (10 * MINUTE, 80 * MINUTE, True),
        (10 * MINUTE, 80 * MINUTE - 1, False),
        (0, 29 * MINUTE, False),
    ],
)
def test_work_bears_them_while_stops_cost_a_tenth_of_the_time_at_most(
    saved_every_ms: int, lives_ms: int, bears: bool
) -> None:
    assert bears_spot(saved_every_ms, lives_ms) is bears


def test_two_losses_in_two_hours_keep_a_job_off_for_four() -> None:
    soon, later = (AT, AT + LOSSES_WINDOW_MS), (AT, AT + LOSSES_WINDOW_MS + 1)
    assert kept_off_until(soon[:1], AT) is None
    over = soon[1] + KEPT_OFF_MS
    assert kept_off_until(soon, soon[1]) == kept_off_until(soon, over - 1) == over
    assert kept_off_until(soon, over) is None
    assert kept_off_until(later, later[1]) is None


def test_what_should_be_done_by_then_leaves_time_for_a_loss() -> None:
    assert spot_until(None, HOUR_MS, MINUTE) is None
    assert spot_until(AT, HOUR_MS, 10 * MINUTE) == AT - HOUR_MS - 10 * MINUTE - RESTART_MS
