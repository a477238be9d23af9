"""The objective of each method."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from tunery.ml.loss import Batch, answer_scores
from tunery.ml.model_scores import ModelScores
from tunery.ml.objectives import Objective, Scored, Supervised
from tunery.ml.packed import WANTED, PackedRows, mismatched
from tunery.ml.preferences import Likelihoods, Preferences
from tunery.ml.reinforcement import Reinforcement
from tunery.ml.rewards import Rewards
from tunery.ml.rollouts import rollouts_of
from tunery.plan.methods import ROWS_OF_METHOD
from tunery.work.exits import WorkError
from tunery.work.spec import Hyper, ScoreSpec

# Learning from answers with the label true or false (KTO).
#
# Losses are those of TRL's KTOTrainer (1.16). How far the model has moved from its reference (the
# KL) is estimated, as there, on prompts with the answers of others: there in a micro-batch, here in
# a packed row, so that how a step is divided changes nothing.


@dataclass(frozen=True)
class Judgements:
    """Kahneman-Tversky optimisation."""

    beta: float  # how closely the model is held to its reference
    packing: bool  # the documents of a row are computed together
    # desirable, undesirable: weights of answers with the label true and false
    desirable: float = 1.0
    undesirable: float = 1.0
    needs_reference: ClassVar[bool] = True

    def count(self, batch: Batch) -> int:
        return len(batch["roles"])

    def score(self, model: Any, batch: Batch) -> Scored:
        """A loss per answer. `batch["reference"]`: log-probabilities before training."""
        moved = self._moved(model, batch)
        answers = answer_scores(model, batch, packing=self.packing)
        gained = answers.logps - batch["reference"]
        wanted = batch["roles"] == WANTED
        ahead = torch.where(wanted, gained - moved, moved - gained)
        weights = torch.where(wanted, self.desirable, self.undesirable)
        rewards = self.beta * gained.detach()
        figures = {
            "mean_token_accuracy": answers.correct[wanted[answers.sequences]],
            "reward_accuracy": (rewards > 0) == wanted,
            "reward_chosen": rewards[wanted],
            "reward_rejected": rewards[~wanted],
        }
        if wanted.any() and not wanted.all():
            figures["reward_margin"] = (rewards[wanted].mean() - rewards[~wanted].mean())[None]
        return Scored(weights * (1 - torch.sigmoid(self.beta * ahead)), figures)

    def _moved(self, model: Any, batch: Batch) -> Tensor:
        """How much likelier answers have become to prompts of others, [answers], at least 0.

        The same for all answers of a packed row; 0 for one that is alone in its row.
        """
        others = mismatched(batch)
        if others is None:
            raise ValueError("the batch has no mismatched answers")
        with torch.no_grad():
            logps = answer_scores(model, others, packing=self.packing).logps
        lines = batch["lines"]
        counts = torch.bincount(lines)
        sums = torch.zeros(len(counts), device=logps.device)
        means = sums.index_add(0, lines, logps - others["reference"]) / counts
        return torch.where(counts > 1, means.clamp(min=0), 0.0)[lines]


def objective_of(
    asked: Hyper | ScoreSpec,
    rows: PackedRows,
    *,
    packing: bool,
    grader: str | None = None,
    tokenizer: Any = None,
    scores: ModelScores | None = None,
) -> Objective:
    """Return the objective of a method for packed rows.

    grader, tokenizer, scores: for methods whose answers are graded

    Raises `WorkError` for a method that is not built, and for rows that it does not learn from.
    """
    method = asked.method
    if method not in ROWS_OF_METHOD:
        raise WorkError(
            "user", f"method {method!r} is not built", f"Use one of {', '.join(ROWS_OF_METHOD)}."
        )
    if rows.kind != ROWS_OF_METHOD[method]:
        message = f"method {method!r} learns from {ROWS_OF_METHOD[method]}, not from {rows.kind}"
        raise WorkError("bad_data", message, "Prepare the dataset again for this method.")
    match method:
        case "supervised":
            return Supervised(packing)
        case "dpo":
            return Preferences(asked.beta, asked.loss_type, packing, asked.label_smoothing)
        case "kto":
            return Judgements(asked.beta, packing, asked.desirable, asked.undesirable)
        case "reward":
            return Rewards(packing, 0.0 if isinstance(asked, ScoreSpec) else asked.center_rewards)
        case "reinforcement":
            rollouts = rollouts_of(grader, tokenizer, asked.max_completion_length, scores)
            if isinstance(asked, ScoreSpec):  # of each prompt the likeliest answer alone
                return Reinforcement(rollouts, 1, 1.0, asked.beta, 0)
            drawn = (asked.num_generations, asked.temperature, asked.beta, asked.seed)
            return Reinforcement(rollouts, *drawn)
        case _:
            return Likelihoods(method, asked.beta, packing, asked.label_smoothing, asked.gamma)
