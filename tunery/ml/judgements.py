"""Learning from answers with the label true or false (KTO).

Losses are those of TRL's KTOTrainer (1.16). How far the model has moved from its reference (the
KL) is estimated, as there, on prompts with the answers of others: there in a micro-batch, here in a
packed row, so that how a step is divided changes nothing.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from tunery.ml.loss import Batch, answer_scores
from tunery.ml.objectives import Scored
from tunery.ml.packed import WANTED, mismatched


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
