"""Learning from pairs: the preferred answer is to gain likelihood over the other one.

Losses and figures are those of TRL's DPOTrainer (1.16), from which their formulas are taken; tests
compare them. A pair has its weight in a step whatever its length, as there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from schemas.training import LossType
from tunery.ml.loss import Batch, answer_scores
from tunery.ml.objectives import Scored
from tunery.ml.packed import CHOSEN

DISCOPOP_TAU: Final = 0.05  # TRL's


@dataclass(frozen=True)
class LogRatios:
    """How much likelier answers are than under the reference, each [pairs].

    chosen, rejected: log-ratios
    chosen_labels, rejected_labels: tokens of the answers
    """

    chosen: Tensor
    rejected: Tensor
    chosen_labels: Tensor
    rejected_labels: Tensor

    @property
    def margin(self) -> Tensor:
        return self.chosen - self.rejected

    @property
    def mean_margin(self) -> Tensor:
        """The margin with each answer counted by its mean token."""
        chosen = self.chosen / self.chosen_labels.clamp(min=1)
        return chosen - self.rejected / self.rejected_labels.clamp(min=1)


def _discopop(ratios: LogRatios, beta: float) -> Tensor:
    """Equation 5 of "Discovering Preference Optimization Algorithms" (2024)."""
    logits = beta * ratios.margin
    modulation = torch.sigmoid(logits / DISCOPOP_TAU)
    return -logsigmoid(logits) * (1 - modulation) + torch.exp(-logits) * modulation


LOSSES: Final[Mapping[LossType, Callable[[LogRatios, float], Tensor]]] = {
    "sigmoid": lambda ratios, beta: -logsigmoid(beta * ratios.margin),
    "hinge": lambda ratios, beta: torch.relu(1 - beta * ratios.margin),
    "ipo": lambda ratios, beta: (ratios.mean_margin - 1 / (2 * beta)) ** 2,
    "nca_pair": lambda ratios, beta: (
        -logsigmoid(beta * ratios.chosen)
        - 0.5 * logsigmoid(-beta * ratios.chosen)
        - 0.5 * logsigmoid(-beta * ratios.rejected)
    ),
    "bco_pair": lambda ratios, beta: (
        -logsigmoid(beta * ratios.chosen) - logsigmoid(-beta * ratios.rejected)
    ),
    "sppo_hard": lambda ratios, beta: (
        (ratios.chosen - 0.5 / beta) ** 2 + (ratios.rejected + 0.5 / beta) ** 2
    ),
    "apo_zero": lambda ratios, beta: (
        1 - torch.sigmoid(beta * ratios.chosen) + torch.sigmoid(beta * ratios.rejected)
    ),
    "apo_down": lambda ratios, beta: (
        torch.sigmoid(beta * ratios.chosen) + 1 - torch.sigmoid(beta * ratios.margin)
    ),
    "discopop": _discopop,
    "sigmoid_norm": lambda ratios, beta: -logsigmoid(beta * ratios.mean_margin),
}


@dataclass(frozen=True)
class Preferences:
    """Direct preference optimisation (DPO) and its relatives.

    beta: how closely the model is held to its reference
    packing: the documents of a row are computed together
    """

    beta: float
    loss_type: LossType
    packing: bool
    is_librarys: ClassVar[bool] = False
    needs_reference: ClassVar[bool] = True

    def count(self, batch: Batch) -> int:
        return int((batch["roles"] == CHOSEN).sum())

    def score(self, model: Any, batch: Batch) -> Scored:
        """A loss per pair. `batch["reference"]`: log-probabilities of answers before training."""
        answers = answer_scores(model, batch, packing=self.packing)
        ratio = answers.logps - batch["reference"]
        ratios = LogRatios(ratio[0::2], ratio[1::2], answers.labels[0::2], answers.labels[1::2])
        chosen, rejected = (self.beta * ratio.detach()[side::2] for side in (0, 1))
        figures = {
            "mean_token_accuracy": answers.correct[answers.sequences % 2 == 0],
            "reward_accuracy": chosen > rejected,
            "reward_margin": chosen - rejected,
            "reward_chosen": chosen,
            "reward_rejected": rejected,
        }
        return Scored(LOSSES[self.loss_type](ratios, self.beta), figures)
