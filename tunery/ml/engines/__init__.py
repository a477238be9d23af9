"""Engines of training steps: one interface, three implementations.

The loop (`tunery.ml.loop`) is the same for all. Each engine writes checkpoints whose tensors have
the same names, so that a run continues with another engine or number of ranks.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from schemas.training import Precision
from tunery.ml.float8 import FLOAT8, use_float8
from tunery.plan.engines import engine_problem
from tunery.work.exits import WorkError
from tunery.work.spec import Engine, Hyper

if TYPE_CHECKING:
    from tunery.ml.training_run import TrainingRun


class TrainingEngine(Protocol):
    """A model, its optimizer, and how both are spread over ranks."""

    model: Any  # called as it is everywhere
    # whether all ranks make the same forward and backward passes, because each passes weights on
    passes_together: bool
    state_bytes: int  # size of masters and moments that a checkpoint copies on this rank

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """Add the gradients of a micro-batch of this rank to those of the step.

        is_last: last micro-batch of this rank in the step
        """

    def clip(self, norm_max: float) -> Tensor:
        """Scale the step's gradients, of all ranks, down to a norm; the norm that they had."""

    def step(self) -> None:
        """Take the optimizer's step, and drop the gradients."""

    def rehearse(self) -> None:
        """Take a step that changes nothing, to allocate the memory that a step needs."""

    def trained(self) -> Mapping[str, Tensor]:
        """Trained tensors by the names of their file. All ranks call; the first gets all of them,
        and others may get none.
        """

    def state(self) -> Mapping[str, Tensor]:
        """Masters and moments, for one file of the first rank. All ranks call, as above. Empty
        where `save_shards` writes them.
        """

    def save_shards(self, folder: Path) -> Future[Any] | None:
        """Begin to write masters and moments, each rank its own; None where `state` has them."""

    def load(self, directory: Path) -> None:
        """Restore weights and optimizer from a checkpoint."""


def check_engine(engine: Engine, hyper: Hyper, precision: Precision, ranks: int) -> None:
    """Raises WorkError("user") for settings that an engine lacks, with the nearest that work."""
    asked = {
        "engine": engine.name,
        "shard_weights": engine.is_sharded,
        "offload": engine.cpu_offload,
        "adaptation": hyper.adaptation,
        "dora": hyper.dora,
        "tensor_parallel": engine.tensor_parallel,
        "context_parallel": engine.context_parallel,
        "method": hyper.method,
        "packing": hyper.packing,
        "precision": precision,
        "optimizer": hyper.optimizer,
    }
    # One rank with an engine for several is slower than "single", which is all that a plan minds.
    slots = ranks if engine.name == "single" else max(2, ranks)
    problem = engine_problem(asked, None, slots)
    if problem is not None:
        what, advice = problem.words.split("; ", 1)
        raise WorkError("user", f"{problem.param}: {what}", f"{advice[0].upper()}{advice[1:]}.")


def engine_environment(engine: Engine) -> dict[str, str]:
    """Facts of an engine that must be equal for a resume to be equal to the bit."""
    if engine.name == "single":
        return {}
    facts: dict[str, str] = {"engine": engine.name, "weights": engine.weights}
    if engine.name == "deepspeed":
        facts["zero_stage"] = str(engine.zero_stage)
    if engine.tensor_parallel > 1:
        facts["tensor_parallel"] = str(engine.tensor_parallel)
    if engine.context_parallel > 1:
        facts["context_parallel"] = str(engine.context_parallel)
    return facts | ({"cpu_offload": "true"} if engine.cpu_offload else {})


def loads_on_cpu(engine: Engine) -> bool:
    """Return whether the model is read into the machine's memory, and sharded from there."""
    return engine.name == "fsdp2" and engine.is_sharded


def start_engine(run: "TrainingRun", model: Any, device: torch.device) -> TrainingEngine:
    """The engine of a run around a loaded model; `check_engine` has let it pass."""
    engine, precision = run.spec.engine, run.fingerprint["precision"]
    match engine.name, engine.weights:
        case "deepspeed", _:
            from tunery.ml.engines.zero import ZeroEngine  # seconds of import

            return ZeroEngine(engine, model, run.hyper, precision, device, run.ranks)
        case "fsdp2", "sharded":
            from tunery.ml.engines.fsdp2 import ShardedEngine

            return ShardedEngine(engine, model, run.hyper, precision, device, run.ranks)
        case _:
            from tunery.ml.engines.fsdp2 import parts_of
            from tunery.ml.engines.whole import WholeEngine

            if precision == FLOAT8:
                use_float8(parts_of(model)[2], device, gathers=False)
            return WholeEngine(model, run.hyper, run.ranks)
