"""Contents of a run's checkpoints. test_fine_tuning.py shows that a resume is exact."""

import io
import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.tunery.ml.trainings import HYPER, STEPS, go, of
from tunery.ml.events import EventWriter
from tunery.work.exits import WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    # peft 0.21 and trl 1.16 use deprecated names of transformers 5
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


def test_a_checkpoint_holds_the_position_the_losses_and_the_best_weights(spec: TrainSpec) -> None:
    hyper = msgspec.structs.replace(HYPER, best_checkpoint=True)
    _, events = go(msgspec.structs.replace(spec, hyper=hyper, checkpoint_every_steps=4))
    first, last = of(events, "checkpoint")
    assert [(event["step"], event["epoch"]) for event in (first, last)] == [(4, 1.333333), (6, 2.0)]
    assert [file["name"] for file in last["files"]] == [
        "adapter_config.json", "adapter_model.safetensors", "best_adapter.safetensors",
        "optimizer.safetensors", "progress.json", "rng.json", "rng.safetensors",
        "MANIFEST.json",
    ]  # fmt: skip
    progress = json.loads(Path(last["dir"], "progress.json").read_text())
    assert progress["losses"] == [step["loss"] for step in of(events, "step")]
    assert (progress["step"], progress["tokens"]) == (STEPS, last["tokens"])
    assert progress["evaluations"][:2] == [of(events, "eval")[-1]["valid_loss"], STEPS]


class Gate(io.BytesIO):
    """Output for events that sets `opened` when the second step is done."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()

    def write(self, line: Any) -> int:
        event = json.loads(line)
        if event["type"] == "step" and event["step"] == 2:
            self.opened.set()
        return super().write(line)


def test_the_training_goes_on_while_a_checkpoint_is_written(
    spec: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints have the same bytes whether or not training goes on while they are written."""
    from tunery.ml import checkpoints
    from tunery.ml.fine_tuning import fine_tune

    _, at_once = go(spec)
    gate, write = Gate(), checkpoints.write

    def wait_and_write(*args: Any, **kwargs: Any) -> Any:
        assert gate.opened.wait(300), "the training waits for the disk"
        return write(*args, **kwargs)

    monkeypatch.setattr(checkpoints, "write", wait_and_write)
    out = str(Path(spec.out_dir).with_name("slow"))
    slow = msgspec.structs.replace(spec, out_dir=out)
    assert fine_tune(slow, EventWriter(gate, time.monotonic()), lambda: False) == 0
    events = [json.loads(line) for line in gate.getvalue().splitlines()]
    kinds = [(event["type"], event.get("step")) for event in events]
    assert kinds.index(("step", 2)) < kinds.index(("checkpoint", 1))
    manifests = [
        [(event["step"], event["manifest_sha256"]) for event in of(run, "checkpoint")]
        for run in (events, at_once)
    ]
    assert manifests[0] == manifests[1]
    first = of(events, "checkpoint")[0]
    assert first["write_ms"] <= first["background_ms"]
    assert first["captured_elapsed_ms"] < first["elapsed_ms"] - first["background_ms"] + 50


def test_a_checkpoint_that_cannot_be_written_ends_the_training(spec: TrainSpec) -> None:
    """After the first checkpoint a file replaces the folder of checkpoints."""
    out = Path(spec.out_dir)

    class Blocking(io.BytesIO):
        """Output for events that replaces the folder as soon as a checkpoint is reported."""

        def write(self, line: Any) -> int:
            if b'"checkpoint"' in line and out.is_dir():
                shutil.rmtree(out)
                out.write_text("in the way")
            return super().write(line)

    from tunery.ml.fine_tuning import fine_tune

    events = Blocking()
    with pytest.raises(OSError, match="exists"):
        fine_tune(spec, EventWriter(events, time.monotonic()), lambda: False)
    assert b'"finished"' not in events.getvalue()


def test_the_last_checkpoint_of_a_failing_training_is_kept(
    spec: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that was already copied is still written, and the next attempt resumes it."""
    from tunery.ml import loop

    def fail(self: Any, value: float, what: str, step: int | None = None) -> None:
        if self.step == 2:
            raise WorkError("divergence", "planted", "")

    monkeypatch.setattr(loop.TrainingLoop, "_check_finite", fail)
    with pytest.raises(WorkError, match="planted"):
        go(spec)
    kept = sorted(path.name for path in Path(spec.out_dir).iterdir())
    assert kept == ["step-00000001", "step-00000002"]


def test_without_memory_for_a_copy_the_training_waits(
    spec: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full fine-tuning of a large model leaves no memory; checkpoints have the same bytes."""
    from tunery.ml import saving

    _, copied = go(spec)
    monkeypatch.setattr(saving, "COPY_SHARE", 0.0)
    _, at_once = go(msgspec.structs.replace(spec, out_dir=f"{spec.out_dir}-waited"))
    kinds = [event["type"] for event in at_once if event["type"] in ("step", "checkpoint")]
    assert kinds == ["step", "checkpoint"] * STEPS
    first, second = (
        [event["manifest_sha256"] for event in of(run, "checkpoint")] for run in (copied, at_once)
    )
    assert first == second
    assert all(event["write_ms"] == event["background_ms"] for event in of(at_once, "checkpoint"))


def test_a_disk_that_loses_what_was_written_is_a_bad_node(
    spec: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is read back and compared before it is reported."""
    from tunery.ml import checkpoints

    verify = checkpoints.verify

    def lose_and_verify(directory: Path, manifest_sha256: str) -> Any:
        os.truncate(directory / "optimizer.safetensors", 100)
        return verify(directory, manifest_sha256)

    monkeypatch.setattr(checkpoints, "verify", lose_and_verify)
    with pytest.raises(WorkError, match="step 1 is not what was written: optimizer") as caught:
        go(spec)
    assert caught.value.cause == "bad_node"
