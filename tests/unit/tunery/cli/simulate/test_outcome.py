"""Figures of a played trace."""

from dataclasses import replace

from tests.unit.tunery.cli.simulate.test_trace_player import HOUR, MINUTE, job
from tunery.cli.simulate.outcome import calibration, outcome
from tunery.cli.simulate.policies import POLICIES
from tunery.cli.simulate.trace_player import play


def test_a_played_trace_says_how_long_lanes_wait_and_what_was_lost() -> None:
    free, premium = job(1, 10, lane=2), job(2, 1, at=35 * MINUTE, lane=0)
    played = play((free, premium, job(3, 1, at=9 * HOUR)), POLICIES["tunery"], nodes=1, slots=1)
    figures = outcome(played, 1)
    assert (figures["premium_under_5min_pct"], figures["free_under_24h_pct"]) == (100, 100)
    assert figures["preemptions"] == sum(each.preemptions for each in played.jobs)
    lost_ms = sum(each.lost_ms for each in played.jobs)
    assert figures["gpu_hours_lost_pct"] == round(100 * lost_ms / (12 * HOUR), 3)
    assert figures["mean_wait_h"] == round(sum(e.wait_ms for e in played.jobs) / 3 / HOUR, 3)


def test_review2_q1_the_longest_waits_are_shown_by_lane_and_size() -> None:
    """A share of all jobs hides those that are few."""
    whole = replace(job(2, 1, at=MINUTE, lane=2), slots=8)
    small = [job(number, 1, at=MINUTE) for number in (3, 4, 5)]
    played = play((job(1, 10), whole, *small), POLICIES["fifo"], nodes=1, slots=8)
    figures = outcome(played, 8)
    assert figures["free_from_8_slots_max_wait_h"] == round(10 - 1 / 60, 3)
    assert figures["free_from_8_slots_p99_wait_h"] == figures["free_from_8_slots_max_wait_h"]
    assert figures["standard_from_1_slots_max_wait_h"] == round(11 - 1 / 60, 3)


def test_the_calibration_says_which_share_ended_within_the_estimates() -> None:
    jobs = [
        replace(job(number, 1), duration_ms=number * HOUR, estimate_ms=2 * HOUR)
        for number in (1, 2, 3, 4)
    ]
    assert calibration(jobs) == {"within_p50_pct": 50}, "the trace has no upper estimate"
    upper = [replace(each, upper_ms=3 * HOUR) for each in jobs]
    assert calibration(upper) == {"within_p50_pct": 50, "within_p90_pct": 75}
