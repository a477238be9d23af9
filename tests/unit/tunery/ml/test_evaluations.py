"""Best evaluation, and early stopping without a better one."""

import pytest

from tunery.ml.evaluations import Evaluations


def after(*losses: float) -> Evaluations:
    seen = Evaluations()
    for step, loss in enumerate(losses, start=1):
        seen = seen.add(step, loss)
    return seen


@pytest.mark.parametrize(
    ("losses", "best", "step", "worse"),
    [
        ((2.0,), 2.0, 1, 0),
        ((2.0, 1.0, 1.5), 1.0, 2, 1),
        ((2.0, 1.0, 1.0), 1.0, 2, 1),  # of equal ones the first
        ((2.0, 3.0, 1.9), 1.9, 3, 0),
        ((), None, 0, 0),
    ],
)
def test_the_lowest_loss_is_the_best(
    losses: tuple[float, ...], best: float | None, step: int, worse: int
) -> None:
    assert after(*losses) == Evaluations(best, step, worse)


def test_patience_runs_out_after_so_many_evaluations_without_a_better_one() -> None:
    assert after(2.0, 1.0, 1.5, 1.2).has_run_out(2)
    assert not after(2.0, 1.0, 1.5, 1.2).has_run_out(3)
    assert not after(2.0, 3.0, 1.9).has_run_out(1)
    assert not after(1.0, 2.0, 3.0).has_run_out(0), "0: there is no limit"
