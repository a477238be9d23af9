"""Record of a run's evaluations so far. Never imports torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Evaluations:
    """The lowest validation loss, and how long ago that was."""

    # loss, step: loss of the best evaluation, in nats per label, and its step; None: there was none
    # yet
    loss: float | None = None
    step: int = 0
    worse: int = 0  # evaluations since then, none of which was better

    def add(self, step: int, loss: float) -> "Evaluations":
        """The record after one more evaluation; of equal ones the first is the best."""
        if self.loss is None or loss < self.loss:
            return Evaluations(loss, step)
        return Evaluations(self.loss, self.step, self.worse + 1)

    def has_run_out(self, patience: int) -> bool:
        """Return whether the last `patience` evaluations brought no improvement; 0: no limit."""
        return 0 < patience <= self.worse
