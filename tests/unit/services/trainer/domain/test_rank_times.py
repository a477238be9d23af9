"""The rank of a training that the others wait for."""

import pytest

from services.trainer.domain.rank_times import STEPS, RankTimes


def test_the_slowest_rank_is_compared_with_what_is_usual_in_the_others() -> None:
    times = RankTimes()
    for _ in range(STEPS - 1):
        times.add((100, 104, 260, 96))
    assert times.slowest() is None, "too few steps"
    times.add((100, 104, 260, 96))
    slowest = times.slowest()
    assert slowest is not None
    assert (slowest.number, slowest.is_slow) == (2, True)
    assert slowest.ratio == pytest.approx(2.6)
    for _ in range(STEPS):
        times.add((100, 104, 101, 96))
    slowest = times.slowest()
    assert slowest is not None
    assert (slowest.number, slowest.is_slow) == (1, False), "what is long ago does not count"


def test_of_two_ranks_each_is_compared_with_the_other_one() -> None:
    times = RankTimes()
    for _ in range(STEPS):
        times.add((100, 200))
    assert times.slowest() == (1, 2.0)


def test_a_rank_that_had_no_part_of_a_step_is_not_fast_for_it() -> None:
    """The last step of an epoch may have fewer micro-batches than ranks."""
    times = RankTimes()
    for number in range(STEPS):
        times.add((100, 100 if number % 2 else 0))
    assert times.slowest() == (0, 1.0)


def test_a_training_in_one_process_has_no_slowest_rank() -> None:
    times = RankTimes()
    for _ in range(STEPS):
        times.add(())
    assert times.slowest() is None
