from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.work.divergence import WINDOW_STEPS, LossWindow, check_finite
from tunery.work.exits import WorkError


def after(losses: list[float]) -> LossWindow:
    window = LossWindow()
    for loss in losses:
        window = window.add(loss)
    return window


CALM = [1.0 + 0.01 * (step % 5) for step in range(40)]


def test_three_high_losses_in_a_row_are_a_spike_once() -> None:
    windows = list(
        accumulate([9.0, 9.0, 9.0, 9.0], lambda w, loss: w.add(loss), initial=after(CALM))
    )
    assert [window.spiking for window in windows] == [False, False, False, True, False]


def test_one_hard_batch_is_no_spike() -> None:
    window = after([*CALM, 9.0, 1.0, 9.0, 9.0, 1.0])
    assert window.spikes == 0
    assert 9.0 not in window.losses


@given(st.lists(st.floats(min_value=0, max_value=100), max_size=300))
def test_the_window_is_bounded(losses: list[float]) -> None:
    assert len(after(losses).losses) <= WINDOW_STEPS


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_stops_the_run_with_advice(value: float) -> None:
    with pytest.raises(WorkError, match="step 8") as caught:
        check_finite(value, what="the loss", step=8, learning_rate=3e-3)
    assert caught.value.cause == "divergence"
    assert "0.001" in caught.value.advice


def test_finite_numbers_pass() -> None:
    check_finite(1e30, what="the loss", step=0, learning_rate=1e-3)
    assert not LossWindow().is_high(1e30)
