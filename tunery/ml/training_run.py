"""State of one attempt, which the parts of the training loop share."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from tunery.ml.beats import Beats
from tunery.ml.checkpoints import Written
from tunery.ml.evaluations import Evaluations
from tunery.ml.events import EventWriter
from tunery.ml.model_scores import ModelScores
from tunery.ml.order import StepPlan, rows_of_step
from tunery.ml.packed import PackedRows
from tunery.ml.ranks import ALONE, Ranks
from tunery.work.divergence import LossWindow
from tunery.work.learning import Learning
from tunery.work.spec import Hyper, TrainSpec


@dataclass
class TrainingRun:
    """State of one attempt."""

    spec: TrainSpec
    hyper: Hyper
    rows: PackedRows
    valid: PackedRows | None
    plan: StepPlan
    fingerprint: dict[str, str]  # equal for two attempts of the same run
    environment: dict[str, str]  # equal where a resume is equal to the bit
    events: EventWriter
    must_stop: Callable[[], bool]
    # window, loss: recent losses, and that of the last step in nats per label
    window: LossWindow = field(default_factory=LossWindow)
    # whether the steps show that anything is learnt
    learning: Learning = field(default_factory=Learning)
    loss: float | None = None
    # saved_at_s, saved: time of the last checkpoint by the monotonic clock, and the checkpoint
    saved_at_s: float = field(default_factory=time.monotonic)
    saved: Written | None = None
    save_s: float = 0.0  # how long the training stood still for it; 0: there is none yet
    # evaluations, best: what they showed, and the weights with the lowest loss if those are wanted
    evaluations: Evaluations = field(default_factory=Evaluations)
    best: dict[str, Tensor] = field(default_factory=dict)
    scores: ModelScores | None = None  # scores that models give to answers; None: none are asked
    ranks: Ranks = ALONE  # the processes that share the micro-batches of each step
    beats: Beats | None = None  # heartbeats of this rank; None: it is alone
    step_s: float = 0.0  # what the last step took
    is_trying: bool = False

    def at(self, step: int, phase: str, micro_batch: int = 0) -> None:
        """Let this rank's heartbeats say where it is."""
        if self.beats is not None:
            self.beats.at(0 if self.is_trying else step, phase, micro_batch)

    @property
    def has_stopped_early(self) -> bool:
        """True if validation loss has not improved for `early_stopping_patience` evaluations."""
        return self.evaluations.has_run_out(self.hyper.early_stopping_patience)

    def rows_of_step(self, step: int) -> list[int]:
        """Numbers of the packed rows that a step sees, counted from 1."""
        plan = self.plan
        return rows_of_step(
            self.hyper.seed, step, n_rows=plan.n_rows, rows_per_step=plan.rows_per_step
        )
