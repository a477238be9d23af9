"""Detection of trainings that learn nothing."""

import pytest

from tunery.work.learning import Learning


def run(total: int, losses: list[float], deviations: list[float] | None = None) -> list[int]:
    """Steps at which it says that nothing is learnt."""
    learning, shown = Learning(), []
    for step, loss in enumerate(losses, start=1):
        deviation = None if deviations is None else deviations[step - 1]
        learning = learning.add(total, loss, deviation)
        if learning.shows_nothing(total):
            shown.append(step)
    return shown


@pytest.mark.parametrize(("total", "first"), [(4, 4), (20, 20), (200, 20)])
def test_first_hour2_u17_rewards_that_are_all_equal_teach_nothing(total: int, first: int) -> None:
    """A job with 12 prompts and rewards of 0 succeeded without one word of warning."""
    assert run(total, [0.0] * total, [0.0] * total)[:1] == [first]


def test_first_hour2_u17_rewards_that_differed_once_taught_something() -> None:
    deviations = [0.0] * 10 + [0.2] + [0.0] * 89
    assert run(100, [0.0] * 100, deviations) == []


def test_first_hour2_u17_preferences_that_stand_still_teach_nothing() -> None:
    """A DPO job went from 0.69 to 0.68, and passed."""
    losses = [0.6931 - 0.01 * step / 60 for step in range(60)]
    assert run(60, losses) == [60]
    assert run(2_000, [0.69] * 2_000)[0] == 400, "a long training warms up for longer"


def test_first_hour2_u17_a_loss_that_fell_may_stand_still_later() -> None:
    losses = [2.0] * 20 + [1.9] * 480
    assert run(500, losses) == []


def test_first_hour2_u17_a_short_training_is_left_to_the_gate() -> None:
    assert run(29, [1.0] * 29) == []


def test_first_hour2_u17_noise_around_a_fall_of_a_tenth_is_no_standstill() -> None:
    losses = [1.5 - 0.15 * step / 60 + 0.1 * (step % 3 - 1) for step in range(60)]
    assert run(60, losses) == []
