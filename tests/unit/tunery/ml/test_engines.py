"""Trainings of several gloo ranks on each engine, beside one process: the same losses.

Each compares with the exact path. Bounds are what another order of fp32 sums makes of six steps.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.dataset import RowKind
from tests.bases import write_family
from tests.unit.tunery.ml.rank_trainings import (
    COPIED,
    DIVIDED,
    PARTED,
    SHARDED,
    DieAfter,
    StopAfter,
    go_ranks,
    spec_of,
    trained,
)
from tests.unit.tunery.ml.trainings import HYPER, ROWS, STEPS, Event, go, of, resumed
from tunery.plan.methods import ROWS_OF_METHOD
from tunery.platform.blobs.base_files import hash_base
from tunery.ranks.launching import RENDEZVOUS
from tunery.work.codec import encode_spec
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import Engine, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]

ZERO = [
    Engine(name="deepspeed", zero_stage=1),
    Engine(name="deepspeed", zero_stage=2),
    Engine(name="deepspeed", zero_stage=3, weights="sharded"),
]
FULL = {"adaptation": "full", "learning_rate": 1e-3}
# Largest difference of a loss. Ranks add shards of gradients and of their norm in another order
# than one process, and Adam's first steps are about as large for a gradient that is nearly 0 as for
# others: it enlarges their last bits. ZeRO-3 has come to 9.5e-6 in six steps.
FP32, BF16 = 1e-5, 2e-2
OF_TRL = 1e-4  # which rounds the losses that it logs
NORM = 1e-3  # likewise, of a gradient's norm, by itself


@pytest.fixture
def tmp_path(folder_on_disk: Path) -> Path:
    """Ranks have a `/dev/shm` of their own, and quick tests have their folders there."""
    return folder_on_disk


def alone(spec: TrainSpec) -> list[Event]:
    """Events of the same training in one process."""
    code, events = go(replace(spec, ranks=1, engine=Engine(), out_dir=f"{spec.out_dir}-alone"))
    assert code == ExitCode.FINISHED
    return events


def losses(events: list[Event]) -> list[float]:
    return [event["loss"] for event in of(events, "step")]


def figures(events: list[Event], *names: str) -> list[float]:
    return [event[name] for event in of(events, "step") for name in names]


@pytest.mark.parametrize(
    "kind", ["spec", "pairs_spec", "labels_spec", "reward_spec", "prompts_spec"]
)
def test_copied_ranks_train_an_adapter_to_the_losses_of_one_process(
    kind: str, request: pytest.FixtureRequest
) -> None:
    spec = spec_of(request.getfixturevalue(kind), COPIED)
    events, whole = trained(spec), alone(spec)
    assert losses(events) == pytest.approx(losses(whole), abs=FP32)
    # two micro-batches a step, one of each rank: even their sum is the same to the bit
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


@pytest.mark.parametrize(
    ("optimizer", "kind", "changed"),
    [
        ("muon", "pairs_spec", FULL),
        ("adamw_8bit", "spec", FULL),
        pytest.param("muon", "spec", {}, marks=pytest.mark.soak),
        pytest.param("adamw_8bit", "prompts_spec", {}, marks=pytest.mark.soak),
    ],
)
def test_copied_ranks_train_with_other_optimizers_to_the_bytes_of_one_process(
    optimizer: str, kind: str, changed: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    spec = request.getfixturevalue(kind)
    spec = spec_of(spec, COPIED, optimizer=optimizer, **changed)
    events, whole = trained(spec), alone(spec)
    assert losses(events) == pytest.approx(losses(whole), abs=FP32)
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


@pytest.fixture
def ragged(
    make_shard: Callable[..., Path], documents: Callable[[int, int], list[list[list[int]]]]
) -> Callable[[TrainSpec], TrainSpec]:
    """The training with rows of different numbers of documents, or pairs of them.

    Ranks would make different numbers of passes, were they not filled up.
    """

    def make(spec: TrainSpec) -> TrainSpec:
        kind = ROWS_OF_METHOD[spec.hyper.method]
        width = 2 if kind in ("pairs", "labels") else 1
        rows = [row[: width * (1 + at % 2)] for at, row in enumerate(documents(ROWS, 2 * width))]
        kinds: dict[RowKind, dict[str, Any]] = {
            "answers": {},
            "pairs": {"pairs": True},
            "labels": {"labels": True},
            "prompts": {"item": b'{"word": "eeeeeeeeeeeeeeee"}'},
        }
        shard = make_shard(rows, f"ragged-{kind}", **kinds[kind])
        return replace(spec, train_shards=(str(shard),))

    return make


#: Each method, by the fixture that has rows of its kind.
METHODS = {
    "supervised": "spec",
    "dpo": "pairs_spec",
    "orpo": "pairs_spec",
    "cpo": "pairs_spec",
    "simpo": "pairs_spec",
    "kto": "labels_spec",
    "reward": "reward_spec",
    "reinforcement": "prompts_spec",
}
SHARES = {"fsdp2": SHARDED, "zero3": ZERO[2]}
ONE_BY_ONE = {  # computed so in quick tests
    "fsdp2": ("supervised", "dpo", "reward", "reinforcement"),
    "zero3": ("orpo", "cpo", "simpo", "kto", "reward"),
}


def method_cases() -> list[Any]:
    """Every method on every engine; with packed and single documents, of which some are long."""
    return [
        pytest.param(
            engine,
            method,
            packing,
            id=f"{engine}-{method}-{'packed' if packing else 'unpacked'}",
            marks=[] if packing != (method in ONE_BY_ONE[engine]) else pytest.mark.soak,
        )
        for engine in SHARES
        for method in METHODS
        for packing in (True, False)
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("engine", "method", "packing"), method_cases())
def test_review2_d2_every_method_has_the_figures_of_one_process_on_shares_of_weights(
    engine: str,
    method: str,
    packing: bool,
    ragged: Callable[[TrainSpec], TrainSpec],
    request: pytest.FixtureRequest,
) -> None:
    """Also unpacked, where ranks have different numbers of documents, and with drawn answers."""
    variant = request.getfixturevalue(METHODS[method])
    variant = ragged(replace(variant, hyper=replace(variant.hyper, method=method)))
    spec = spec_of(
        variant, SHARES[engine], packing=packing, max_steps=2, target_modules=("q_proj",)
    )
    events, whole = trained(spec), alone(spec)
    assert losses(events) == pytest.approx(losses(whole), abs=FP32)
    # The loss of reinforcement is near 0 whatever is learnt; its gradient is not.
    norms, of_whole = figures(events, "grad_norm"), figures(whole, "grad_norm")
    assert norms == pytest.approx(of_whole, rel=NORM)
    assert min(of_whole) > 0
    drawn = ("reward", "completion_tokens")
    assert figures(events, *drawn) == figures(whole, *drawn)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_review2_d2_zero3_gathers_the_weights_of_large_adapters(reward_spec: TrainSpec) -> None:
    """DeepSpeed leaves weights below 100,000 values whole, which those of real adapters are not."""
    large: dict[str, Any] = {
        "rank": 2048,
        "target_modules": ("q_proj",),
        "packing": False,
        "max_steps": 2,
    }
    spec = spec_of(reward_spec, ZERO[2], **large)
    assert losses(trained(spec)) == pytest.approx(losses(alone(spec)), abs=FP32)


def test_review2_d2_the_methods_of_these_tests_are_all_there_are() -> None:
    assert set(METHODS) == set(ROWS_OF_METHOD)


@pytest.mark.parametrize(
    ("hyper", "precision", "bound"),
    [
        (FULL, "fp32", FP32),
        ({}, "bf16", BF16),
        (FULL, "bf16", BF16),
        ({"adaptation": "qlora"}, "fp32", FP32),
    ],
)
def test_sharded_ranks_train_to_the_losses_of_one_process(
    hyper: dict[str, Any], precision: Any, bound: float, spec: TrainSpec
) -> None:
    spec = spec_of(replace(spec, precision=precision), SHARDED, max_steps=3, **hyper)
    assert losses(trained(spec)) == pytest.approx(losses(alone(spec)), abs=bound)


@pytest.mark.parametrize(
    ("engine", "hyper"),
    [
        pytest.param(COPIED, {}, id="copied"),
        pytest.param(SHARDED, FULL, id="sharded-full"),
        pytest.param(DIVIDED, {}, id="divided", marks=pytest.mark.soak),
    ],
)
def test_a_rank_that_is_killed_ends_the_others_and_the_training_goes_on_to_the_same_bytes(
    engine: Engine, hyper: dict[str, Any], spec: TrainSpec
) -> None:
    """Two runs are equal, too: the second is the one that is killed and resumed."""
    # The checkpoint of step 2 is whole before that of step 4 is begun, which the kill may tear.
    spec = replace(spec_of(spec, engine, **hyper), checkpoint_every_steps=2)
    whole = trained(spec)
    killed = replace(spec, out_dir=f"{spec.out_dir}-killed")
    codes, events = go_ranks(killed, {1: DieAfter(5)})
    assert codes == [ExitCode.RANK_LOST, -9]
    last = of(events[0], "checkpoint")[-1]
    assert last["step"] in (2, 4)
    again = trained(resumed(killed, last, out="again"))
    assert again[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
    assert losses(again) == losses(whole)[last["step"] :]
    assert of(again, "started")[0]["environment_changes"] == []
    manifests = [of(run, "checkpoint")[-1]["manifest_sha256"] for run in (whole, again)]
    assert manifests[0] == manifests[1]


def test_ranks_stop_after_the_same_step_and_another_number_and_engine_go_on(
    spec: TrainSpec,
) -> None:
    """The rows stay the same; what changed is named."""
    spec = spec_of(spec, SHARDED, accumulation=4, n_epochs=3)
    whole = losses(alone(spec))
    codes, events = go_ranks(spec, {1: StopAfter(2)})
    assert codes == [ExitCode.PREEMPTED] * 2
    (saved,) = of(events[0], "checkpoint")
    assert (saved["step"], [len(of(each, "step")) for each in events]) == (2, [2, 2])
    four = trained(resumed(replace(spec, ranks=4), saved, out="four"))
    assert losses(four) == pytest.approx(whole[2:], abs=FP32)
    assert of(four, "started")[0]["environment_changes"] == [["ranks", "2", "4"]]
    single = alone(resumed(spec, saved, out="single"))
    assert losses(single) == pytest.approx(whole[2:], abs=FP32)


def test_ranks_of_two_nodes_have_all_shards_on_each_and_the_first_keeps_the_checkpoint(
    spec: TrainSpec,
) -> None:
    spec = spec_of(spec, SHARDED, ranks=4, accumulation=4, n_epochs=2)
    events, whole = trained(spec, nodes=2), losses(alone(spec))
    assert losses(events) == pytest.approx(whole, abs=FP32)
    first = of(events, "checkpoint")[0]
    shards = [file["name"] for file in first["files"] if file["name"].startswith("shard-")]
    assert len(shards) == 2
    again = trained(resumed(spec, first, out="again"), nodes=2)
    assert again[-1]["adapter_sha256"] == events[-1]["adapter_sha256"]


def test_review2_d2_packing_is_judged_by_the_precision_that_layers_compute_in(
    spec: TrainSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights in fp32 said that bf16 was exact: a GPU's rounding was taken for a mistake."""
    import torch.distributed as dist

    monkeypatch.setattr("tunery.ml.loss.FP32_MEAN_MAX", 0.0)  # more than that is rounded in bf16
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv(RENDEZVOUS, f"file://{tmp_path}/rendezvous")
    spec = spec_of(replace(spec, precision="bf16"), SHARDED, ranks=1, max_steps=1, **FULL)
    try:
        code, _ = go(spec)
    finally:
        dist.destroy_process_group()
    assert code == ExitCode.FINISHED


def test_review2_d2_deepspeed_takes_the_device_that_was_picked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DeepSpeed took the number of the rank, also where a process sees one device."""
    import torch

    from tunery.ml.engines.zero import ZeroEngine
    from tunery.ml.ranks import ALONE

    seen: list[str] = []

    def initialize(**_: Any) -> tuple[None, None]:
        seen.append(os.environ["LOCAL_RANK"])
        return None, None

    library = ModuleType("deepspeed")
    library.__dict__.update(initialize=initialize, init_distributed=lambda *_, **__: None)
    library.__dict__["ops"] = ModuleType("deepspeed.ops")
    monkeypatch.setitem(sys.modules, "deepspeed", library)
    monkeypatch.setitem(sys.modules, "deepspeed.ops", library.__dict__["ops"])
    for name in ("LOCAL_RANK", "LOCAL_SIZE", "DS_ACCELERATOR"):
        monkeypatch.setenv(name, "1")
    model = torch.nn.Linear(2, 2)
    ZeroEngine(ZERO[1], model, HYPER, "fp32", torch.device("cuda", 0), ALONE)
    assert seen == ["0"]


@pytest.mark.parametrize(
    ("kind", "ranks", "hyper"),
    [
        pytest.param("spec", 2, {}, marks=pytest.mark.soak),
        pytest.param("spec", 4, FULL),  # two groups, each with shares of the other's parts
        pytest.param("pairs_spec", 4, {"method": "dpo"}, marks=pytest.mark.soak),
        pytest.param("prompts_spec", 2, {"method": "reinforcement"}, marks=pytest.mark.soak),
    ],
)
def test_divided_matrices_train_to_the_losses_of_one_process(
    kind: str, ranks: int, hyper: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    spec = spec_of(request.getfixturevalue(kind), DIVIDED, ranks, max_steps=3, **hyper)
    events, whole = trained(spec), alone(spec)
    assert losses(events) == pytest.approx(losses(whole), abs=FP32)
    assert figures(events, "grad_norm") == pytest.approx(figures(whole, "grad_norm"), rel=NORM)


@pytest.mark.parametrize("family", ["qwen3", pytest.param("mistral", marks=pytest.mark.soak)])
def test_divided_norms_of_heads_are_added_up_and_one_process_goes_on(
    family: str, spec: TrainSpec, tmp_path: Path
) -> None:
    """A rank of Qwen3 has the gradient of its own heads alone; Mistral has a window."""
    folder = write_family(family, tmp_path / family)
    spec = replace(spec, base_dir=str(folder), base_id=family, base_sha256=hash_base(folder))
    hyper: dict[str, Any] = FULL | {"max_steps": 4}
    spec = replace(spec_of(spec, DIVIDED, **hyper), checkpoint_every_steps=2)
    events, whole = trained(spec), losses(alone(spec))
    assert losses(events) == pytest.approx(whole, abs=FP32)
    first, _ = of(events, "checkpoint")
    single = alone(resumed(spec, first, out="single"))
    assert losses(single) == pytest.approx(whole[2:], abs=FP32)
    assert ["tensor_parallel", "2", ""] in of(single, "started")[0]["environment_changes"]


@pytest.mark.parametrize(
    ("engine", "ranks", "hyper"),
    [
        pytest.param(PARTED, 2, {}, id="copied-lora"),
        pytest.param(
            replace(PARTED, weights="sharded"), 4, FULL, id="sharded-full", marks=pytest.mark.soak
        ),
    ],
)
def test_divided_rows_train_to_the_losses_of_one_process_and_resume_to_the_byte(
    engine: Engine, ranks: int, hyper: dict[str, Any], spec: TrainSpec
) -> None:
    """Rows of several documents, which are cut anywhere, and padded to equal parts."""
    spec = replace(spec_of(spec, engine, ranks, **hyper), checkpoint_every_steps=2)
    events, whole = trained(spec), alone(spec)
    assert losses(events) == pytest.approx(losses(whole), abs=FP32)
    assert figures(events, "grad_norm") == pytest.approx(figures(whole, "grad_norm"), rel=NORM)
    first = of(events, "checkpoint")[0]
    again = trained(resumed(spec, first, out="again"))
    assert again[-1]["adapter_sha256"] == events[-1]["adapter_sha256"]
    single = alone(resumed(spec, first, out="single"))
    assert ["context_parallel", "2", ""] in of(single, "started")[0]["environment_changes"]


def test_offloaded_shards_train_to_the_losses_of_one_process(spec: TrainSpec) -> None:
    spec = spec_of(spec, replace(SHARDED, cpu_offload=True))
    assert losses(trained(spec)) == pytest.approx(losses(alone(spec)), abs=FP32)


def test_a_rank_with_other_inputs_is_named_before_the_first_step(spec: TrainSpec) -> None:
    spec = spec_of(spec, COPIED)
    other = replace(spec, hyper=replace(spec.hyper, learning_rate=0.5))
    codes, events = go_ranks(spec, specs={1: other})
    assert codes == [ExitCode.PLATFORM] * 2
    assert "rank 1 of 2 has other inputs" in of(events[0], "failed")[0]["message"]


@pytest.mark.parametrize(
    ("engine", "hyper", "advice"),
    [
        (Engine(), {}, "Set engine to auto"),
        (replace(COPIED, cpu_offload=True), {}, "Set shard_weights to true"),
        (DIVIDED, {"adaptation": "qlora"}, "Set tensor_parallel to 1"),
        (
            Engine(name="deepspeed", zero_stage=3, weights="sharded"),
            {"adaptation": "qlora"},
            "Set engine to fsdp2",
        ),
    ],
)
def test_what_an_engine_does_not_do_is_refused_with_the_nearest_that_works(
    engine: Engine, hyper: dict[str, Any], advice: str
) -> None:
    from tunery.ml.engines import check_engine

    with pytest.raises(WorkError) as refused:
        check_engine(engine, replace(HYPER, **hyper), "auto", 2)
    assert refused.value.cause == "user"
    assert advice in refused.value.advice


def test_engines_have_their_checkpoints_in_one_form(spec: TrainSpec) -> None:
    """Safetensors and JSON alone, whichever ranks wrote them."""
    spec = spec_of(spec, SHARDED)
    last = of(trained(spec), "checkpoint")[-1]
    names = [path.name for path in sorted(Path(last["dir"]).iterdir())]
    assert names == [
        "MANIFEST.json",
        "adapter_config.json",
        "adapter_model.safetensors",
        "progress.json",
        "rng.json",
        "rng.safetensors",
        "shard-00001-model-00001-of-00001.safetensors",
        "shard-00002-model-00001-of-00001.safetensors",
    ]
    assert last["step"] == STEPS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("engine", "hyper"),
    [
        pytest.param(ZERO[0], {}, id="zero1-lora"),
        pytest.param(ZERO[0], FULL, id="zero1-full", marks=pytest.mark.soak),
        pytest.param(ZERO[1], {}, id="zero2-lora", marks=pytest.mark.soak),
        pytest.param(ZERO[1], FULL, id="zero2-full"),
        pytest.param(ZERO[2], {}, id="zero3-lora", marks=pytest.mark.soak),
        pytest.param(ZERO[2], FULL, id="zero3-full"),
    ],
)
def test_deepspeed_trains_to_the_losses_of_one_process_and_leaves_no_pickle(
    engine: Engine, hyper: dict[str, Any], spec: TrainSpec
) -> None:
    """What it would compile is left out: a confined rank starts no compiler."""
    spec = replace(spec_of(spec, engine, max_steps=4, **hyper), checkpoint_every_steps=2)
    events, whole = trained(spec), alone(spec)
    assert losses(events) == pytest.approx(losses(whole), abs=FP32)
    assert figures(events, "grad_norm") == pytest.approx(figures(whole, "grad_norm"), rel=NORM)
    first, _ = of(events, "checkpoint")
    assert {path.suffix for path in Path(first["dir"]).iterdir()} == {".safetensors", ".json"}
    again = trained(resumed(spec, first, out="again"))
    assert losses(again) == pytest.approx(losses(whole)[2:], abs=FP32)
    single = alone(resumed(spec, first, out="single"))
    assert losses(single) == pytest.approx(losses(whole)[2:], abs=FP32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_review2_d2_zero3_goes_on_from_shards_of_fsdp2_and_takes_a_step_that_ranks_cannot_divide(
    spec: TrainSpec,
) -> None:
    """Three micro-batches of two ranks: DeepSpeed refuses a batch size that says so."""
    spec = spec_of(spec, SHARDED, accumulation=3, n_epochs=2)
    events, whole = trained(spec), losses(alone(spec))
    first = of(events, "checkpoint")[0]
    of_zero = replace(resumed(spec, first, out="zero"), engine=ZERO[2])
    again = trained(of_zero)
    assert losses(again) == pytest.approx(whole[first["step"] :], abs=FP32)
    assert of(again, "started")[0]["environment_changes"] == [
        ["engine", "fsdp2", "deepspeed"],
        ["zero_stage", "", "3"],
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_review2_d2_ranks_have_the_losses_of_trl_under_accelerate_launch(
    spec: TrainSpec,
    pairs_spec: TrainSpec,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
    tmp_path: Path,
) -> None:
    """Two processes of each. Supervised rows have one document: TRL does not keep several apart."""
    single = replace(spec, train_shards=(str(make_shard(documents(ROWS, 1), "single")),))
    specs = [
        spec_of(variant, engine, scheduler="constant", warmup=0.0)
        for variant, engine in ((single, SHARDED), (pairs_spec, ZERO[2]))
    ]
    paths = [tmp_path / f"{variant.hyper.method}.json" for variant in specs]
    for path, variant in zip(paths, specs, strict=True):
        path.write_bytes(encode_spec(variant))
    answer = tmp_path / "losses.json"
    launch = "accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 "
    launch += "--main_process_port 0 --mixed_precision no --dynamo_backend no "
    launch += f"--module tests.unit.tunery.ml.trl_ranks {answer} {' '.join(map(str, paths))}"
    subprocess.run(
        [sys.executable, "-m", *launch.split()],
        env=os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
        check=True,
    )
    for variant, of_trl in zip(specs, json.loads(answer.read_text()), strict=True):
        ours = losses(trained(variant))
        assert len(ours) == STEPS
        assert ours == pytest.approx(of_trl, abs=OF_TRL)
