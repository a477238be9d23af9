"""Losses of a session's rows: their values and gradients by hand."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tunery.work.session import LossRow

pytestmark = pytest.mark.train
CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
OLD = [-1.0, -2.0]
ADVANTAGES = [1.0, -1.0]
RATIO = 1.5  # of the first token, above the clip; that of the second is 1


def computed(loss: Any, settings: Mapping[str, float]) -> tuple[float, list[float]]:
    """The loss of two tokens, and its gradient."""
    from tunery.ml.sampling import bytes_of
    from tunery.ml.token_losses import loss_of

    new = torch.tensor([OLD[0] + math.log(RATIO), OLD[1]], requires_grad=True)
    row = LossRow(
        tokens=b"",
        targets=b"",
        weights=bytes_of(torch.tensor([2.0, 0.0])),
        logprobs=bytes_of(torch.tensor(OLD)),
        advantages=bytes_of(torch.tensor(ADVANTAGES)),
    )
    value = loss_of(loss, new, row, settings)
    value.backward()  # type: ignore[no-untyped-call]  # torch types it so
    assert new.grad is not None
    return float(value.detach()), new.grad.tolist()


FIRST = OLD[0] + math.log(RATIO)


@pytest.mark.parametrize(
    ("loss", "settings", "value", "gradient"),
    [
        ("cross_entropy", {}, -2 * FIRST, [-2.0, 0.0]),
        ("importance_sampling", {}, -(RATIO - 1), [-RATIO, 1.0]),
        ("ppo", CLIP, -(1.2 - 1), [0.0, 1.0]),
        ("cispo", CLIP, -(1.2 * FIRST - OLD[1]), [-1.2, 1.0]),
        (
            "dro",
            {"beta": 0.1},
            -(FIRST - OLD[1] - 0.05 * math.log(RATIO) ** 2),
            [-(1 - 0.1 * math.log(RATIO)), 1.0],
        ),
    ],
)
def test_a_loss_is_a_sum_over_tokens(
    loss: str, settings: dict[str, float], value: float, gradient: list[float]
) -> None:
    found_value, found_gradient = computed(loss, settings)
    assert found_value == pytest.approx(value, abs=1e-6)
    assert found_gradient == pytest.approx(gradient, abs=1e-6)
