"""Learning what an answer is worth: a preferred answer is to be worth more than the other one.

The model gets a head: one number for the last token of an answer. Losses and figures are those of
TRL's RewardTrainer (1.16), which are Bradley's and Terry's.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from tunery.ml.loss import Batch, filled_up, join_losses
from tunery.ml.objectives import Scored
from tunery.ml.packed import CHOSEN, documents

HEAD: Final = "score"  # as transformers' models for sequence classification call it


@dataclass(frozen=True)
class Rewards:
    """The worth of answers."""

    packing: bool  # the documents of a row are computed together
    center: float = 0.0  # how strongly the rewards of a pair are held to a sum of 0
    needs_reference: ClassVar[bool] = False

    def count(self, batch: Batch) -> int:
        return int((batch["roles"] == CHOSEN).sum())

    def score(self, model: Any, batch: Batch) -> Scored:
        """A loss per pair."""
        rewards = answer_rewards(model, batch, packing=self.packing)
        chosen, rejected = rewards[0::2], rewards[1::2]
        margin = (chosen - rejected).detach()
        figures = {
            "reward_accuracy": margin > 0,
            "reward_margin": margin,
            "reward_chosen": chosen.detach(),
            "reward_rejected": rejected.detach(),
        }
        losses = -logsigmoid(chosen - rejected)
        if self.center:
            losses = losses + self.center * (chosen + rejected) ** 2
        return Scored(losses, figures)


def add_head(model: Any) -> None:
    """Give a language model a head for rewards, with random weights."""
    weights = model.get_input_embeddings().weight
    config = model.config.get_text_config()
    head = nn.Linear(config.hidden_size, 1, bias=False, dtype=torch.float32)
    nn.init.normal_(head.weight, std=config.initializer_range)
    setattr(model, HEAD, head.to(device=weights.device, dtype=weights.dtype))


def answer_rewards(model: Any, batch: Batch, *, packing: bool) -> Tensor:
    """Return the reward of each answer of a batch of pairs, float32 [answers].

    model: a PEFT model with a head
    packing: the documents of a row are computed together
    """
    inner = model.get_base_model()
    if packing:
        return _rewards_at(inner, batch, _ends(batch))
    rewards = torch.zeros(len(batch["roles"]), device=batch["input_ids"].device)
    alone, parts = list(documents(batch)), []
    if not alone:
        return rewards
    for each in filled_up(model, alone):
        ends = torch.zeros_like(each["input_ids"], dtype=torch.bool)
        ends[:, -1] = True
        parts.append(_rewards_at(inner, each, ends))
    numbers = torch.cat([each["sequences"][:, 0] for each in alone])
    return rewards.index_copy(0, numbers, join_losses(parts, len(alone)))


def _ends(batch: Batch) -> Tensor:
    """bool [rows, longest]: where an answer ends; padding is none."""
    positions = batch["position_ids"]
    following = torch.cat([positions[:, 1:], torch.zeros_like(positions[:, :1])], dim=1)
    return batch["is_text"] & (following == 0)


def _rewards_at(inner: Any, batch: Batch, ends: Tensor) -> Tensor:
    def forward() -> Tensor:
        states = inner.base_model(
            input_ids=batch["input_ids"],
            position_ids=batch["position_ids"],
            use_cache=False,  # with a cache, restarting positions are ignored: documents would mix
        ).last_hidden_state
        rewards: Tensor = getattr(inner, HEAD)(states[ends]).squeeze(-1).float()
        return rewards

    # The head for tokens has no part in it. It still is a pass of the whole model, before which
    # ZeRO-3 gets its shards ready.
    inner.forward = forward
    try:
        rewards: Tensor = inner()
    finally:
        del inner.forward
    return rewards
