"""Losses of a session's rows, as functions of the log-probability of each target.

Each is a sum over tokens, not a mean: the client scales it with weights or advantages. Those of
policies compare with the log-probabilities that the sampler gave (`old`).
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import torch
from torch import Tensor

from tunery.work.session import LossName, LossRow

PolicyLoss: TypeAlias = Callable[[Tensor, Tensor, Tensor, Mapping[str, float]], Tensor]


def loss_of(
    name: LossName, logprobs: Tensor, row: LossRow, settings: Mapping[str, float]
) -> Tensor:
    """Return the loss of a row, a scalar.

    logprobs: of its targets, float32 [tokens]
    """
    if name == "cross_entropy":
        return -(logprobs * _floats(row.weights, logprobs)).sum()
    old, advantages = _floats(row.logprobs, logprobs), _floats(row.advantages, logprobs)
    return -POLICY_LOSSES[name](logprobs, old, advantages, settings).sum()


def _floats(values: bytes, like: Tensor) -> Tensor:
    return torch.frombuffer(bytearray(values), dtype=torch.float32).to(like.device)


def _importance_sampling(
    new: Tensor, old: Tensor, advantages: Tensor, _: Mapping[str, float]
) -> Tensor:
    return (new - old).exp() * advantages


def _ppo(new: Tensor, old: Tensor, advantages: Tensor, settings: Mapping[str, float]) -> Tensor:
    """Schulman et al., 2017: the smaller of the objective and the clipped one."""
    ratio = (new - old).exp()
    return torch.minimum(ratio * advantages, _clipped(ratio, settings) * advantages)


def _cispo(new: Tensor, old: Tensor, advantages: Tensor, settings: Mapping[str, float]) -> Tensor:
    """MiniMax-M1, 2025: the clipped ratio weighs the gradient, and has none."""
    ratio = _clipped((new - old).exp(), settings).detach()
    return ratio * advantages * new


def _dro(new: Tensor, old: Tensor, advantages: Tensor, settings: Mapping[str, float]) -> Tensor:
    """Richemond et al., 2024: a quadratic term holds the policy to the sampler."""
    return new * advantages - 0.5 * settings["beta"] * (new - old) ** 2


def _clipped(ratio: Tensor, settings: Mapping[str, float]) -> Tensor:
    return ratio.clamp(settings["clip_low_threshold"], settings["clip_high_threshold"])


POLICY_LOSSES: Final[Mapping[LossName, PolicyLoss]] = {
    "importance_sampling": _importance_sampling,
    "ppo": _ppo,
    "cispo": _cispo,
    "dro": _dro,
}
