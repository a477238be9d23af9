"""Trained weights that are dealt to ranks: the bytes are those of ranks that have all of them."""

import json
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.bases import Base
from tests.unit.tunery.ml.rank_trainings import StopAfter, go_ranks
from tests.unit.tunery.ml.test_offload import deep_model
from tests.unit.tunery.ml.test_ranks import KillAfter
from tests.unit.tunery.ml.trainings import ROWS, Event, figures, of, random_base, resumed
from tunery.ml.reference import PART_ROWS
from tunery.ranks.joining import joined
from tunery.work.exits import EXIT_OF_CAUSE, ExitCode, WorkError
from tunery.work.spec import Precision, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


@pytest.fixture
def whole_spec(
    spec: TrainSpec,
    tiny: Base,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
    tmp_path: Path,
) -> TrainSpec:
    """Every weight of five layers; rows of different lengths, the last step has too few."""
    folder = tmp_path / "deep"
    sha256 = random_base(deep_model("Llama"), tiny.dir, folder)
    rows = [row[: 1 + number % 3] for number, row in enumerate(documents(11, 3))]
    hyper = replace(
        spec.hyper, adaptation="full", accumulation=4, n_epochs=1, learning_rate=1e-3,
        weight_decay=0.1,
    )  # fmt: skip
    shards = (str(make_shard(rows, "eleven")),)
    return replace(
        spec, base_dir=str(folder), base_sha256=sha256, train_shards=shards, hyper=hyper, ranks=4
    )


def sharded(spec: TrainSpec, **changes: Any) -> TrainSpec:
    return replace(spec, hyper=replace(spec.hyper, shard_weights=True), **changes)


def changed(spec: TrainSpec, **changes: Any) -> TrainSpec:
    return replace(spec, hyper=replace(spec.hyper, **changes))


def hashes(checkpoint: Event) -> dict[str, str]:
    """Of the files that say what was learnt."""
    names = ("model.safetensors", "optimizer.safetensors", "config.json")
    of_all = {file["name"]: file["sha256"] for file in checkpoint["files"]}
    return {name: of_all[name] for name in names}


def assert_same(ours: list[Event], theirs: list[Event]) -> None:
    """Their losses may be added in another order: ranks add them once a step."""
    steps = [of(each, "step") for each in (ours, theirs)]
    assert [step["grad_norm"] for step in steps[0]] == [step["grad_norm"] for step in steps[1]]
    losses = [step["loss"] for step in steps[1]]
    assert [step["loss"] for step in steps[0]] == pytest.approx(losses, abs=1e-5)
    assert [event["valid_loss"] for event in of(ours, "eval")] == [
        event["valid_loss"] for event in of(theirs, "eval")
    ]
    kept = [list(map(hashes, of(each, "checkpoint"))) for each in (ours, theirs)]
    assert kept[0] == kept[1]
    assert len(kept[0]) > 2
    for name in ("adapter_sha256", "config_sha256", "files"):
        assert ours[-1][name] == theirs[-1][name]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("count", [2, 4])
def test_sharded_ranks_train_to_the_bytes_of_ranks_with_all_weights_and_of_one_process(
    whole_spec: TrainSpec, count: int, precision: Precision
) -> None:
    """One micro-batch each, and in the last step one of the ranks has none."""
    spec = replace(changed(whole_spec, accumulation=count), precision=precision)
    _, (alone,) = go_ranks(resumed(replace(spec, ranks=1), out="alone"))
    _, ranks = go_ranks(resumed(replace(spec, ranks=count), out="ranks"))
    codes, parts = go_ranks(resumed(sharded(spec, ranks=count), out="parts"))
    assert codes == [ExitCode.FINISHED] * count
    assert_same(ranks[0], alone)
    assert_same(parts[0], ranks[0])
    assert [len(of(each, "step")) for each in parts] == [len(of(alone, "step"))] * count
    manifests = [of(each[0], "checkpoint")[0]["manifest_sha256"] for each in (parts, ranks)]
    assert manifests[0] == manifests[1], "a run goes on with either"
    assert figures(of(parts[0], "step")) == figures(of(ranks[0], "step"))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_ranks_add_gradients_of_several_rounds_as_one_process_adds_them(
    whole_spec: TrainSpec, precision: Precision
) -> None:
    """Of four micro-batches two each; the last step has three, so that one rank has one."""
    spec = replace(whole_spec, precision=precision, ranks=2)
    _, (alone,) = go_ranks(resumed(replace(spec, ranks=1), out="alone"))
    codes, parts = go_ranks(resumed(sharded(spec), out="parts"))
    assert codes == [ExitCode.FINISHED] * 2
    assert_same(parts[0], alone)
    folder = Path(of(parts[0], "checkpoint")[0]["dir"])
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    assert manifest["environment"]["sums"] == "in the order of micro-batches"
    _, ranks = go_ranks(resumed(spec, of(parts[0], "checkpoint")[0], out="ranks"))
    assert ranks[0][0]["resumed_from_step"] == 1
    assert ranks[0][0]["environment_changes"] == [["sums", "in the order of micro-batches", ""]]


def test_sharded_ranks_of_which_one_is_killed_go_on_to_the_same_bytes(
    whole_spec: TrainSpec,
) -> None:
    """While it tells what it has for a checkpoint; and all are stopped after a step."""
    spec = sharded(changed(whole_spec, accumulation=2, n_epochs=2), ranks=2)
    _, whole = go_ranks(resumed(spec, out="whole"))
    small = partial(joined, part_bytes=1 << 14)
    codes, killed = go_ranks(resumed(spec, out="killed"), {1: KillAfter(3, 2)}, join=small)
    assert codes == [ExitCode.RANK_LOST, -signal.SIGKILL]
    kept = of(killed[0], "checkpoint")[-1]
    assert kept["step"] == 2
    codes, stopped = go_ranks(resumed(spec, kept, out="stopped"), {0: StopAfter(3)})
    assert codes == [ExitCode.PREEMPTED] * 2
    kept = of(stopped[0], "checkpoint")[-1]
    assert (stopped[0][0]["resumed_from_step"], kept["step"]) == (2, 5)
    codes, again = go_ranks(resumed(spec, kept, out="again"))
    assert codes == [ExitCode.FINISHED] * 2
    assert (again[0][0]["resumed_from_step"], again[0][0]["environment_changes"]) == (5, [])
    assert figures(of(again[0], "step")) == figures(of(whole[0], "step"))[5:]
    assert again[0][-1]["files"] == whole[0][-1]["files"]
    manifests = {event["step"]: event["manifest_sha256"] for event in of(whole[0], "checkpoint")}
    for checkpoint in of(again[0], "checkpoint"):
        assert checkpoint["manifest_sha256"] == manifests[checkpoint["step"]]


class Slowed(StopAfter):
    """Never stops; from the first step on each micro-batch takes so much longer."""

    def __init__(self, seconds: float) -> None:
        super().__init__(1_000)
        self.seconds, self.is_slow = seconds, False

    def __call__(self) -> bool:
        from tunery.ml.ranks import Ranks

        seed = Ranks.seed

        def sleep_and_seed(*facts: Any) -> None:
            time.sleep(self.seconds)
            seed(*facts)

        if not self.is_slow:
            self.is_slow = True
            Ranks.seed = sleep_and_seed  # type: ignore[method-assign, assignment]  # in a child
        return super().__call__()


def test_time_that_ranks_wait_in_their_layers_is_not_their_own(whole_spec: TrainSpec) -> None:
    """One rank is slow, and the other one waits for it: only one is seen as slow."""
    spec = sharded(changed(whole_spec, accumulation=2, max_steps=3), ranks=2)
    codes, (events, _) = go_ranks(spec, {1: Slowed(0.5)})
    assert codes == [ExitCode.FINISHED] * 2
    first, second = zip(*(step["rank_ms"] for step in of(events, "step")), strict=True)
    assert 0 < max(first) < 300, "with what it waits it is 450 to 550"
    assert min(second) >= 500


def test_ranks_share_a_mixture_of_experts(
    whole_spec: TrainSpec, tiny: Base, tmp_path: Path
) -> None:
    """Its files have each expert by itself, the model one tensor of all experts of a layer."""
    folder = tmp_path / "mixture"
    sha256 = random_base(deep_model("Qwen3Moe"), tiny.dir, folder)
    spec = changed(replace(whole_spec, base_dir=str(folder), base_sha256=sha256), accumulation=2)
    spec = replace(spec, ranks=2)
    _, ranks = go_ranks(resumed(spec, out="ranks"))
    codes, parts = go_ranks(resumed(sharded(spec), out="parts"))
    assert codes == [ExitCode.FINISHED] * 2
    assert_same(parts[0], ranks[0])


def test_sharded_ranks_learn_from_pairs(whole_spec: TrainSpec, pairs_spec: TrainSpec) -> None:
    spec = replace(whole_spec, train_shards=pairs_spec.train_shards, valid_shards=(), ranks=2)
    spec = changed(spec, method="orpo", beta=0.1, accumulation=2)
    _, (alone,) = go_ranks(resumed(replace(spec, ranks=1), out="alone"))
    codes, parts = go_ranks(resumed(sharded(spec), out="parts"))
    assert codes == [ExitCode.FINISHED] * 2
    assert_same(parts[0], alone)


def test_sharded_ranks_compare_pairs_with_the_model_before_training(
    whole_spec: TrainSpec, pairs_spec: TrainSpec, tmp_path: Path
) -> None:
    """One has more rows to compute than the other, or all of them, or none: all pass the layers."""
    assert 7 * ROWS > PART_ROWS, "there are two parts"
    references = tmp_path / "references"
    shards = {
        "train_shards": 7 * pairs_spec.train_shards,
        "valid_shards": pairs_spec.valid_shards,
    }
    spec = replace(whole_spec, ranks=2, reference_dir=str(references), **shards)
    spec = changed(spec, method="dpo", beta=0.1, accumulation=2, max_steps=3)
    _, (alone,) = go_ranks(resumed(replace(spec, ranks=1, reference_dir=None), out="alone"))
    first, second = "part-00000.safetensors", "part-00001.safetensors"
    for number, missing in enumerate([(), (second,), (first,)]):
        for name in missing:
            (path,) = references.glob(f"*/{name}")
            path.unlink()
        codes, parts = go_ranks(resumed(sharded(spec), out=f"parts-{number}"))
        assert codes == [ExitCode.FINISHED] * 2
        assert_same(parts[0], alone)
        assert len([*references.glob("*/part-*")]) == 2


def test_all_ranks_say_which_rows_a_sharded_run_diverged_on(whole_spec: TrainSpec) -> None:
    spec = sharded(changed(whole_spec, learning_rate=1e30, accumulation=2), ranks=2)
    codes, events = go_ranks(spec)
    assert codes == [EXIT_OF_CAUSE["divergence"]] * 2
    for ours in events:
        assert ours[-1]["cause"] == "divergence"
        assert "rows with the highest losses are row" in ours[-1]["advice"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"adaptation": "lora", "rank": 4}, "the base is only read"),
        ({"method": "kto"}, "is more than one pass"),
        ({"packing": False}, "each document is a pass"),
        ({"best_checkpoint": True}, "a copy of all weights"),
        ({"sample_every_steps": 2}, "each token of an answer"),
    ],
)
def test_what_ranks_do_not_share_is_refused_with_the_reason(
    whole_spec: TrainSpec, changes: dict[str, Any], why: str
) -> None:
    from tunery.ml.sharding import check_sharding

    hyper = sharded(whole_spec).hyper
    check_sharding(hyper, 2)
    with pytest.raises(WorkError, match=rf"training\.shard_weights .*{why}") as caught:
        check_sharding(replace(hyper, **changes), 2)
    assert caught.value.cause == "user"
    with pytest.raises(WorkError, match="there is one rank"):
        check_sharding(hyper, 1)


def test_sharded_ranks_need_less_memory(whole_spec: TrainSpec, tiny: Base, tmp_path: Path) -> None:
    """Of 34 million weights of layers in fp32 it has a quarter, and one layer of them whole."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=2_000,
        hidden_size=512,
        intermediate_size=2_048,
        num_hidden_layers=8,
        num_attention_heads=4,
        max_position_embeddings=1024,
    )
    model = transformers.LlamaForCausalLM(config)
    of_layers = sum(weight.numel() for weight in model.model.layers.parameters())
    folder = tmp_path / "wide"
    sha256 = random_base(model, tiny.dir, folder)
    spec = changed(whole_spec, recompute=True, max_steps=2)
    spec = replace(spec, base_dir=str(folder), base_sha256=sha256, checkpoint_every_steps=100)
    peaks = {}
    for name, each in {"whole": spec, "sharded": sharded(spec)}.items():
        codes, events = go_ranks(resumed(each, out=name))
        assert codes == [ExitCode.FINISHED] * 4
        peaks[name] = max(step["memory_bytes"] for step in of(events[1], "step"))
    print(f"peak of rank 1 of 4: {peaks}")
    # weights and sums of gradients in fp32: 4 + 4 bytes of each weight, of which a quarter is left
    assert peaks["whole"] - peaks["sharded"] > 0.5 * 8 * 0.75 * of_layers
