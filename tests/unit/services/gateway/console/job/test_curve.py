"""Curves: at most so many points, no spike lost, a repeated step counted once."""

from typing import Any

from services.gateway.console.job.curve import POINTS_MAX, columns, decimated, newest_of


def step(number: int, loss: float | None = 1.0, **more: Any) -> dict[str, Any]:
    return {
        "step": number,
        "train_loss": loss,
        "valid_loss": None,
        "learning_rate": 1e-4,
        "tokens_per_second": 100.0,
        "peak_memory_bytes": 1 << 30,
        **more,
    }


def test_a_short_curve_is_whole() -> None:
    steps = [step(number) for number in range(1, 11)]
    assert decimated(steps) == steps


def test_the_last_attempt_that_repeats_a_step_counts() -> None:
    steps = [step(1, 2.0), step(2, 1.5), step(2, 1.4), step(3, None)]
    assert columns(decimated(steps))["train_loss"] == [2.0, 1.4, None]


def test_spikes_and_validations_of_ten_thousand_steps_are_kept() -> None:
    steps = [step(number, 1.0 / number) for number in range(1, 10_001)]
    steps[7_123]["train_loss"] = 9.0
    steps[400]["train_loss"] = None
    for number in range(499, 10_000, 500):
        steps[number]["valid_loss"] = 0.5
    kept = decimated(steps)
    assert len(kept) <= POINTS_MAX
    numbers = [each["step"] for each in kept]
    assert numbers == sorted(set(numbers))
    assert 7_124 in numbers
    assert {number + 1 for number in range(499, 10_000, 500)} <= set(numbers)


def test_a_training_without_a_finite_loss_has_a_curve() -> None:
    kept = decimated([step(number, None) for number in range(1, 3_001)])
    assert 0 < len(kept) <= POINTS_MAX


def test_the_newest_step_has_the_newest_validation_loss() -> None:
    steps = [step(1), step(2, valid_loss=0.5), step(3, valid_loss=0.4), step(4, 0.3)]
    assert newest_of(steps) == step(4, 0.3, valid_loss=0.4)
    assert newest_of(steps[:1]) == step(1)
    assert newest_of([]) is None
