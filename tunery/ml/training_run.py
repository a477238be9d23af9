"""State of one attempt, which the parts of the training loop share."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from tunery.ml.checkpoints import Written
from tunery.ml.evaluations import Evaluations
from tunery.ml.events import EventWriter
from tunery.ml.model_scores import ModelScores
from tunery.ml.order import StepPlan, rows_of_step
from tunery.ml.packed import PackedRows
from tunery.ml.ranks import ALONE, Ranks
from tunery.ml.sharding import ShardedLayers
from tunery.work.divergence import LossWindow
from tunery.work.spec import Hyper, TrainSpec


@dataclass
class TrainingRun:
    """State of one attempt.

    fingerprint: equal for two attempts of the same run
    environment: equal where a resume is equal to the bit
    window, loss: recent losses, and that of the last step in nats per label
    saved_at_s, saved: when (monotonic clock) and what the last checkpoint was
    save_s: what it took, while the training stood still; 0: there is none yet
    evaluations, best: what they showed, and the weights with the lowest loss if those are wanted
    scores: what models say of answers; None: they are not asked
    sharded: the layers of a model of which each rank has a share of the weights; None: each has all
    ranks: the processes that share the micro-batches of each step
    step_began_s, step_s: when the step in progress began, and what the last one took
    micro_batches_s: what each micro-batch of the step in progress took this rank, without the time
        that it waited for others
    """

    spec: TrainSpec
    hyper: Hyper
    rows: PackedRows
    valid: PackedRows | None
    plan: StepPlan
    fingerprint: dict[str, str]
    environment: dict[str, str]
    events: EventWriter
    must_stop: Callable[[], bool]
    window: LossWindow = field(default_factory=LossWindow)
    loss: float | None = None
    saved_at_s: float = field(default_factory=time.monotonic)
    saved: Written | None = None
    save_s: float = 0.0
    evaluations: Evaluations = field(default_factory=Evaluations)
    best: dict[str, Tensor] = field(default_factory=dict)
    scores: ModelScores | None = None
    sharded: ShardedLayers | None = None
    ranks: Ranks = ALONE
    step_began_s: float = 0.0
    step_s: float = 0.0
    micro_batches_s: list[float] = field(default_factory=list)

    @property
    def has_stopped_early(self) -> bool:
        """Whether the validation loss has not got better for as long as the user bears."""
        return self.evaluations.has_run_out(self.hyper.early_stopping_patience)

    def rows_of_step(self, step: int) -> list[int]:
        """Numbers of the packed rows that a step sees, counted from 1."""
        plan = self.plan
        return rows_of_step(
            self.hyper.seed, step, n_rows=plan.n_rows, rows_per_step=plan.rows_per_step
        )
