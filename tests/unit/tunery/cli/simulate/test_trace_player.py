"""A trace is played with the planner; baselines do what is known of them."""

import pytest

from tunery.cli.simulate.policies import POLICIES
from tunery.cli.simulate.trace_jobs import TraceJob
from tunery.cli.simulate.trace_player import Played, play

HOUR, MINUTE = 3_600_000, 60_000


def job(
    number: int, hours: int, slots: int = 1, at: int = 0, lane: int = 1, tenant: str = "a"
) -> TraceJob:
    return TraceJob(
        job_id=f"{number:08}",
        submitted_at=at,
        duration_ms=hours * HOUR,
        estimate_ms=hours * HOUR,
        slots=slots,
        tenant=tenant,
        lane=lane,
    )


def starts(played: Played) -> list[int]:
    return [each.started_at // HOUR for each in played.jobs]


# On one node of 8: a long job, a gang behind it, then one that would fit beside the first.
GANG = (job(1, 4, 4), job(2, 1, 8, at=1), job(3, 8, 4, at=1), job(4, 3, 4, at=1))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fifo", [0, 4, 5, 5]),  # all wait behind the gang
        ("skip-ahead", [0, 8, 0, 4]),  # the gang waits for all
        ("easy", [0, 4, 5, 0]),  # the last one ends before the gang can start
        ("easy-sjf", [0, 4, 5, 0]),
        ("sjf", [0, 11, 3, 0]),
    ],
)
def test_baselines_serve_the_queue_as_their_names_say(policy: str, expected: list[int]) -> None:
    played = play(GANG, POLICIES[policy], nodes=1, slots=8, exact=True)
    assert starts(played) == expected


def test_a_premium_job_stops_a_free_one_which_goes_on_from_its_checkpoint() -> None:
    free, premium = job(1, 10, lane=2), job(2, 1, at=35 * MINUTE, lane=0)
    played = play((free, premium), POLICIES["tunery"], nodes=1, slots=1)
    stopped, first = played.jobs
    assert first.wait_ms == 0
    assert (stopped.preemptions, stopped.lost_ms) == (1, 8 * MINUTE)
    # Half an hour was saved; it starts again after an hour, in three minutes.
    assert stopped.ends_at == 35 * MINUTE + HOUR + 3 * MINUTE + 10 * HOUR - 30 * MINUTE


def test_a_victim_that_would_lose_too_much_is_not_stopped() -> None:
    free, premium = job(1, 10, lane=2), job(2, 1, at=45 * MINUTE, lane=0)
    played = play((free, premium), POLICIES["tunery"], nodes=1, slots=1)
    assert played.jobs[1].wait_ms == 15 * MINUTE, "until the next checkpoint"


def test_a_played_trace_is_the_same_every_time() -> None:
    jobs = [job(n, 1 + n % 7, (1, 2, 8)[n % 3], at=n * MINUTE, lane=n % 3) for n in range(60)]
    first, second = (play(jobs, POLICIES["tunery"], 2, 8) for _ in range(2))
    assert first.jobs == second.jobs
