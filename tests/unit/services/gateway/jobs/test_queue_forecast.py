"""The queue played through: examples, and what holds whatever waits and runs."""

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.jobs.queue_forecast import (
    LEFT_MS_MIN,
    RunningJob,
    WaitingJob,
    left_ms,
    starts_in_ms,
)

SLOTS = st.integers(1, 8)
TIMES = st.integers(0, 10**8)
RUNNING = st.builds(RunningJob, SLOTS, TIMES)
WAITING = st.lists(st.tuples(SLOTS, TIMES), max_size=20).map(
    lambda begins: [WaitingJob(str(n), slots, ms) for n, (slots, ms) in enumerate(begins)]
)


def test_a_free_slot_is_taken_at_once_and_the_next_waits_for_the_first_end() -> None:
    running = [RunningJob(1, 500), RunningJob(1, 300)]
    waiting = [WaitingJob("a", 1, 1_000), WaitingJob("b", 1, 10), WaitingJob("c", 2, 10)]
    assert starts_in_ms(3, running, waiting) == {"a": 0, "b": 300, "c": 500}


def test_a_large_job_delays_later_ones_and_one_that_never_fits_has_no_forecast() -> None:
    waiting = [WaitingJob("huge", 9, 1), WaitingJob("gang", 2, 100), WaitingJob("last", 1, 1)]
    assert starts_in_ms(2, [RunningJob(1, 50)], waiting) == {"gang": 50, "last": 150}
    assert starts_in_ms(0, [], waiting) == {}
    assert starts_in_ms(2, [RunningJob(3, 50)], []) == {}


def test_a_job_that_runs_longer_than_expected_is_assumed_to_end_soon() -> None:
    assert left_ms(1_000, 5_000) == LEFT_MS_MIN


@given(slots=SLOTS, running=st.lists(RUNNING, max_size=10), waiting=WAITING)
def test_jobs_start_in_queue_order_and_slots_are_not_shared(
    slots: int, running: list[RunningJob], waiting: list[WaitingJob]
) -> None:
    begins = starts_in_ms(slots, running, waiting)
    fitting = [job for job in waiting if job.job_id in begins]
    starts = [begins[job.job_id] for job in fitting]
    assert starts == sorted(starts)
    if sum(item.slots for item in running) > slots:
        return  # more runs than the live nodes have: nothing to hold against it
    for job in fitting:
        at = begins[job.job_id]
        used = sum(item.slots for item in running if item.left_ms > at)
        used += sum(
            item.slots
            for item in fitting
            if begins[item.job_id] <= at < begins[item.job_id] + item.needs_ms or item is job
        )
        assert used <= slots
