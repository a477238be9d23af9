"""Engines of a training: the exact configuration of each rank, and what does not go together.

    single     one process: the path whose resumes are equal to the byte on every machine
    fsdp2      PyTorch: weights copied (DDP) or sharded (`fully_shard` per decoder layer)
    deepspeed  ZeRO-2 (weights copied) or ZeRO-3 (sharded), where a request names it

`tunery.plan.fitting` chooses; this module compiles the choice. `tunery.ml` computes with what is
compiled here and has no defaults of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec

from schemas.envelope import Reason
from schemas.model import Base
from schemas.training import Device, EngineName, HyperParameters, OptimizerName
from schemas.units import PPM, divide_up
from tunery.plan.memory import BUCKET_VALUES, memory_bytes, precision_of, sharing
from tunery.plan.micro_batches import rows_at_once
from tunery.work.spec import Engine

# Where each engine has run, by the record of `docs/how-to/many-gpus.md`: a test compares them.
# "fp8": products in float8, with any engine; processors have emulated them.
RAN_ON: Final[Mapping[EngineName | Literal["fp8"], tuple[Device, ...]]] = {
    "single": ("cpu", "cuda"),
    "fsdp2": ("cpu",),
    "deepspeed": ("cpu",),
    "fp8": ("cpu",),
}
OPTIMIZER_RAN_ON: Final[Mapping[OptimizerName, tuple[Device, ...]]] = {
    "adamw": ("cpu", "cuda"),
    "adamw_8bit": ("cpu",),
    "muon": ("cpu",),
}
BACKENDS: Final[Mapping[Device, Literal["gloo", "nccl"]]] = {"cpu": "gloo", "cuda": "nccl"}
# Architectures, as a base's record names them, of which a model was tested: its layers are a plain
# list, each of which is sharded by itself.
LAYERED_FAMILIES: Final = frozenset(
    {"llama", "mistral", "qwen", "olmo", "phi", "granite", "smollm"}
)

# Those whose matrices transformers has a plan for, each shown by a test.
DIVIDED_FAMILIES: Final = frozenset({"llama", "mistral", "qwen"})

# Rows and columns of a matrix that cuBLAS multiplies in float8 are multiples of it.
FLOAT8_MULTIPLE: Final = 16

EngineCode: TypeAlias = Literal[
    "single_has_one_slot",  # slots
    "engine_needs_slots",  # engine
    "shards_need_slots",
    "single_keeps_weights",  # name
    "offload_needs_shards",
    "no_shards_of_four_bits",
    "no_shards",  # family
    "tensor_needs_fsdp2",  # engine
    "tensor_divides_slots",  # slots
    "tensor_needs_shards",
    "no_tensor_of",  # name
    "no_float8_of",  # name
    "no_context_of",  # name
    "no_optimizer_of",  # optimizer, name, fix
]
# For the API and for processes that train: what is wrong; the nearest that works.
ENGINE_WORDS: Final[Mapping[EngineCode, str]] = {
    "single_has_one_slot": "single is one process; set engine to auto, or slots to 1 (now {slots})",
    "engine_needs_slots": "{engine} needs several slots; set slots to 2 or more, or engine to auto",
    "shards_need_slots": "each of several slots keeps a share; set slots to 2 or more",
    "single_keeps_weights": "the engine single keeps all weights on its device; set engine to auto",
    "offload_needs_shards": "several slots offload shares of weights; set shard_weights to true",
    "no_shards_of_four_bits": "ZeRO-3 does not shard a base in four bits; set engine to fsdp2",
    "tensor_needs_fsdp2": "{engine} divides no rows or matrices; set engine to fsdp2 or auto",
    "tensor_divides_slots": (
        "as many slots compute a row together; set slots to a multiple of it (now {slots})"
    ),
    "tensor_needs_shards": "parts of matrices are no copies; set shard_weights to true",
    "no_tensor_of": "matrices of {name} are not divided; set tensor_parallel to 1",
    "no_context_of": "rows of {name} are not divided; set context_parallel to 1",
    "no_float8_of": "{name} cannot be computed in float8; set precision to bf16",
    "no_optimizer_of": "{optimizer} does not run with {name}; set {fix}",
    "no_shards": (
        "layers of the family {family} are no plain list; leave shard_weights and offload out, "
        "slots have copies"
    ),
}


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Exact configuration of every rank of a training."""

    engine: Engine
    device: Device
    # backend of `torch.distributed`; null: there is no process group
    backend: Literal["gloo", "nccl"] | None
    ranks: int
    shards: int  # number of ranks, all on one node, that share the weights; 1: each has all of them
    # param_type, reduce_type: types in which layers compute and in which gradients are added
    param_type: str
    matmul_type: str  # in which the matrices of decoder layers are multiplied
    reduce_type: str
    rows_at_once: int  # packed rows of a micro-batch
    micro_batches: int  # largest number of micro-batches of a rank in each step
    reshard_after_forward: bool  # a gathered layer is freed until its backward pass
    recompute: bool
    deepspeed: dict[str, Any] | None  # JSON configuration for DeepSpeed; null: another engine
    memory_bytes: int  # expected peak of each rank
    # kinds of devices that this engine, with these products and this optimizer, has run on
    ran_on: tuple[Device, ...]


def configuration_of(
    base: Base, hyper: HyperParameters, device: Device, ranks: int
) -> Configuration:
    """Compile resolved hyper-parameters, whose step fits, to what every rank runs with."""
    engine = Engine.from_log(hyper, ranks)
    precision = precision_of(hyper, device)
    return Configuration(
        engine=engine,
        device=device,
        backend=None if engine.name == "single" else BACKENDS[device],
        ranks=ranks,
        shards=sharing(hyper, ranks) if engine.is_sharded else 1,
        param_type=precision,
        matmul_type="fp8" if hyper.precision == "fp8" else precision,
        reduce_type="fp32",
        rows_at_once=rows_at_once(hyper),
        micro_batches=divide_up(hyper.accumulation, ranks // engine.ranks_of_a_row),
        reshard_after_forward=engine.is_sharded,
        recompute=hyper.recompute,
        deepspeed=deepspeed_config(
            engine, precision, rows_at_once(hyper), hyper.grad_norm_max_ppm / PPM
        )
        if engine.name == "deepspeed"
        else None,
        memory_bytes=memory_bytes(base, hyper, device, ranks=ranks),
        ran_on=_ran_on(hyper, engine),
    )


def _ran_on(hyper: HyperParameters, engine: Engine) -> tuple[Device, ...]:
    """Return the kinds of devices that each part of a training has run on."""
    of_engine = RAN_ON["fp8" if hyper.precision == "fp8" else engine.name]
    return tuple(device for device in of_engine if device in OPTIMIZER_RAN_ON[hyper.optimizer])


def deepspeed_config(
    engine: Engine, precision: str, rows: int, grad_norm_max: float
) -> dict[str, Any]:
    """The JSON that DeepSpeed is given.

    precision: "bf16" or "fp32"
    rows: packed rows of a micro-batch
    grad_norm_max: 0: gradients are not clipped
    """
    offload = {"device": "cpu" if engine.cpu_offload else "none"}
    zero: dict[str, Any] = {
        "stage": engine.zero_stage,
        "overlap_comm": False,  # on streams of its own it adds gradients in another order
        "contiguous_gradients": True,
        "offload_optimizer": offload,
        "reduce_bucket_size": BUCKET_VALUES,
    }
    if engine.zero_stage == 3:
        zero |= {"offload_param": offload, "stage3_prefetch_bucket_size": BUCKET_VALUES}
    else:
        zero |= {"allgather_bucket_size": BUCKET_VALUES}
    return {
        # `train_batch_size` is left out: DeepSpeed refuses one that the ranks of a short last step
        # do not multiply to. The loop says where a step ends.
        "train_micro_batch_size_per_gpu": rows,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": grad_norm_max,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,  # torch's AdamW, as in the other engines
        "zero_force_ds_cpu_optimizer": False,  # its own is compiled where it runs
        "bf16": {"enabled": precision == "bf16"},
    }


@dataclass(frozen=True)
class EngineProblem:
    """A parameter that does not go together with the engine or the slots of a request, and why."""

    param: str
    reason: Reason
    words: str


def has_plain_layers(family: str) -> bool:
    """Return whether the layers of a base are a plain list, so that weights can be sharded."""
    return family in LAYERED_FAMILIES


def engine_problem(asked: Mapping[str, Any], base: Base | None, slots: int) -> EngineProblem | None:
    """Return the first setting that no engine supports, before the job is queued or paid for.

    asked: requested hyper-parameters by name; the plan chooses what is missing or "auto"
    base: base model; None: unknown
    """
    family = None if base is None else base.family
    engine = asked.get("engine")
    shards, offload = asked.get("shard_weights"), asked.get("offload") is True
    if engine == "single":
        if slots > 1:
            return _problem("engine", "single_has_one_slot", slots=slots)
        if offload or shards is True:
            name = "offload" if offload else "shard_weights"
            return _problem(name, "single_keeps_weights", name=name)
    elif slots == 1:
        if shards is True and not offload:
            return _problem("shard_weights", "shards_need_slots")
        if engine in ("fsdp2", "deepspeed") and not offload:
            return _problem("engine", "engine_needs_slots", engine=str(engine))
    elif offload and shards is False:
        return _problem("offload", "offload_needs_shards")
    for param, problem_of in (
        ("tensor_parallel", _tensor_problem),
        ("context_parallel", _context_problem),
    ):
        if not is_divided(asked, param):
            continue
        if slots % asked[param]:
            return _problem(param, "tensor_divides_slots", slots=slots)
        if engine in ("single", "deepspeed"):
            return _problem(param, "tensor_needs_fsdp2", engine=engine)
        if (problem := problem_of(asked, family)) is not None:
            return problem
    if (shards is True or offload) and family is not None and not has_plain_layers(family):
        param = "shard_weights" if shards is True else "offload"
        return _problem(param, "no_shards", family=family)
    if engine == "deepspeed" and (shards is True or offload) and asked.get("adaptation") == "qlora":
        return _problem("engine", "no_shards_of_four_bits")
    if (problem := _optimizer_problem(asked)) is not None:
        return problem
    return _float8_problem(asked, base) if asked.get("precision") == "fp8" else None


def _optimizer_problem(asked: Mapping[str, Any]) -> EngineProblem | None:
    """Return what does not go together with another optimizer than AdamW."""
    optimizer = asked.get("optimizer")
    if optimizer in (None, "auto", "adamw"):
        return None
    names = {
        "the engine deepspeed": asked.get("engine") == "deepspeed",
        "offload": asked.get("offload") is True,
        "tensor_parallel": is_divided(asked, "tensor_parallel"),
        "shard_weights": asked.get("shard_weights") is True,
    }
    name = next((name for name, is_so in names.items() if is_so), None)
    if name is None:
        return None
    fix = {
        "the engine deepspeed": "engine to fsdp2 or auto",
        "shard_weights": "it to false: each slot then has all weights",
    }.get(name, "optimizer to adamw")
    return _problem("optimizer", "no_optimizer_of", optimizer=str(optimizer), name=name, fix=fix)


def _float8_problem(asked: Mapping[str, Any], base: Base | None) -> EngineProblem | None:
    """Return what does not go together with products in float8."""
    names = {
        "qlora": asked.get("adaptation") == "qlora",
        "deepspeed": asked.get("engine") == "deepspeed",
        "tensor_parallel": is_divided(asked, "tensor_parallel"),
        "context_parallel": is_divided(asked, "context_parallel"),
        "offload": asked.get("offload") is True,
    }
    if base is not None:
        names[f"the family {base.family}"] = not has_plain_layers(base.family)
        for width in (base.hidden_size, base.inner_size):
            names[f"a width of {width}, no multiple of {FLOAT8_MULTIPLE},"] = bool(
                width % FLOAT8_MULTIPLE
            )
    return _first_problem("precision", "no_float8_of", names)


def is_divided(asked: Mapping[str, Any], param: str) -> bool:
    """Return whether several slots compute each row together by this setting."""
    number = asked.get(param)
    return isinstance(number, int) and number > 1


def _context_problem(asked: Mapping[str, Any], family: str | None) -> EngineProblem | None:
    """Return what does not go together with rows that are divided."""
    method = asked.get("method", "supervised")
    names = {
        f"the method {method}": method != "supervised",
        "single documents (packing: false)": asked.get("packing") is False,
        "tensor_parallel": is_divided(asked, "tensor_parallel"),
        f"the family {family}": family is not None and family not in DIVIDED_FAMILIES,
    }
    return _first_problem("context_parallel", "no_context_of", names)


def _first_problem(param: str, code: EngineCode, names: Mapping[str, bool]) -> EngineProblem | None:
    wrong = next((name for name, is_so in names.items() if is_so), None)
    return None if wrong is None else _problem(param, code, name=wrong)


def _tensor_problem(asked: Mapping[str, Any], family: str | None) -> EngineProblem | None:
    """Return what does not go together with matrices that are divided."""
    param = "tensor_parallel"
    if asked.get("shard_weights") is False:
        return _problem(param, "tensor_needs_shards")
    if asked.get("adaptation") == "qlora" or asked.get("dora") is True:
        name = "qlora" if asked.get("adaptation") == "qlora" else "dora"
        return _problem(param, "no_tensor_of", name=name)
    if family is not None and family not in DIVIDED_FAMILIES:
        return _problem(param, "no_tensor_of", name=f"the family {family}")
    return None


def _problem(param: str, code: EngineCode, **params: str | int) -> EngineProblem:
    words = ENGINE_WORDS[code].format_map(params)
    return EngineProblem(param, Reason(code=code, params=params), words)
