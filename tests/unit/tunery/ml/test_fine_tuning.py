"""Whole attempts in this process, on the tiny model. Killed processes: tests/e2e/test_resume.py."""

import io
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from tests.unit.tunery.ml.trainings import (
    HYPER,
    ROWS,
    STEPS,
    Event,
    figures,
    go,
    of,
    random_base,
    resumed,
    stop_after,
)
from tunery.data.mixing import MixedSource
from tunery.data.preparing import prepare
from tunery.ml.checkpoints import MANIFEST
from tunery.ml.events import EventWriter, classify
from tunery.ml.order import row_order
from tunery.ml.packed import read_rows
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import HYPER_ADDED, TrainSpec

pytestmark = [
    pytest.mark.train,
    # peft 0.21 and trl 1.16 ask transformers 5 by names that are going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


def test_a_run_emits_every_step_and_checkpoint(spec: TrainSpec) -> None:
    code, events = go(spec)
    assert code == ExitCode.FINISHED
    assert [event["type"] for event in events if event["type"] != "checkpoint"] == [
        *("started", "note", "step", "step", "step", "eval", "step", "step", "step", "eval"),
        "finished",
    ]
    assert [event["step"] for event in of(events, "checkpoint")] == [1, 2, 3, 4, 5, 6]
    assert events[-2]["type"] == "checkpoint", "the end waits for the last one"
    started, last, finished = events[0], of(events, "step")[-1], events[-1]
    assert (started["total_steps"], started["resumed_from_step"], started["skipped"]) == (6, 0, [])
    assert started["packing_difference_nats"] < 1e-5
    assert last["tokens"] == last["tokens_total"] == started["tokens_total"] == finished["tokens"]
    assert (last["epoch"], finished["steps"]) == (2.0, STEPS)
    assert of(events, "step")[0]["loss"] > last["loss"]
    rates = [event["learning_rate"] for event in of(events, "step")]
    assert rates == pytest.approx([0.005, 0.01, 0.008, 0.006, 0.004, 0.002])
    assert of(events, "eval")[0]["valid_loss"] > of(events, "eval")[1]["valid_loss"]
    accuracies = [event["valid_accuracy"] for event in of(events, "eval")]
    assert all(0 < accuracy < 1 for accuracy in accuracies)
    tokens = [event["tokens"] for event in of(events, "step")]
    assert tokens == [event["tokens"] for event in of(events, "checkpoint")]
    assert [file["name"] for file in finished["files"]] == [
        "adapter_config.json", "adapter_model.safetensors",
    ]  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resume_from_any_step_ends_in_the_same_bytes(spec: TrainSpec, precision: str) -> None:
    spec = msgspec.structs.replace(spec, precision=precision)
    _, whole = go(spec)
    checkpoints = of(whole, "checkpoint")
    for checkpoint in (checkpoints[0], checkpoints[2], checkpoints[4], checkpoints[5]):
        step = checkpoint["step"]
        _, events = go(resumed(spec, checkpoint, out=f"again-{step}"))
        assert events[0]["resumed_from_step"] == step
        assert events[0]["loaded_manifest"] == checkpoint["manifest_sha256"]
        assert events[0]["environment_changes"] == []
        assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
        assert events[-1]["final_loss"] == whole[-1]["final_loss"]
        assert figures(of(events, "step")) == figures(of(whole, "step")[step:])
        # A checkpoint holds everything there is to carry on: made after a resume, it is the same.
        again = {event["step"]: event["manifest_sha256"] for event in of(events, "checkpoint")}
        assert again == {event["step"]: event["manifest_sha256"] for event in checkpoints[step:]}


def test_training_a_checkpoint_of_before_a_knob_came_is_still_of_its_run(spec: TrainSpec) -> None:
    """The fingerprint of a run has only what differs from what was done before."""
    _, whole = go(spec)
    manifest = json.loads(Path(of(whole, "checkpoint")[0]["dir"], MANIFEST).read_text())
    assert HYPER_ADDED.keys().isdisjoint(json.loads(manifest["run"]["hyper"]))


def test_training_checkpoints_that_cost_more_than_their_share_are_left_out(
    spec: TrainSpec,
) -> None:
    """The first shows what one costs; the last is written whatever it costs."""
    _, whole = go(spec)
    _, events = go(resumed(msgspec.structs.replace(spec, checkpoint_share=1e-6), out="few"))
    assert [event["step"] for event in of(events, "checkpoint")] == [1, STEPS]
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


def test_asked_to_stop_it_finishes_the_step_and_leaves_a_checkpoint(spec: TrainSpec) -> None:
    spec = msgspec.structs.replace(spec, checkpoint_every_steps=100)
    _, whole = go(spec)
    code, events = go(resumed(spec, out="stopped"), stop_after(2))
    assert code == ExitCode.PREEMPTED
    assert [event["type"] for event in events] == [
        "started", "note", "step", "step", "checkpoint", "preempted",
    ]  # fmt: skip
    assert events[-1]["checkpoint"] == events[-2]["dir"]
    code, rest = go(resumed(spec, events[-2], out="again"))
    assert (code, rest[0]["resumed_from_step"]) == (ExitCode.FINISHED, 2)
    assert rest[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


def test_asked_to_stop_before_it_began_it_leaves_at_once(spec: TrainSpec) -> None:
    code, events = go(spec, lambda: True)
    assert code == ExitCode.PREEMPTED
    assert [(event["type"], event.get("step")) for event in events] == [("preempted", 0)]


def test_a_damaged_checkpoint_is_named_and_the_older_one_used(spec: TrainSpec) -> None:
    _, whole = go(spec)
    older, newer = of(whole, "checkpoint")[2:4]
    path = Path(newer["dir"]) / "optimizer.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-7] ^= 1
    path.write_bytes(damaged)
    _, events = go(resumed(spec, newer, older, out="again"))
    assert events[0]["resumed_from_step"] == older["step"]
    assert [(skip["dir"], skip["reason"]) for skip in events[0]["skipped"]] == [
        (newer["dir"], "optimizer.safetensors does not match its SHA-256")
    ]
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


def test_a_checkpoint_of_other_hyper_parameters_is_not_used(spec: TrainSpec) -> None:
    _, whole = go(spec)
    other = msgspec.structs.replace(
        spec, hyper=msgspec.structs.replace(spec.hyper, learning_rate=0.02)
    )
    _, events = go(resumed(other, of(whole, "checkpoint")[0], out="again"))
    assert events[0]["resumed_from_step"] == 0
    assert "another run: hyper was" in events[0]["skipped"][0]["reason"]


def test_with_auto_the_checkpoints_precision_is_taken_over(spec: TrainSpec) -> None:
    _, whole = go(spec)
    auto = msgspec.structs.replace(spec, precision="auto")
    _, events = go(resumed(auto, of(whole, "checkpoint")[3], out="again"))
    assert events[0]["precision"] == "fp32"
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


def test_only_the_newest_checkpoints_are_kept(spec: TrainSpec) -> None:
    go(msgspec.structs.replace(spec, keep_checkpoints=2))
    assert sorted(path.name for path in Path(spec.out_dir).iterdir()) == [
        "adapter", "step-00000005", "step-00000006",
    ]  # fmt: skip


def broken_base(tiny: Path, dest: Path, token: int) -> str:
    """A copy of the model in which one token's embedding is not a number."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tunery.platform.blobs.base_files import hash_base

    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    with torch.no_grad():
        model.model.embed_tokens.weight[token] = torch.nan
    model.save_pretrained(dest)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(dest)
    return hash_base(dest)


def test_a_loss_that_is_not_a_number_stops_the_run(
    spec: TrainSpec, tiny: tuple[Path, str], tmp_path: Path, make_shard: Callable[..., Path]
) -> None:
    token, rows = 7777, [[[5 + row, 6, 7, 8], [9, 10, 11]] for row in range(ROWS)]
    rows[row_order(spec.hyper.seed, 0, ROWS)[-1]][1] += [token, 12]  # seen in step 3
    sha256 = broken_base(tiny[0], tmp_path / "broken", token)
    broken = msgspec.structs.replace(
        spec,
        base_dir=str(tmp_path / "broken"),
        base_sha256=sha256,
        train_shards=(str(make_shard(rows)),),
        valid_shards=(),
    )
    with pytest.raises(WorkError) as caught:
        go(broken)
    assert caught.value.cause == "divergence"
    assert "at step 3" in caught.value.message
    assert "learning_rate" in caught.value.advice
    from transformers import AutoTokenizer

    row = row_order(spec.hyper.seed, 0, ROWS)[-1]
    tokenizer = AutoTokenizer.from_pretrained(tiny[0])
    begins = tokenizer.decode([9, 10, 11, token, 12], skip_special_tokens=True)
    assert f"highest losses are row {row} (nan) “{' '.join(begins.split())}”" in caught.value.advice
    kept = sorted(path.name for path in Path(spec.out_dir).iterdir())
    assert kept == ["step-00000001", "step-00000002"]


def test_training_m5_a_trial_step_on_the_longest_rows_changes_nothing(
    spec: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding M5: whether a step fits was known only when the first long rows came."""
    from tunery.ml import fine_tuning, loop

    monkeypatch.setattr(fine_tuning, "TRIED_FROM_STEPS", STEPS)
    _, tried = go(spec)
    monkeypatch.setattr(loop.TrainingLoop, "try_longest_rows", lambda self: None)
    _, untried = go(resumed(spec, out="untried"))
    assert tried[-1]["adapter_sha256"] == untried[-1]["adapter_sha256"]
    assert figures(of(tried, "step")) == figures(of(untried, "step"))


def test_first_hour2_u15_a_short_training_begins_without_a_trial_step(
    spec: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunery.ml import loop

    monkeypatch.setattr(loop.TrainingLoop, "try_longest_rows", lambda self: pytest.fail("tried"))
    code, events = go(spec)
    assert (code, len(of(events, "step"))) == (0, STEPS)


def test_training_m5_memory_that_does_not_suffice_shows_before_the_start(
    spec: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunery.ml import fine_tuning, loop

    monkeypatch.setattr(fine_tuning, "TRIED_FROM_STEPS", STEPS)
    widths: list[int] = []

    def fail(self: Any, batch: dict[str, torch.Tensor], items: int | None) -> Any:
        widths.append(batch["input_ids"].shape[1])
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(loop.TrainingLoop, "loss", fail)
    stream = io.BytesIO()
    events = EventWriter(stream, time.monotonic())
    from tunery.ml.fine_tuning import fine_tune

    with pytest.raises(RuntimeError) as caught:
        fine_tune(spec, events, lambda: False)
    assert classify(caught.value).cause == "oom"
    assert stream.getvalue() == b"", "what has not started is not billed"
    rows = read_rows(spec.train_shards, vocabulary=100_000)
    assert widths == [max(rows.row_tokens)]


def test_training_m8_a_validation_loss_that_is_not_a_number_stops_the_run(
    spec: TrainSpec, tiny: tuple[Path, str], tmp_path: Path, make_shard: Callable[..., Path]
) -> None:
    """Finding M8: it ended as `platform`, which was tried four times."""
    sha256 = broken_base(tiny[0], tmp_path / "broken", 7777)
    broken = msgspec.structs.replace(
        spec,
        base_dir=str(tmp_path / "broken"),
        base_sha256=sha256,
        valid_shards=(str(make_shard([[[5, 6, 7777, 8, 9, 10], [1, 2, 3, 4]]], "odd")),),
    )
    with pytest.raises(WorkError, match="the loss on validation rows is nan at step 3") as caught:
        go(broken)
    assert caught.value.cause == "divergence"


def whole_steps(spec: TrainSpec, rows: int, micro_batches: int, precision: str) -> list[Event]:
    """The events of a run whose steps of four rows are computed in several micro-batches."""
    hyper = msgspec.structs.replace(
        HYPER, batch_size=rows, accumulation=micro_batches, dropout=0.0, n_epochs=1
    )
    folder = str(Path(spec.out_dir).with_name(f"{rows}x{micro_batches}-{precision}"))
    _, events = go(msgspec.structs.replace(spec, hyper=hyper, precision=precision, out_dir=folder))
    return events


@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-5), ("bf16", 2e-2)])
def test_training_m12_a_step_is_the_same_in_smaller_micro_batches(
    spec: TrainSpec,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
    precision: str,
    most: float,
) -> None:
    """Finding M12: 4 rows at once, and 2 and 2 of them; the last step has 3 rows."""
    spec = msgspec.structs.replace(spec, train_shards=(str(make_shard(documents(19, 3), "more")),))
    whole, divided = (whole_steps(spec, *parts, precision) for parts in ((4, 1), (2, 2)))
    steps, others = of(whole, "step"), of(divided, "step")
    assert len(steps) == len(others) == 5
    for step, other in zip(steps, others, strict=True):
        assert other["loss"] == pytest.approx(step["loss"], abs=most)
        assert other["grad_norm"] == pytest.approx(step["grad_norm"], rel=most)
        assert [other[name] for name in ("tokens", "learning_rate")] == [
            step[name] for name in ("tokens", "learning_rate")
        ]


def test_training_m12_a_run_goes_on_from_its_checkpoint_in_smaller_micro_batches(
    spec: TrainSpec,
) -> None:
    """Finding M12: after running out of memory it began at step 0 as another run."""
    undivided = msgspec.structs.replace(HYPER, batch_size=2, accumulation=1, dropout=0.0)
    divided = msgspec.structs.replace(undivided, batch_size=1, accumulation=2)
    spec = msgspec.structs.replace(spec, hyper=undivided)
    _, whole = go(spec)
    smaller = msgspec.structs.replace(spec, hyper=divided)
    _, events = go(resumed(smaller, of(whole, "checkpoint")[3], out="smaller"))
    assert (events[0]["resumed_from_step"], events[0]["skipped"]) == (4, [])
    assert events[0]["environment_changes"] == [["micro_batch", "2", "1"]]
    losses = [event["loss"] for event in of(events, "step")]
    assert losses == pytest.approx([event["loss"] for event in of(whole, "step")[4:]], abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "cause", "what"),
    [
        ({"base_sha256": "0" * 64}, "bad_node", "hash to"),
        ({"base_dir": "/nowhere"}, "bad_node", "no config.json"),
        (
            {"hyper": msgspec.structs.replace(HYPER, max_length=16)},
            "bad_data",
            "more than max_length 16",
        ),
    ],
)
def test_inputs_that_cannot_be_trained_on_are_named(
    spec: TrainSpec, changes: dict[str, Any], cause: str, what: str
) -> None:
    with pytest.raises(WorkError) as caught:
        go(msgspec.structs.replace(spec, **changes))
    assert caught.value.cause == cause
    assert what in caught.value.message


def test_data_without_labels_is_named(spec: TrainSpec, make_shard: Callable[..., Path]) -> None:
    shard = make_shard([[[1]], [[2]]], "unlabelled")
    with pytest.raises(WorkError, match="no token of the training data is a label"):
        go(msgspec.structs.replace(spec, train_shards=(str(shard),)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("changed", [{}, {"adaptation": "full"}, {"recompute": True}], ids=str)
def test_a_gpu_trains_in_bf16_and_resumes_to_the_byte(
    spec: TrainSpec, changed: dict[str, Any]
) -> None:
    hyper = msgspec.structs.replace(HYPER, **changed)
    spec = msgspec.structs.replace(spec, precision="auto", hyper=hyper)
    _, whole = go(spec)
    assert whole[0]["precision"] == "bf16"
    assert of(whole, "step")[0]["loss"] > of(whole, "step")[-1]["loss"]
    _, events = go(resumed(spec, of(whole, "checkpoint")[2], out="again"))
    assert events[0]["resumed_from_step"] == 3
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


KNOBS: dict[str, dict[str, Any]] = {
    "wsd, and few steps": {"scheduler": "wsd", "max_steps": 4},
    "rslora, some layers": {"rslora": True, "target_modules": ("q_proj", "v_proj")},
    "dora": {"dora": True},
    "lora plus": {"lora_plus": 16.0},
    "noise": {"neftune": 5.0},
    "no clipping": {"grad_norm_max": 0.0},
    "prompts too": {"train_on_prompts": True},
    "each document alone": {"packing": False},
    "a layer as a whole": {"modules_to_save": ("model.norm",)},
    "ranks of some layers": {"rank_pattern": (("q_proj", 4),), "alpha_pattern": (("q_proj", 8),)},
    "qlora": {"adaptation": "qlora"},
    "the best": {"best_checkpoint": True, "eval_every_steps": 1, "learning_rate": 0.2},
}


@pytest.mark.parametrize(
    ("changed", "precision"),
    [
        *(pytest.param(changed, "fp32", id=name) for name, changed in KNOBS.items()),
        pytest.param(KNOBS["dora"], "bf16", id="dora, bf16"),  # emulated, it is ten times slower
    ],
)
def test_training_every_knob_has_an_effect_and_resumes_to_the_byte(
    spec: TrainSpec, changed: dict[str, Any], precision: str
) -> None:
    _, usual = go(msgspec.structs.replace(spec, precision=precision))
    hyper = msgspec.structs.replace(HYPER, **changed)
    spec = msgspec.structs.replace(spec, hyper=hyper, precision=precision)
    _, whole = go(resumed(spec, out="whole"))
    steps = hyper.max_steps or STEPS
    assert (len(of(whole, "step")), whole[-1]["steps"]) == (steps, steps)
    assert whole[-1]["adapter_sha256"] != usual[-1]["adapter_sha256"]
    for checkpoint in of(whole, "checkpoint")[1:-1:2]:
        _, events = go(resumed(spec, checkpoint, out=f"again-{checkpoint['step']}"))
        assert (events[0]["resumed_from_step"], events[0]["skipped"]) == (checkpoint["step"], [])
        assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


def test_training_fewer_steps_end_with_a_checkpoint_and_an_evaluation(spec: TrainSpec) -> None:
    hyper = msgspec.structs.replace(HYPER, max_steps=4, scheduler="wsd")
    _, events = go(msgspec.structs.replace(spec, hyper=hyper))
    assert [event["step"] for event in of(events, "eval")] == [3, 4]
    assert of(events, "checkpoint")[-1]["step"] == 4
    last = of(events, "step")[-1]
    assert last["tokens"] == last["tokens_total"] == events[0]["tokens_total"]
    rates = [event["learning_rate"] for event in of(events, "step")]
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.01])


RISING = {"best_checkpoint": True, "eval_every_steps": 1, "learning_rate": 0.2}


def test_training_the_adapter_is_that_of_the_lowest_validation_loss(spec: TrainSpec) -> None:
    hyper = msgspec.structs.replace(HYPER, **RISING)
    _, events = go(msgspec.structs.replace(spec, hyper=hyper))
    losses = {event["step"]: event["valid_loss"] for event in of(events, "eval")}
    assert list(losses) == [1, 2, 3, 4, 5, 6]
    best = min(losses, key=lambda step: losses[step])
    assert best < STEPS, "so that the last is not the best"
    adapted, note = of(events, "note")
    assert adapted["message"].startswith("the adapter has ")
    assert f"that of step {best}" in note["message"]
    published = Path(events[-1]["adapter_dir"], "adapter_model.safetensors").read_bytes()
    for checkpoint in of(events, "checkpoint"):
        weights = Path(checkpoint["dir"], "adapter_model.safetensors").read_bytes()
        assert (weights == published) == (checkpoint["step"] == best)


def test_training_it_ends_early_and_a_resume_from_any_step_ends_there_too(spec: TrainSpec) -> None:
    hyper = msgspec.structs.replace(HYPER, **RISING, early_stopping_patience=2)
    _, whole = go(msgspec.structs.replace(spec, hyper=hyper))
    losses = [event["valid_loss"] for event in of(whole, "eval")]
    end = len(losses)
    assert (end, whole[-1]["steps"]) == (losses.index(min(losses)) + 3, end)
    assert end < STEPS
    checkpoints = of(whole, "checkpoint")
    assert checkpoints[-1]["step"] == end, "the last step has one"
    spec = msgspec.structs.replace(spec, hyper=hyper)
    for checkpoint in checkpoints:  # after the last one nothing is trained
        code, events = go(resumed(spec, checkpoint, out=f"again-{checkpoint['step']}"))
        assert code == ExitCode.FINISHED
        assert len(of(events, "step")) == end - checkpoint["step"]
        for name in ("adapter_sha256", "steps", "tokens", "final_loss"):
            assert events[-1][name] == whole[-1][name], name


def test_training_computed_again_activations_change_no_byte(spec: TrainSpec) -> None:
    """So a run may go on with or without them."""
    _, whole = go(spec)
    hyper = msgspec.structs.replace(HYPER, recompute=True)
    again = msgspec.structs.replace(spec, hyper=hyper)
    _, events = go(resumed(again, of(whole, "checkpoint")[1], out="recomputed"))
    assert (events[0]["resumed_from_step"], events[0]["skipped"]) == (2, [])
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


def test_training_each_epoch_ends_with_a_checkpoint_and_an_evaluation(spec: TrainSpec) -> None:
    spec = msgspec.structs.replace(spec, checkpoint_every_steps=100)
    _, events = go(msgspec.structs.replace(spec, checkpoint_each_epoch=True))
    assert [event["step"] for event in of(events, "checkpoint")] == [3, 6]
    _, events = go(resumed(spec, out="without"))
    assert [event["step"] for event in of(events, "checkpoint")] == [6]


def test_training_every_step_says_its_speed_and_its_memory(spec: TrainSpec) -> None:
    begun_s = time.monotonic()
    _, events = go(spec)
    passed_s = time.monotonic() - begun_s
    steps = of(events, "step")
    tokens = [after["tokens"] - before["tokens"] for before, after in pairwise([events[0], *steps])]
    spent_s = sum(count / step["tokens_per_s"] for count, step in zip(tokens, steps, strict=True))
    assert 0 < spent_s < passed_s
    memory = [step["memory_bytes"] for step in steps]
    assert memory == sorted(memory)
    assert memory[0] > 100_000_000, "torch alone has as much"


def recurrent_base(tiny: Path, dest: Path) -> str:
    """A random model whose convolutions run on from one document to the next."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    torch.manual_seed(1)
    config = Lfm2Config(
        vocab_size=49_152,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        layer_types=["conv", "full_attention"],
        initializer_range=0.3,
    )
    return random_base(Lfm2ForCausalLM(config), tiny, dest)


def test_training_packing_is_refused_where_documents_see_each_other(
    spec: TrainSpec, tiny: tuple[Path, str], tmp_path: Path
) -> None:
    """The error is the user's, who has to change a setting: it is not retried."""
    sha256 = recurrent_base(tiny[0], tmp_path / "recurrent")
    base = msgspec.structs.replace(
        spec, base_dir=str(tmp_path / "recurrent"), base_sha256=sha256, valid_shards=()
    )
    with pytest.raises(WorkError, match="packed documents see each other") as caught:
        go(base)
    assert caught.value.cause == "user"
    assert "training.packing to false" in caught.value.advice
    hyper = msgspec.structs.replace(HYPER, packing=False, n_epochs=1)
    code, _ = go(msgspec.structs.replace(base, hyper=hyper))
    assert code == ExitCode.FINISHED


def test_training_each_document_alone_has_the_losses_of_packed_ones(spec: TrainSpec) -> None:
    """Without dropout, whose draws follow the shape. A step has the same documents."""
    packed = msgspec.structs.replace(HYPER, dropout=0.0)
    _, together = go(msgspec.structs.replace(spec, hyper=packed))
    alone = msgspec.structs.replace(packed, packing=False)
    _, apart = go(resumed(msgspec.structs.replace(spec, hyper=alone), out="alone"))
    for kind, figure in (("step", "loss"), ("step", "grad_norm"), ("eval", "valid_loss")):
        assert [event[figure] for event in of(apart, kind)] == pytest.approx(
            [event[figure] for event in of(together, kind)], abs=1e-4
        )
    assert apart[0]["packing_difference_nats"] is None


def test_mixture_a_resume_ends_in_the_same_bytes(
    spec: TrainSpec, tiny: tuple[Path, str], tmp_path: Path
) -> None:
    """Files of two formats with weights, from their rows to the adapter."""
    main, further = tmp_path / "main.jsonl", tmp_path / "further.jsonl"
    main.write_text(
        "".join(f'{{"prompt": "Lamp {n}?", "completion": "It is on."}}\n' for n in range(12))
    )
    further.write_text(
        "".join(
            f'{{"messages": [{{"role": "user", "content": "Door {n}?"}}, '
            f'{{"role": "assistant", "content": "Shut."}}]}}\n'
            for n in range(10)
        )
    )
    mixture = (MixedSource(further, 1_500_000),)
    directory = prepare(main, tiny[0], tmp_path / "prepared", max_length=128, mixture=mixture)
    assert directory.manifest.train.rows > 12
    mixed = msgspec.structs.replace(
        spec,
        train_shards=(str(directory.train_path),),
        valid_shards=(str(directory.validation_path),),
    )
    _, whole = go(mixed)
    trained = of(whole, "finished")[0]
    assert trained["tokens"] == HYPER.n_epochs * directory.manifest.train.tokens
    code, stopped = go(mixed, stop_after(2))
    assert code == ExitCode.PREEMPTED
    _, rest = go(resumed(mixed, of(stopped, "checkpoint")[-1], out="again"))
    assert of(rest, "finished")[0]["adapter_sha256"] == trained["adapter_sha256"]
