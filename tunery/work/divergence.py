"""Detects losses that are not finite or stay far above their usual values. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from statistics import median

from tunery.work.exits import WorkError

WINDOW_STEPS = 100
HISTORY_MIN = 20  # with fewer losses, no usual value is known
DEVIATIONS = 6.0  # of the median absolute deviation, and twice the median besides
SPIKE_STEPS = 3  # in a row: one hard batch is no spike


@dataclass(frozen=True)
class LossWindow:
    """The last losses that were not spikes, and how many spikes came in a row."""

    losses: tuple[float, ...] = ()
    spikes: int = 0

    def add(self, loss: float) -> "LossWindow":
        """The window after one more step."""
        if self.is_high(loss):
            return LossWindow(self.losses, self.spikes + 1)
        return LossWindow((*self.losses, loss)[-WINDOW_STEPS:], 0)

    def is_high(self, loss: float) -> bool:
        if len(self.losses) < HISTORY_MIN:
            return False
        middle = median(self.losses)
        deviation = median(abs(value - middle) for value in self.losses)
        return loss > middle + DEVIATIONS * deviation and loss > 2 * middle

    @property
    def spiking(self) -> bool:
        """True once, when the last of `SPIKE_STEPS` high losses came in."""
        return self.spikes == SPIKE_STEPS


def check_finite(
    value: float,
    *,
    what: str,
    step: int,
    learning_rate: float,
    suspects: Callable[[], str] = lambda: "",
) -> None:
    """Raises `WorkError("divergence")` when a loss or a gradient norm is NaN or infinite.

    step: step in or after which it was computed
    suspects: the rows with the highest losses, in words; asked only where the number is not finite
    """
    if isfinite(value):
        return
    named = suspects()
    rows = f"the rows with the highest losses are {named}" if named else "look for broken text"
    raise WorkError(
        "divergence",
        f"{what} is {value} at step {step} (learning rate {learning_rate:g})",
        f"Lower learning_rate to {learning_rate / 3:.1g} or raise warmup_ratio; {rows}. "
        "The last checkpoint is from before this step.",
    )
