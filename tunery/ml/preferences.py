"""Learning from pairs: the preferred answer is to gain likelihood over the other one.

Losses and figures are those of TRL's trainers (1.16), from which their formulas are taken; tests
compare them. A pair has its weight in a step, regardless of its length. TRL's "sigmoid" knows no
wrong pairs; with some it is the loss of cDPO.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log, log1p
from typing import Any, ClassVar, Final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from schemas.training import LossType, MethodName
from tunery.ml.loss import AnswerScores, Batch, answer_scores
from tunery.ml.objectives import Scored
from tunery.ml.packed import CHOSEN, IGNORED

DISCOPOP_TAU: Final = 0.05  # TRL's


@dataclass(frozen=True)
class LogRatios:
    """How much likelier answers are than under the reference, each [pairs]."""

    # chosen, rejected: log-ratios
    chosen: Tensor
    rejected: Tensor
    # chosen_labels, rejected_labels: tokens of the answers
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


def _exo(logits: Tensor, smoothing: float) -> Tensor:
    """Equation 16 of "Towards Efficient Exact Optimization" (2024), for two answers."""
    ahead, behind = torch.sigmoid(logits), torch.sigmoid(-logits)
    return ahead * (logsigmoid(logits) - log1p(-smoothing)) + behind * (
        logsigmoid(-logits) - log(smoothing)
    )


def conservative(logits: Tensor, smoothing: float) -> Tensor:
    """The loss of pairs of which a share is the wrong way round (cDPO)."""
    return -(1 - smoothing) * logsigmoid(logits) - smoothing * logsigmoid(-logits)


def _robust(logits: Tensor, smoothing: float) -> Tensor:
    """Robust DPO: unbiased estimate of the loss without the flipped pairs, a share `smoothing`."""
    right, wrong = -logsigmoid(logits), -logsigmoid(-logits)
    return ((1 - smoothing) * right - smoothing * wrong) / (1 - 2 * smoothing)


# Losses of margins times beta, and of the share of pairs that are the wrong way round.
SMOOTHED: Final[Mapping[LossType, Callable[[Tensor, float], Tensor]]] = {
    "sigmoid": conservative,
    "robust": _robust,
    "exo_pair": _exo,
}
LOSSES: Final[Mapping[LossType, Callable[[LogRatios, float], Tensor]]] = {
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
    """Direct preference optimisation (DPO) and its relatives."""

    beta: float  # how closely the model is held to its reference
    loss_type: LossType
    packing: bool  # the documents of a row are computed together
    label_smoothing: float = 0.0  # share of pairs that are taken to be the wrong way round
    needs_reference: ClassVar[bool] = True

    def count(self, batch: Batch) -> int:
        return int((batch["roles"] == CHOSEN).sum())

    def score(self, model: Any, batch: Batch) -> Scored:
        """A loss per pair. `batch["reference"]`: log-probabilities of answers before training."""
        answers = answer_scores(model, batch, packing=self.packing)
        ratio = answers.logps - batch["reference"]
        ratios = LogRatios(ratio[0::2], ratio[1::2], answers.labels[0::2], answers.labels[1::2])
        chosen, rejected = (self.beta * ratio.detach()[side::2] for side in (0, 1))
        return Scored(self._losses(ratios), pair_figures(answers, chosen, rejected))

    def _losses(self, ratios: LogRatios) -> Tensor:
        if self.loss_type in SMOOTHED:
            return SMOOTHED[self.loss_type](self.beta * ratios.margin, self.label_smoothing)
        return LOSSES[self.loss_type](ratios, self.beta)


@dataclass(frozen=True)
class Likelihoods:
    """Preferences without a reference: CPO, SimPO and ORPO, as in TRL's experimental trainers.

    Two of them learn the preferred answer as well: CPO its tokens, ORPO its prompt, too. There, a
    pair has its weight, regardless of its length; in TRL's batch each token has.
    """

    method: MethodName
    # weight of the likelihoods, of ORPO the weight of the pairs besides the preferred answer
    beta: float
    packing: bool
    label_smoothing: float = 0.0
    gamma: float = 0.0  # SimPO's margin by which the preferred answer is to be ahead
    needs_reference: ClassVar[bool] = False

    def count(self, batch: Batch) -> int:
        return int((batch["roles"] == CHOSEN).sum())

    def score(self, model: Any, batch: Batch) -> Scored:
        """A loss per pair."""
        with_prompts = self.method == "orpo"
        answers = answer_scores(
            model, prompts_labelled(batch) if with_prompts else batch, packing=self.packing
        )
        mean = answers.logps / answers.labels.clamp(min=1)
        compared = answers.logps if self.method == "cpo" else mean
        chosen, rejected = compared[0::2], compared[1::2]
        match self.method:
            case "orpo":
                odds = chosen - rejected - (_log1mexp(chosen) - _log1mexp(rejected))
                losses = -self.beta * logsigmoid(odds) + answers.mean_nll[0::2]
            case "simpo":
                losses = conservative(
                    self.beta * (chosen - rejected) - self.gamma, self.label_smoothing
                )
            case _:
                losses = conservative(self.beta * (chosen - rejected), self.label_smoothing)
                losses = losses - mean[0::2]
        rewards = (self.beta * side.detach() for side in (chosen, rejected))
        return Scored(losses, pair_figures(answers, *rewards))


def pair_figures(answers: AnswerScores, chosen: Tensor, rejected: Tensor) -> dict[str, Tensor]:
    """Return the figures of pairs: accuracy on preferred answers, and both rewards, [pairs]."""
    of_chosen = (answers.sequences < len(answers.logps)) & (answers.sequences % 2 == 0)
    return {
        "mean_token_accuracy": answers.correct[of_chosen],
        "reward_accuracy": chosen > rejected,
        "reward_margin": chosen - rejected,
        "reward_chosen": chosen,
        "reward_rejected": rejected,
    }


def prompts_labelled(batch: Batch) -> Batch:
    """A batch in which prompts of preferred answers are labels, too; see `AnswerScores`."""
    sequences, labels = batch["sequences"], batch["labels"]
    of_prompt = (
        (labels == IGNORED)
        & (batch["position_ids"] > 0)  # what comes before is another document
        & (sequences % 2 == 0)
        & batch["is_text"]
    )
    return batch | {
        "labels": torch.where(of_prompt, batch["input_ids"], labels),
        "sequences": torch.where(of_prompt, sequences + len(batch["roles"]), sequences),
    }


def _log1mexp(logps: Tensor) -> Tensor:
    """log(1 - exp(logps)), also where one of both is close to 0."""
    return torch.where(
        logps < -log(2), torch.log1p(-torch.exp(logps)), torch.log(-torch.expm1(logps))
    )
