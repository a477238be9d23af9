"""From a request to what every rank runs with, on 1 × 8 and 4 × 8 devices; what is refused."""

from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest
from msgspec.structs import replace

from schemas.training import EngineName, OptimizerName
from services.gateway.wording import parameter_words
from tests.unit.tunery.plan.samples import SHAPES, SMOL, base_of
from tunery.plan.engines import OPTIMIZER_RAN_ON, RAN_ON, configuration_of, deepspeed_config
from tunery.plan.fitting import fitted
from tunery.plan.hyperparameters import problems, resolve
from tunery.plan.memory import memory_bytes
from tunery.plan.micro_batches import shared_among
from tunery.work.spec import Engine

GOLDEN: Final = Path(__file__).with_name("golden") / "engines"
DEVICE_BYTES: Final = 80 * 10**9
#: Requests for each number of nodes with 8 devices of 80 GB, by the base that they train.
REQUESTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("Qwen2.5-7B", {}),
    ("Qwen2.5-7B", {"method": "dpo"}),
    ("Qwen2.5-7B", {"adaptation": "full"}),
    ("Qwen2.5-7B", {"method": "reinforcement"}),
    ("Qwen2.5-7B", {"engine": "deepspeed"}),
    ("Qwen2.5-7B", {"engine": "deepspeed", "adaptation": "full"}),
    ("Qwen2.5-7B", {"engine": "deepspeed", "adaptation": "full", "offload": True}),
    ("Qwen2.5-7B", {"tensor_parallel": 2}),
    ("Qwen2.5-7B", {"context_parallel": 4, "max_length": 4_096}),
    ("Qwen2.5-7B", {"precision": "fp8"}),
    ("Qwen2.5-7B", {"precision": "fp8", "adaptation": "full"}),
    ("Qwen2.5-32B", {}),
    ("Llama-3.1-70B", {}),
    ("Llama-3.1-70B", {"adaptation": "qlora"}),
    ("Llama-3.1-70B", {"adaptation": "full"}),
    ("Llama-3.1-70B", {"adaptation": "full", "tensor_parallel": 8}),
)


@pytest.mark.parametrize("nodes", [1, 4])
def test_requests_are_compiled_to_exactly_these_configurations(nodes: int) -> None:
    """To accept a change: write `compiled(nodes)` to the file, and say why in the commit."""
    assert compiled(nodes) == (GOLDEN / f"{nodes}x8.jsonl").read_text(encoding="utf-8")


def compiled(nodes: int) -> str:
    """What each rank of these requests runs with, and its parts that a request did not set."""
    slots, compiled_requests = 8 * nodes, []
    for name, request in REQUESTS:
        base = base_of(name)
        asked = {"batch_size": 2 * slots, "max_length": 2_048} | request
        assert problems(asked, base, slots) == ()
        hyper, _ = resolve(asked, base, None, 7, "cuda")
        hyper = fitted(base, hyper, "cuda", None, DEVICE_BYTES, request, slots, on_node=8)
        shared = shared_among(hyper, slots)
        assert shared is not None
        configuration = configuration_of(base, shared, "cuda", slots)
        fits = configuration.memory_bytes <= DEVICE_BYTES
        compiled_requests.append(
            {"base": name, "request": request, "fits": fits, "ranks": configuration}
        )
    lines = (msgspec.json.encode(each, order="deterministic") for each in compiled_requests)
    return "".join(f"{msgspec.json.format(line, indent=0).decode()}\n" for line in lines)


def test_one_slot_is_one_process_as_it_always_was() -> None:
    hyper, _ = resolve({}, SMOL, None, 1)
    configuration = configuration_of(SMOL, hyper, "cpu", 1)
    assert configuration.engine == Engine()
    assert (configuration.backend, configuration.micro_batches, configuration.deepspeed) == (
        None,
        1,
        None,
    )


def test_every_engine_says_where_it_ran() -> None:
    assert set(RAN_ON) == {*get_args(EngineName), "fp8"}
    assert set(OPTIMIZER_RAN_ON) == {*get_args(OptimizerName)}
    eight_bits, _ = resolve({"optimizer": "adamw_8bit"}, SMOL, None, 1)
    assert configuration_of(SMOL, eight_bits, "cuda", 1).ran_on == ("cpu",)
    hyper, _ = resolve({"engine": "fsdp2"}, SMOL, None, 1)
    assert "cuda" not in configuration_of(SMOL, hyper, "cuda", 8).ran_on, "it was not run there"


def test_a_job_from_before_engines_is_one_of_fsdp2() -> None:
    hyper, _ = resolve({}, SMOL, None, 1)
    assert Engine.from_log(hyper, 4) == Engine(name="fsdp2", weights="copied")


def test_deepspeed_gets_no_batch_that_it_could_refuse() -> None:
    engine = Engine(name="deepspeed", weights="sharded", zero_stage=3, cpu_offload=True)
    config = deepspeed_config(engine, "bf16", 2, 1.0)
    assert "train_batch_size" not in config, "ranks of a short last step do not multiply to it"
    assert config["zero_optimization"]["offload_param"]["device"] == "cpu"


@pytest.mark.parametrize(
    ("asked", "slots", "param", "fix"),
    [
        ({"engine": "single"}, 2, "engine", "set engine to auto, or slots to 1"),
        ({"engine": "single", "offload": True}, 1, "offload", "engine to auto"),
        ({"engine": "single", "shard_weights": True}, 1, "shard_weights", "engine to auto"),
        ({"engine": "fsdp2"}, 1, "engine", "set slots to 2 or more"),
        ({"engine": "deepspeed"}, 1, "engine", "set slots to 2 or more"),
        ({"shard_weights": True}, 1, "shard_weights", "set slots to 2 or more"),
        ({"offload": True, "shard_weights": False}, 2, "offload", "set shard_weights to true"),
        (
            {"engine": "deepspeed", "adaptation": "qlora", "shard_weights": True},
            2,
            "engine",
            "set engine to fsdp2",
        ),
        ({"engine": "deepspeed", "offload": True, "shard_weights": False}, 4, "offload", "true"),
        ({"tensor_parallel": 2}, 3, "tensor_parallel", "set slots to a multiple of it"),
        ({"tensor_parallel": 2}, 1, "tensor_parallel", "set slots to a multiple of it"),
        ({"tensor_parallel": 2, "engine": "deepspeed"}, 2, "tensor_parallel", "engine to fsdp2"),
        ({"tensor_parallel": 2, "shard_weights": False}, 2, "tensor_parallel", "to true"),
        ({"tensor_parallel": 2, "adaptation": "qlora"}, 2, "tensor_parallel", "matrices of qlora"),
        ({"tensor_parallel": 2, "dora": True}, 2, "tensor_parallel", "matrices of dora"),
        ({"precision": "fp8", "adaptation": "qlora"}, 1, "precision", "set precision to bf16"),
        ({"precision": "fp8", "engine": "deepspeed"}, 2, "precision", "deepspeed cannot be"),
        ({"precision": "fp8", "tensor_parallel": 2}, 2, "precision", "tensor_parallel cannot be"),
        ({"precision": "fp8", "offload": True}, 1, "precision", "offload cannot be"),
        ({"context_parallel": 2}, 3, "context_parallel", "set slots to a multiple of it"),
        ({"context_parallel": 2, "engine": "deepspeed"}, 2, "context_parallel", "engine to fsdp2"),
        ({"context_parallel": 2, "method": "dpo"}, 2, "context_parallel", "the method dpo"),
        ({"context_parallel": 2, "packing": False}, 2, "context_parallel", "single documents"),
        (
            {"context_parallel": 2, "tensor_parallel": 2},
            4,
            "context_parallel",
            "set context_parallel to 1",
        ),
        ({"precision": "fp8", "context_parallel": 2}, 2, "precision", "context_parallel cannot"),
        ({"engine": "zero"}, 2, "engine", "single, fsdp2, deepspeed"),
        ({"optimizer": "muon", "shard_weights": True}, 2, "optimizer", "set it to false"),
        ({"optimizer": "muon", "engine": "deepspeed"}, 2, "optimizer", "set engine to fsdp2"),
        ({"optimizer": "muon", "tensor_parallel": 2}, 2, "optimizer", "set optimizer to adamw"),
        ({"optimizer": "adamw_8bit", "offload": True}, 1, "optimizer", "run with offload"),
        ({"optimizer": "lion"}, 1, "optimizer", "must be one of adamw, adamw_8bit, muon"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_nearest_that_works(
    asked: dict[str, Any], slots: int, param: str, fix: str
) -> None:
    (problem,) = problems(asked, SMOL, slots)
    assert problem.param == param
    assert fix in parameter_words(problem.reason)


def test_layers_that_are_no_plain_list_are_copied_and_never_sharded() -> None:
    mamba = replace(SMOL, family="mamba")
    (problem,) = problems({"context_parallel": 2}, mamba, 2)
    assert "the family mamba" in parameter_words(problem.reason)
    (problem,) = problems({"tensor_parallel": 2}, mamba, 2)
    assert "the family mamba" in parameter_words(problem.reason)
    (problem,) = problems({"shard_weights": True}, mamba, 2)
    assert "layers of the family mamba" in parameter_words(problem.reason)
    (problem,) = problems({"precision": "fp8"}, mamba, 1)
    assert "the family mamba" in parameter_words(problem.reason)
    (problem,) = problems({"precision": "fp8"}, replace(SMOL, inner_size=100), 1)
    assert "a width of 100, no multiple of 16" in parameter_words(problem.reason)
    hyper, _ = resolve({"adaptation": "full"}, mamba, None, 1, "cuda")
    assert not fitted(mamba, hyper, "cuda", None, 1, (), 8).shard_weights


@pytest.mark.parametrize(
    ("asked", "slots"),
    [
        ({}, 1),
        ({"engine": "auto", "offload": True}, 1),
        ({"engine": "fsdp2", "offload": True}, 1),
        ({"engine": "deepspeed", "offload": True}, 1),
        ({"engine": "fsdp2", "adaptation": "qlora", "shard_weights": True}, 4),
        ({"engine": "deepspeed", "adaptation": "qlora"}, 4),
        ({"method": "kto", "shard_weights": True, "best_checkpoint": True}, 4),
        ({"method": "reinforcement", "shard_weights": True}, 2),
        ({"packing": False, "shard_weights": True}, 2),
        ({"packing": False, "offload": True}, 1),
        ({"tensor_parallel": 4, "adaptation": "full", "engine": "fsdp2"}, 8),
        ({"context_parallel": 4, "adaptation": "qlora", "shard_weights": False}, 8),
        ({"precision": "fp8"}, 1),
        ({"precision": "fp8", "adaptation": "full", "method": "dpo"}, 8),
    ],
)
def test_what_goes_together_is_not_refused(asked: dict[str, Any], slots: int) -> None:
    assert problems(asked, SMOL, slots) == ()


PAGE: Final = Path(__file__).resolve().parents[4] / "docs/how-to/many-gpus.md"
#: Columns of the guide's table: a request and its number of slots.
COLUMNS: Final[tuple[tuple[dict[str, Any], int], ...]] = (
    ({"engine": "single"}, 1),
    ({"engine": "single", "adaptation": "qlora", "recompute": True}, 1),
    ({"engine": "fsdp2", "offload": True, "recompute": True}, 1),
    ({"engine": "fsdp2", "recompute": True}, 8),
    ({"engine": "fsdp2", "shard_weights": True, "recompute": True}, 8),
    ({"engine": "fsdp2", "adaptation": "full", "shard_weights": True, "recompute": True}, 8),
)


def memory_row(name: str) -> str:
    """What one device needs for a packed row of 2,048 tokens, in bf16 with rank 16."""
    base, cells = base_of(name), []
    for request, slots in COLUMNS:
        asked: dict[str, Any] = {"max_length": 2_048, "batch_size": 1, "precision": "bf16"}
        hyper, _ = resolve(asked | {"dropout": 0} | request, base, None, 1, "cuda")
        cells.append(f"{memory_bytes(base, hyper, 'cuda', ranks=slots) / 1e9:,.0f} GB")
    return f"| {name} | {' | '.join(cells)} |"


def test_the_guide_has_the_memory_of_each_size_and_engine() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert all(memory_row(name) in lines for name in SHAPES)


def test_the_guide_says_where_each_engine_ran() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, devices in RAN_ON.items():
        (row,) = (line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert ("GPU" in row.split("|")[-2]) == ("cuda" in devices), name
