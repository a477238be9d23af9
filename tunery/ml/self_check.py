"""Check that the steps of a training repeat themselves to the byte, which exact resume needs.

Ranks add up in the order that their collectives and kernels choose. On processors it is always the
same one; on devices it follows from drivers, libraries and links. So the ranks of each lease take
their first steps twice before they train, and compare.
"""

from typing import Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tunery.ml import state
from tunery.ml.adamw import forget_steps
from tunery.ml.engines import TrainingEngine
from tunery.ml.float8 import unwrapped
from tunery.ml.loop import TrainingLoop
from tunery.ml.ranks import digest_of

STEPS: Final = 3
EQUAL, DIFFERENT = "equal", "different"


def steps_repeat(loop: TrainingLoop) -> bool:
    """Take the first steps twice, each time from the beginning, and undo them.

    A step has one micro-batch of each rank here. All ranks call, and get one answer: whether every
    rank had the same weights and moments after both.
    """
    run, engine = loop.run, loop.engine
    before = [weight.to("cpu", copy=True) for weight in _weights_here(engine)]
    digests: list[bytes] = []
    for _ in range(2):
        with loop.trying():
            for _ in range(min(STEPS, run.plan.total_steps)):
                loop.take_step(micro_batches=run.ranks.groups)
        # Moments, too: after a warm-up of many steps gradients hardly show in the weights.
        weights = _weights_here(engine)  # DeepSpeed moves some of them
        after = [*weights, *_moments_here(engine)]
        digests.append(digest_of({str(at): each for at, each in enumerate(after)}))
        for weight, kept in zip(weights, before, strict=True):
            weight.copy_(kept)
        forget_steps(engine.optimizer)
    return not run.ranks.any(digests[0] != digests[1])


def _weights_here(engine: TrainingEngine) -> list[Tensor]:
    """Weights and masters of this rank, which steps change in place."""
    live = list(state.trainable(engine.model).values())
    of_zero = [getattr(weight, "ds_tensor", None) for weight in live]  # shares of ZeRO-3
    grouped = [weight for group in engine.optimizer.param_groups for weight in group["params"]]
    masters = grouped or [*engine.optimizer.state]  # ZeRO-3 has groups only within a step
    here = [_here(weight) for weight in (*live, *of_zero, *masters) if weight is not None]
    return [*{(weight.data_ptr(), weight.numel()): weight for weight in here}.values()]


def _moments_here(engine: TrainingEngine) -> list[Tensor]:
    return [
        _here(value)
        for of_weight in engine.optimizer.state.values()
        for _, value in sorted(of_weight.items())
        if isinstance(value, Tensor)
    ]


@torch.no_grad()
def _here(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank has, in place."""
    tensor = unwrapped(tensor.detach())
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
