"""What the evaluations of a run have shown so far. Never imports torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Evaluations:
    """The lowest validation loss, and how long ago that was.

    loss, step: of the best evaluation, in nats per label; None: there was none yet
    worse: evaluations since then, none of which was better
    """

    loss: float | None = None
    step: int = 0
    worse: int = 0

    def add(self, step: int, loss: float) -> "Evaluations":
        """The record after one more evaluation; of equal ones the first is the best."""
        if self.loss is None or loss < self.loss:
            return Evaluations(loss, step)
        return Evaluations(self.loss, self.step, self.worse + 1)

    def has_run_out(self, patience: int) -> bool:
        """Whether so many in a row were no better than the best; 0: there is no limit."""
        return 0 < patience <= self.worse
