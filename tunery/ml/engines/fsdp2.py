"""Each rank has a share of every decoder layer: PyTorch's FSDP2.

Weights that are trained are kept in fp32, and computed with in the precision of the run; gradients
are added up in fp32. Frozen weights of the base are sharded in the precision of the run. Over
several nodes each node has all shares (HSDP): the first node alone keeps the checkpoints.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor

from tunery.ml import state
from tunery.ml.adamw import is_fused, named_state, parameter_groups, rehearse, restore_state
from tunery.ml.ranks import TIMEOUT, Ranks
from tunery.ml.rewards import HEAD
from tunery.ml.trained import is_whole, trained_tensors
from tunery.plan.methods import REWARD
from tunery.work.exits import WorkError
from tunery.work.spec import Engine, Hyper

SHARD_FILES: Final = 16  # of each rank's part of a whole model


class ShardedEngine:
    """The engine "fsdp2" with sharded weights."""

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
        """`model`: in the machine's memory, in the precision of the run."""
        self.model = model
        self._ranks, self._dtype = ranks, model.dtype
        self._modules = shard(
            model,
            device,
            ranks,
            compute=torch.bfloat16 if precision == "bf16" else None,
            cpu_offload=engine.cpu_offload,
            rewards=hyper.method == REWARD,
        )
        self._weights = state.trainable(model)
        groups = parameter_groups(
            self._weights, hyper.learning_rate, hyper.lora_plus, whole=is_whole(model)
        )
        self.optimizer = torch.optim.AdamW(
            groups,
            lr=hyper.learning_rate,
            weight_decay=hyper.weight_decay,
            fused=is_fused(self._weights),
        )
        self.state_bytes = 3 * sum(_local(weight).nbytes for weight in self._weights.values())
        # Ranks of the first node write checkpoints while the training runs: in their own group.
        writers = list(range(ranks.local_count))
        self._writers: Any = dist.new_group(writers, backend="gloo", timeout=TIMEOUT)

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        # FSDP averages gradients over ranks: the loss is a part of the step's sum.
        (loss * self._ranks.count).backward()  # type: ignore[no-untyped-call]  # torch

    def clip(self, norm_max: float) -> Tensor:
        norm = torch.nn.utils.clip_grad_norm_(self._weights.values(), norm_max)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def rehearse(self) -> None:
        rehearse(self.optimizer, self.optimizer.step)

    @torch.no_grad()
    def trained(self) -> Mapping[str, Tensor]:
        for module in self._modules:
            module.reshard()  # what an evaluation has gathered
        whole: dict[str, Tensor] = {}
        for name, weight in trained_tensors(self.model).items():
            full = weight.full_tensor() if isinstance(weight, DTensor) else weight
            if self._ranks.is_first:  # one after the other: a device has room for few
                dtype = self._dtype if full.is_floating_point() else full.dtype
                whole[name] = full.to("cpu", dtype)
        return whole

    def state(self) -> Mapping[str, Tensor]:
        return {}

    def save_shards(self, folder: Path) -> Future[Any] | None:
        """Begin to write this rank's masters and moments; those of a whole model are written."""
        if self._ranks.number >= self._ranks.local_count:
            return None
        tensors = dict(sorted(named_state(self.optimizer, self._weights).items()))
        options: dict[str, Any] = {"process_group": self._writers}
        if is_whole(self.model):  # the training waits, as in `Saver`: nothing is copied
            files = _files_of(tensors)
            writer = HuggingFaceStorageWriter(str(folder), files, save_distributed=True)
            done = Future[Any]()
            done.set_result(save(tensors, storage_writer=writer, **options))
            return done
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        written = async_save(tensors, storage_writer=writer, **options)
        assert isinstance(written, Future)  # noqa: S101  # torch's type has another kind of async_save
        return written

    def load(self, directory: Path) -> None:
        restore_state(self.optimizer, self._weights, directory)


def offload_layers(model: Any, device: torch.device, *, rewards: bool = False) -> None:
    """Keep the frozen weights of a model that outgrows its device in the machine's memory.

    rewards: it is called as a reward model
    """
    if not dist.is_initialized():  # of this process alone
        backend = "nccl" if device.type == "cuda" else "gloo"
        store = dist.HashStore()  # type: ignore[attr-defined]  # torch
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    shard(model, device, Ranks(), compute=None, cpu_offload=True, rewards=rewards)


def shard(
    model: Any,
    device: torch.device,
    ranks: Ranks,
    *,
    compute: torch.dtype | None,
    cpu_offload: bool,
    rewards: bool,
) -> list[FSDPModule]:
    """Shard a model in place: its decoder layers, then what is in none of them.

    compute: what weights are cast to; None: they stay what they are
    rewards: it is called as a reward model, by its decoder and its head

    Raises WorkError("user") for a model without a plain list of layers.
    """
    causal = model if is_whole(model) else model.get_base_model()
    decoder = getattr(causal, causal.base_model_prefix, None)
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, torch.nn.ModuleList):
        message = f"{causal.config.model_type} has no plain list of decoder layers to shard"
        raise WorkError("user", message, 'Set weights to "copied".')
    nodes = ranks.count // ranks.local_count
    mesh = (
        init_device_mesh(device.type, (ranks.count,))
        if nodes == 1
        else init_device_mesh(
            device.type, (nodes, ranks.local_count), mesh_dim_names=("nodes", "ranks")
        )
    )
    options: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32),
        "offload_policy": CPUOffloadPolicy(pin_memory=device.type == "cuda")
        if cpu_offload
        else OffloadPolicy(),
    }
    # Other models are called as a whole: their tables may be tied, and have to be in one group.
    roots = [decoder, getattr(causal, HEAD)] if rewards else [causal]
    modules: list[FSDPModule] = []
    for module in [*layers, *roots]:
        for weight in module.parameters():
            if weight.requires_grad and not isinstance(weight, DTensor):
                weight.data = weight.data.float()  # its own master
        fully_shard(module, **options)
        modules.append(module)
    return modules


def _files_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Number the file of each tensor, from 1: one that is written is in memory twice."""
    *begins, total = accumulate((tensor.nbytes for tensor in tensors.values()), initial=0)
    return {name: 1 + SHARD_FILES * at // total for name, at in zip(tensors, begins, strict=True)}


def _local(weight: Tensor) -> Tensor:
    return weight.to_local() if isinstance(weight, DTensor) else weight
