"""Variants of one training: each is what it is alone, the best is left, all go on together."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.tunery.ml.trainings import Event, go, of, stop_after
from tunery.ml import checkpoints
from tunery.ml.events import EventWriter
from tunery.ml.inputs import read_training
from tunery.ml.variants import read, train_variants
from tunery.work.codec import encode_spec
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import Hyper, ResumeCandidate, TrainSpec, VariantsSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
RUN_S_MAX = 560


def variants_of(spec: TrainSpec, count: int) -> VariantsSpec:
    """`count` variants with different rates, ranks, seeds and lengths. One keeps its best step."""
    hypers = (
        replace(spec.hyper, learning_rate=1e-5),
        replace(
            spec.hyper,
            rank=4,
            seed=7,
            dropout=0.5,
            n_epochs=1,
            accumulation=1,
            optimizer="adamw_8bit",
        ),
        replace(spec.hyper, rank=8, seed=3, neftune=5.0, n_epochs=3, best_checkpoint=True),
    )
    return VariantsSpec(training=spec, hypers=hypers[:count])


def go_on(spec: VariantsSpec, must_stop: Callable[[], bool] = lambda: False) -> Any:
    """The exit code, and the events."""
    stream = io.BytesIO()
    code = train_variants(spec, EventWriter(stream, time.monotonic()), must_stop)
    return code, [json.loads(line) for line in stream.getvalue().splitlines()]


def in_folder(spec: VariantsSpec, name: str, *resume: ResumeCandidate) -> VariantsSpec:
    folder = str(Path(spec.training.out_dir).with_name(name))
    return replace(spec, training=replace(spec.training, out_dir=folder, resume=resume))


def stored(checkpoint: Event, folder: Path) -> ResumeCandidate:
    """A checkpoint as an agent stores and fetches it: file by file, by their names."""
    for file in checkpoint["files"]:
        target = folder / file["name"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(checkpoint["dir"]) / file["name"], target)
        assert sha256(target.read_bytes()).hexdigest() == file["sha256"]
    return ResumeCandidate(dir=str(folder), manifest_sha256=checkpoint["manifest_sha256"])


def alone(spec: VariantsSpec) -> list[tuple[float, dict[str, bytes]]]:
    """Loss and files of each variant's adapter, trained in a process of its own."""
    left = []
    for number, own in spec.trainings.items():
        folder = Path(own.out_dir).parent.with_name("alone") / number
        code, events = go(replace(own, out_dir=str(folder)))
        assert code == ExitCode.FINISHED
        losses = [event["valid_loss"] for event in of(events, "eval")]
        loss = min(losses) if own.hyper.best_checkpoint else losses[-1]
        left.append((loss, adapter(str(folder))))
    return left


def adapter(folder: str) -> dict[str, bytes]:
    paths = sorted((Path(folder) / "adapter").iterdir())
    assert paths
    return {path.name: path.read_bytes() for path in paths}


def check_left(spec: VariantsSpec, finished: Event) -> None:
    """Raises AssertionError unless each left what it leaves alone, and the best one is named."""
    expected = alone(spec)
    assert finished["valid_losses"] == [loss for loss, _ in expected]
    best = min(range(len(expected)), key=lambda number: expected[number][0])
    assert finished["variant"] == best
    for number, (own, (_, bytes_alone)) in enumerate(
        zip(spec.trainings.values(), expected, strict=True)
    ):
        assert adapter(own.out_dir) == bytes_alone
        if number == best:
            assert adapter(str(Path(finished["adapter_dir"]).parent)) == bytes_alone


@pytest.mark.parametrize("count", [2, 3])
def test_each_is_what_it_is_alone_and_the_best_is_left(spec: TrainSpec, count: int) -> None:
    variants = variants_of(spec, count)
    code, events = go_on(variants)
    assert code == ExitCode.FINISHED
    (finished,) = of(events, "finished")
    check_left(variants, finished)
    # steps and tokens are those of all, and rise from one event to the next
    (started,) = of(events, "started")
    steps = of(events, "step")
    assert [step["step"] for step in steps] == [*range(1, started["total_steps"] + 1)]
    assert {step["total_steps"] for step in steps} == {started["total_steps"]}
    assert steps[-1]["tokens"] == finished["tokens"] == started["tokens_total"]
    assert {step["variant"] for step in steps} == {*range(count)}
    assert events.index(started) < events.index(steps[0])


def test_a_stop_and_another_one_go_on_to_the_same_bytes(spec: TrainSpec, tmp_path: Path) -> None:
    variants = variants_of(spec, 3)
    resume: tuple[ResumeCandidate, ...] = ()
    for attempt in range(2):
        again = in_folder(variants, f"attempt-{attempt}", *resume)
        code, events = go_on(again, stop_after(8))
        assert code == ExitCode.PREEMPTED
        last = of(events, "checkpoint")[-1]
        assert of(events, "preempted")[0]["step"] == last["step"]  # nothing is lost
        if resume:
            (started,) = of(events, "started")
            assert started["loaded_manifest"] == resume[0].manifest_sha256
            assert started["resumed_from_step"] > 0
        resume = (stored(last, tmp_path / f"stored-{attempt}"),)
    final = in_folder(variants, "final", *resume)
    code, events = go_on(final)
    assert code == ExitCode.FINISHED
    check_left(final, of(events, "finished")[0])


def test_a_killed_process_goes_on_to_the_same_bytes(spec: TrainSpec, tmp_path: Path) -> None:
    """The process is killed when one variant has ended, which is not trained again."""
    variants = variants_of(spec, 3)
    path = tmp_path / "spec.json"
    path.write_bytes(encode_spec(variants))
    command = [sys.executable, "-m", "tunery.ml.train", str(path)]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    stored_at: ResumeCandidate | None = None
    with subprocess.Popen(command, stdout=pipe, stderr=null, stdin=null) as process:
        assert process.stdout is not None
        ended = False
        for line in process.stdout:
            event = json.loads(line)
            ended = ended or (event["type"] == "step" and event["step"] > 12)
            if event["type"] == "checkpoint":
                stored_at = stored(event, tmp_path / f"stored-{event['step']}")
            if ended and stored_at is not None:
                os.kill(process.pid, signal.SIGKILL)
                break
    assert stored_at is not None
    again = in_folder(variants, "again", stored_at)
    path.write_bytes(encode_spec(again))
    said = subprocess.run(command, stdout=pipe, stderr=null, timeout=RUN_S_MAX, check=True).stdout
    events = [json.loads(line) for line in said.splitlines()]
    (started,) = of(events, "started")
    assert started["loaded_manifest"] == stored_at.manifest_sha256
    check_left(again, of(events, "finished")[0])


def test_one_that_diverges_is_left_out(spec: TrainSpec) -> None:
    too_fast = replace(spec.hyper, learning_rate=1e30)
    variants = VariantsSpec(training=spec, hypers=(too_fast, spec.hyper))
    code, events = go_on(variants)
    assert code == ExitCode.FINISHED
    (finished,) = of(events, "finished")
    assert finished["variant"] == 1
    assert finished["valid_losses"][0] is None
    assert any("left out" in e["message"] and e["variant"] == 0 for e in of(events, "note"))
    assert not of(events, "failed")
    code, events = go_on(in_folder(replace(variants, hypers=(too_fast,) * 2), "none"))
    assert code == ExitCode.DIVERGENCE
    assert [event["cause"] for event in of(events, "failed")] == ["divergence"]


def test_another_failure_stops_all(spec: TrainSpec) -> None:
    variants = VariantsSpec(training=spec, hypers=(spec.hyper, replace(spec.hyper, max_length=8)))
    code, events = go_on(variants)
    assert code == ExitCode.BAD_DATA
    (failed,) = of(events, "failed")
    assert failed["variant"] == 1
    assert not of(events, "started")
    assert not of(events, "finished")


def test_a_damaged_checkpoint_is_skipped(spec: TrainSpec, tmp_path: Path) -> None:
    variants = variants_of(spec, 2)
    _, events = go_on(variants, stop_after(6))
    candidate = stored(of(events, "checkpoint")[-1], tmp_path / "stored")
    assert read(candidate, 2).parts[1] is not None
    with pytest.raises(checkpoints.Damaged, match="not of 3 variants"):
        read(candidate, 3)
    weights = next(Path(candidate.dir).rglob("adapter_model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    code, events = go_on(in_folder(variants, "again", candidate))
    assert code == ExitCode.FINISHED
    (started,) = of(events, "started")
    assert started["loaded_manifest"] is None
    assert [skip["manifest_sha256"] for skip in started["skipped"]] == [candidate.manifest_sha256]
    assert started["resumed_from_step"] == 0


def test_a_checkpoint_has_a_new_one_of_each_that_trains(spec: TrainSpec) -> None:
    """Its time is that of its oldest part: what came after it would be lost."""
    variants = variants_of(replace(spec, checkpoint_every_steps=2), 2)
    code, events = go_on(variants)
    assert code == ExitCode.FINISHED
    saved = of(events, "checkpoint")
    assert len(saved) > 1
    for before, after in pairwise(saved):
        assert before["step"] < after["step"]
        assert before["captured_monotonic_ms"] <= after["captured_monotonic_ms"]
    assert saved[-1]["tokens"] == of(events, "finished")[0]["tokens"]
    assert len({*Path(variants.training.out_dir).glob("variants-*.json")}) <= spec.keep_checkpoints


def test_variants_that_cannot_share_a_base_are_refused(spec: TrainSpec, tmp_path: Path) -> None:
    def refused(**changes: Any) -> str:
        hyper: Hyper = replace(spec.hyper, **changes)
        path = tmp_path / "refused.json"
        path.write_bytes(encode_spec(VariantsSpec(training=spec, hypers=(spec.hyper, hyper))))
        with pytest.raises(WorkError) as error:
            read_training(path)
        return error.value.message

    assert "trainings.1: its adaptation is 'full'" in refused(adaptation="full")
    assert "trainings.1: hyper.rank is 0" in refused(rank=0)
    assert "trainings.1: hyper.alpha is 0" in refused(alpha=0)
