"""Learning from graded answers: group relative policy optimisation (GRPO).

The formulas are those of TRL's GRPOTrainer (1.16) with its loss type "grpo", rewards scaled by
group, and one update for each answer; tests compare them. With one update the ratio of likelihoods
is 1 as a number, and clipping it changes nothing: the formula is there for what it is.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from tunery.ml.loss import Batch, filled_up, join_losses, label_loss
from tunery.ml.objectives import Scored
from tunery.ml.packed import IGNORED
from tunery.ml.rollouts import AnswerGroup, Rollouts, count_prompts, prompts_of, seeds_of
from tunery.plan.time import GRADED_PROMPTS_MAX

EPSILON: Final = 0.2  # how far the ratio may go; TRL's
DEVIATION_MIN: Final = 1e-4  # TRL's
STEP: Final = "step"  # in a batch: how many steps were done before; it is part of the seed


@dataclass(frozen=True)
class Reinforcement:
    """Answers are to be likelier, the better they are than others to the same prompt."""

    rollouts: Rollouts  # writes and grades them
    answers: int  # to each prompt
    temperature: float  # how different they are
    beta: float  # how closely the model is held to what it is without its adapter
    seed: int  # seed of the training
    needs_reference: ClassVar[bool] = False

    def count(self, batch: Batch) -> int:
        return self.answers * count_prompts(batch)

    def score(self, model: Any, batch: Batch) -> Scored:
        """A loss for each answer. Where the model does not train: what the likeliest answers to the
        first prompts lack to a reward of 1.
        """
        prompts = prompts_of(batch)
        if not model.training:
            rewards = self.rollouts.rewards(model, prompts[:GRADED_PROMPTS_MAX])
            return Scored(1 - rewards, {"reward": rewards})
        step = int(batch[STEP])
        drawn = [
            self.rollouts.group(
                model, prompt, seeds_of(self.seed, step, prompt, self.answers), self.temperature
            )
            for prompt in filled_up(model, prompts)
        ]
        losses = [self._losses(model, group) for group in drawn]
        groups = drawn[: len(prompts)]
        return Scored(
            join_losses(losses, len(groups)),
            {
                "reward": torch.cat([group.rewards for group in groups]),
                "reward_std": torch.stack([group.rewards.std() for group in groups]),
                "completion_tokens": torch.tensor(
                    [float(len(ids)) for group in groups for ids in group.completions]
                ),
            },
        )

    def _losses(self, model: Any, group: AnswerGroup) -> Tensor:
        """A loss for each answer: the mean of those of its tokens, float32 [answers]."""
        batch = answers_batch(group)
        scored = label_loss(model, batch, temperature=self.temperature)
        logps, number = -scored.nll, batch["numbers"]
        gain = advantages(group.rewards).to(logps.device)[number]
        ratio = torch.exp(logps - logps.detach())
        clipped = torch.clamp(ratio, 1 - EPSILON, 1 + EPSILON)
        losses = -torch.min(ratio * gain, clipped * gain)
        behind = self._reference(model, batch) - logps
        losses = losses + self.beta * (torch.exp(behind) - behind - 1)
        sums = torch.zeros(len(group.completions), device=losses.device)
        return sums.index_add(0, number, losses) / torch.bincount(number)

    def _reference(self, model: Any, batch: Batch) -> Tensor:
        """Log-probabilities of the same tokens without the adapter."""
        training = model.training
        model.eval()
        plain = model.disable_adapter() if hasattr(model, "disable_adapter") else nullcontext()
        with torch.no_grad(), plain:
            logps = -label_loss(model, batch, temperature=self.temperature).nll
        model.train(training)
        return logps


def advantages(rewards: Tensor) -> Tensor:
    """How much better each answer is than the others to its prompt, in their deviations."""
    return (rewards - rewards.mean()) / (rewards.std() + DEVIATION_MIN)


def answers_batch(group: AnswerGroup) -> Batch:
    """The answers to one prompt, each after it in its own row, padded at the end.

    `numbers` int64 [labels]: the answer of each label.
    """
    prompt, completions = group.prompt.ids, group.completions
    width = len(prompt) + max(map(len, completions))
    input_ids = torch.zeros(len(completions), width, dtype=torch.int64, device=prompt.device)
    labels = torch.full_like(input_ids, IGNORED)
    for line, ids in enumerate(completions):
        answer = torch.tensor(ids, dtype=torch.int64, device=prompt.device)
        input_ids[line, : len(prompt)] = prompt
        input_ids[line, len(prompt) : len(prompt) + len(ids)] = answer
        labels[line, len(prompt) : len(prompt) + len(ids)] = answer
    lengths = torch.tensor([len(ids) for ids in completions], device=prompt.device)
    return {
        "input_ids": input_ids,
        "labels": labels,
        "position_ids": torch.arange(width, device=prompt.device).repeat(len(completions), 1),
        "numbers": torch.arange(len(completions), device=prompt.device).repeat_interleave(lengths),
    }
