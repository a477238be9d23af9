"""Each rank has a share of every decoder layer: PyTorch's FSDP2.

Weights that are trained are kept in fp32, and computed with in the precision of the run; gradients
are added up in fp32. Frozen weights of the base are sharded in the precision of the run. Over
several nodes each node has all shares (HSDP): the first node alone keeps the checkpoints.

With tensor parallelism, neighbouring ranks compute a row together, each with a part of every matrix
of a layer, as the family's own plan in transformers says. What is in no matrix, as norms and
tables of tokens, is computed by each of them.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from peft.tuners.lora import LoraLayer
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tunery.ml import state
from tunery.ml.adamw import is_fused, named_state, parameter_groups, rehearse, restore_state
from tunery.ml.float8 import FLOAT8, use_float8
from tunery.ml.ranks import TIMEOUT, Ranks
from tunery.ml.rewards import HEAD
from tunery.ml.trained import is_whole, trained_tensors
from tunery.plan.methods import REWARD
from tunery.work.exits import WorkError
from tunery.work.spec import Engine, Hyper

# How transformers' plans divide a matrix. A norm of heads has the gradient of a rank's own heads.
STYLES: Final = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
OF_HEADS: Final = "replicated_with_grad_allreduce"
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
        mesh, self._of_heads = _mesh_of(device, ranks), frozenset[str]()
        self._tensor = mesh["tensor"] if ranks.tensor_parallel > 1 else None
        if self._tensor is not None:
            self._of_heads = split_layers(model, self._tensor)
        if precision == FLOAT8:
            for weight in model.parameters():
                _make_master(weight)  # before it is wrapped
            use_float8(parts_of(model)[2], device, gathers=True)
        self._modules = shard(
            model,
            device,
            mesh,
            compute=None if precision == "fp32" else torch.bfloat16,
            cpu_offload=engine.cpu_offload,
            rewards=hyper.method == REWARD,
        )
        self._weights = state.trainable(model)
        groups = parameter_groups(
            self._weights, hyper.learning_rate, hyper.lora_plus, whole=is_whole(model)
        )
        self.optimizer = torch.optim.AdamW(
            [
                group | {"params": weights}
                for group in groups
                for weights in _by_mesh(group["params"])
            ],
            lr=hyper.learning_rate,
            weight_decay=hyper.weight_decay,
            fused=is_fused(self._weights),
        )
        self.state_bytes = 3 * sum(_local(weight).nbytes for weight in self._weights.values())
        # Ranks of the first node write checkpoints while the training runs: in their own group.
        writers = list(range(ranks.local_count))
        self._writers: Any = dist.new_group(writers, backend="gloo", timeout=TIMEOUT)

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        # FSDP averages gradients over its ranks: the loss is a part of the step's sum.
        (loss * (self._ranks.count // self._ranks.tensor_parallel)).backward()  # type: ignore[no-untyped-call]  # torch

    def clip(self, norm_max: float) -> Tensor:
        """Clip by torch's function, which takes the gradients of one mesh, or by their norms."""
        if self._tensor is None:
            norm = torch.nn.utils.clip_grad_norm_(self._weights.values(), norm_max)
            return norm.full_tensor() if isinstance(norm, DTensor) else norm
        gradients = {
            name: each.grad for name, each in self._weights.items() if each.grad is not None
        }
        for name in sorted(gradients.keys() & self._of_heads):
            dist.all_reduce(_local(gradients[name]), group=self._tensor.get_group())
        norms = [
            _whole(torch.nn.utils.get_total_norm(of_mesh))
            for of_mesh in _by_mesh(gradients.values())
        ]
        total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        factor = (norm_max / (total + 1e-6)).clamp(max=1.0)
        for gradient in gradients.values():
            _local(gradient).mul_(factor)
        return total

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
    shard(model, device, _mesh_of(device, Ranks()), compute=None, cpu_offload=True, rewards=rewards)


def shard(
    model: Any,
    device: torch.device,
    mesh: DeviceMesh,
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
    causal, decoder, layers = parts_of(model)
    names = tuple(name for name in mesh.mesh_dim_names or () if name != "tensor")
    options: dict[str, Any] = {
        "mesh": mesh[names] if len(names) < mesh.ndim else mesh,
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
            _make_master(weight)
        fully_shard(module, **options)
        modules.append(module)
    return modules


def split_layers(model: Any, mesh: DeviceMesh) -> frozenset[str]:
    """Give each rank of a group its part of every matrix of the decoder layers.

    Returns the names of trained weights whose gradients are of a rank's own heads, and have to be
    added up. Raises WorkError("user") for a model that has no such plan, or is not divisible.
    """
    causal, _, layers = parts_of(model)
    config, ranks = causal.config, mesh.size()
    plan = {
        path.removeprefix("layers.*."): style
        for path, style in (getattr(config, "base_model_tp_plan", None) or {}).items()
        if path.startswith("layers.*.")
    }
    if not plan or {*plan.values()} - {*STYLES, OF_HEADS}:
        message = f"the matrices of {config.model_type} have no plan for tensor parallelism"
        raise WorkError("user", message, "Set tensor_parallel to 1.")
    sizes = [config.num_attention_heads, config.num_key_value_heads, config.intermediate_size]
    if any(size % ranks for size in sizes):
        message = (
            f"{sizes[0]} heads, {sizes[1]} of keys and an inner width of {sizes[2]} cannot be "
            f"divided by tensor_parallel {ranks}"
        )
        raise WorkError("user", message, "Set tensor_parallel to a divisor of all of them.")
    for layer in layers:
        for weight in layer.parameters():
            _make_master(weight)
        for path, style in plan.items():
            if style in STYLES:
                for part in _split_parts(layer.get_submodule(path), style):
                    parallelize_module(part, mesh, STYLES[style](), src_data_rank=None)
    of_heads = tuple(f".{path}.weight" for path, style in plan.items() if style == OF_HEADS)
    return frozenset(name for name in state.trainable(model) if name.endswith(of_heads))


def _split_parts(layer: Any, style: str) -> list[torch.nn.Module]:
    """The matrices of a linear layer that are divided: of an adapter, the one as wide as heads."""
    if not isinstance(layer, LoraLayer):
        return [layer]
    adapters = layer.lora_B if style == "colwise" else layer.lora_A
    return [layer.base_layer, *adapters.values()]


def parts_of(model: Any) -> tuple[Any, Any, torch.nn.ModuleList]:
    """The causal model, its decoder and its layers. Raises WorkError("user") without a list."""
    causal = model if is_whole(model) else model.get_base_model()
    decoder = getattr(causal, causal.base_model_prefix, None)
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, torch.nn.ModuleList):
        message = f"{causal.config.model_type} has no plain list of decoder layers to shard"
        raise WorkError("user", message, 'Set weights to "copied".')
    return causal, decoder, layers


def _mesh_of(device: torch.device, ranks: Ranks) -> DeviceMesh:
    """Ranks by node, by share of the weights, and by part of a matrix."""
    nodes = ranks.count // ranks.local_count
    sizes = {
        "nodes": nodes,
        "ranks": ranks.local_count // ranks.tensor_parallel,
        "tensor": ranks.tensor_parallel,
    }
    kept = {name: size for name, size in sizes.items() if size > 1 or name == "ranks"}
    return init_device_mesh(device.type, (*kept.values(),), mesh_dim_names=(*kept,))


def _make_master(weight: Tensor) -> None:
    if weight.requires_grad and not isinstance(weight, DTensor):
        weight.data = weight.data.float()  # its own master


def _by_mesh(weights: Iterable[Any]) -> list[list[Any]]:
    """Weights of each mesh: an operation on several takes those of one."""
    groups: dict[object, list[Any]] = {}
    for weight in weights:
        mesh = weight.device_mesh if isinstance(weight, DTensor) else None
        groups.setdefault(mesh, []).append(weight)
    return [*groups.values()]


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _files_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Number the file of each tensor, from 1: one that is written is in memory twice."""
    *begins, total = accumulate((tensor.nbytes for tensor in tensors.values()), initial=0)
    return {name: 1 + SHARD_FILES * at // total for name, at in zip(tensors, begins, strict=True)}


def _local(weight: Tensor) -> Tensor:
    return weight.to_local() if isinstance(weight, DTensor) else weight
