"""DeepSpeed's ZeRO: optimizer states (1), gradients (2) and weights (3) in shards.

DeepSpeed writes checkpoints as pickles. Ours have its states gathered, under the names and in the
files of the other engines: no pickle leaves a training, and any engine continues from them.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from tunery.ml import state
from tunery.ml.adamw import forget_steps, parameter_groups, read_tensors
from tunery.ml.ranks import Ranks
from tunery.ml.trained import is_whole, trained_tensors
from tunery.plan.engines import deepspeed_config
from tunery.work.spec import Engine, Hyper

MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class ZeroEngine:
    """The engine "deepspeed"."""

    # Backward passes add gradients up at every stage, also those of a rank that has none.
    passes_together = True

    def __init__(
        self,
        engine: Engine,
        model: Any,
        hyper: Hyper,
        precision: str,
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        self.model = model
        os.environ["DS_ACCELERATOR"] = device.type  # else it is what the package was built beside
        if device.index is not None:  # else it takes that of the rank, also where one is seen
            os.environ["LOCAL_RANK"] = str(device.index)
        # Else its accelerator for processors starts `numactl`: a confined rank starts no processes.
        os.environ.setdefault("LOCAL_SIZE", str(ranks.local_count))
        import deepspeed
        import deepspeed.ops

        # It looks which of its operators a compiler could build here, and builds them: a confined
        # rank may start no processes. There is no public way to leave that out.
        deepspeed.ops.__compatible_ops__ = {}
        self._ranks, self._stage = ranks, engine.zero_stage
        deepspeed.init_distributed(
            "nccl" if device.type == "cuda" else "gloo", dist_init_required=False
        )
        self._weights = state.trainable(model)
        groups = parameter_groups(
            self._weights, hyper.learning_rate, hyper.lora_plus, whole=is_whole(model)
        )
        self.optimizer = torch.optim.AdamW(
            groups, lr=hyper.learning_rate, weight_decay=hyper.weight_decay
        )
        self._engine, *_ = deepspeed.initialize(
            # Its hooks run where this is called: by an adapter's model, and by `generate`.
            model=model if is_whole(model) else model.get_base_model(),
            optimizer=self.optimizer,
            config=deepspeed_config(engine, precision, hyper.batch_size, hyper.grad_norm_max),
        )
        if engine.zero_stage < 3:
            # DeepSpeed 0.19.8 links weights with their moments after the step of the first group:
            # those of all groups have to be there.
            with self._undone():
                for weight in self._flat_weights():
                    weight.grad = torch.zeros_like(weight)
                self.optimizer.step()
                for weight in self._flat_weights():
                    weight.grad = None
        sizes = (getattr(each, "ds_numel", each.numel()) for each in self._weights.values())
        self.state_bytes = 3 * sum(sizes) * torch.float32.itemsize

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        self._engine.set_gradient_accumulation_boundary(is_boundary=is_last)
        # It divides gradients by the number of ranks: the loss is a part of the step's sum.
        self._engine.backward(loss * self._ranks.count, scale_wrt_gas=False)

    def clip(self, norm_max: float) -> Tensor:
        """Take the step: DeepSpeed clips in it, and then has the norm."""
        self._engine.step()
        return torch.as_tensor(float(self._engine.get_global_grad_norm() or 0.0))

    def step(self) -> None:
        """Do nothing: `clip` has taken the step."""

    def rehearse(self) -> None:
        with self._undone():
            self._engine.step()

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Its block takes a step that changes no weight, and is forgotten."""
        groups = self.optimizer.param_groups
        before = [(group["lr"], group["weight_decay"]) for group in groups]
        for group in groups:
            group["lr"] = group["weight_decay"] = 0.0
        yield
        for group, (rate, decay) in zip(self.optimizer.param_groups, before, strict=True):
            group["lr"], group["weight_decay"] = rate, decay
        forget_steps(self.optimizer)

    @torch.no_grad()
    def trained(self) -> Mapping[str, Tensor]:
        with self._gathered([*self._weights.values()]):
            if not self._ranks.is_first:
                return {}
            tensors = trained_tensors(self.model)
            return {name: each.detach().to("cpu", copy=True) for name, each in tensors.items()}

    @torch.no_grad()
    def state(self) -> Mapping[str, Tensor]:
        """Gather masters and moments; the first rank returns them."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        tensors: dict[str, Tensor] = {}
        steps = max((int(each["step"]) for each in self.optimizer.state.values()), default=0)
        for name, weight in self._weights.items():  # all ranks gather each of them
            parts = {"master": safe_get_full_fp32_param(weight)}
            parts |= {each: safe_get_full_optimizer_state(weight, each) for each in MOMENTS}
            if self._ranks.is_first:
                tensors |= {f"{name}.{part}": each.cpu() for part, each in parts.items()}
                tensors[f"{name}.step"] = torch.tensor(float(steps))
        return tensors

    def save_shards(self, folder: Path) -> None:
        return None

    @torch.no_grad()
    def load(self, directory: Path) -> None:
        """Restore weights, masters and moments: each rank takes its parts of whole tensors."""
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        for name, weight in self._weights.items():
            shape = getattr(weight, "ds_shape", weight.shape)
            parts = {part: torch.empty(shape) for part in ("master", *MOMENTS)}
            read_tensors({f"{name}.{part}": each for part, each in parts.items()}, directory)
            with self._gathered([weight], modifier_rank=0):  # computes with it; its master is next
                weight.data.copy_(parts["master"])
            safe_set_full_fp32_param(weight, parts["master"])
            for part in MOMENTS:
                safe_set_full_optimizer_state(weight, parts[part], part)
        step = torch.zeros(())  # every weight has the same
        read_tensors({f"{next(iter(self._weights))}.step": step}, directory)
        for of_group in self.optimizer.state.values():
            of_group["step"] = step.clone()

    def _gathered(
        self, weights: list[Tensor], modifier_rank: int | None = None
    ) -> AbstractContextManager[Any]:
        """Its block has all of these weights. modifier_rank: whose changes all ranks get."""
        if self._stage < 3:
            return nullcontext()
        import deepspeed

        gathered: AbstractContextManager[Any] = deepspeed.zero.GatheredParameters(
            weights, modifier_rank=modifier_rank
        )
        return gathered

    def _flat_weights(self) -> list[Tensor]:
        return [weight for group in self.optimizer.param_groups for weight in group["params"]]
