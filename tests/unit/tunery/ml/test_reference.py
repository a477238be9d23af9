import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.unit.tunery.ml.trainings import STEPS, Event, go, of, resumed
from tunery.ml.reference import PART_ROWS
from tunery.work.codec import encode_spec
from tunery.work.exits import ExitCode
from tunery.work.spec import StartingAdapter, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


def known(events: list[Event]) -> list[str]:
    return [event["message"] for event in of(events, "note") if "reference" in event["message"]]


def test_method_dpo_the_reference_is_computed_once_and_its_damage_is_found(
    pairs_spec: TrainSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunery.ml.reference.PART_ROWS", 2)
    spec = msgspec.structs.replace(pairs_spec, reference_dir=str(tmp_path / "references"))
    _, whole = go(spec)
    first = "the reference log-probabilities of 6 of 6 packed rows are known"
    assert known(whole)[-1] == first
    parts = sorted((tmp_path / "references").rglob("part-*"))
    kept = [part.read_bytes() for part in parts]
    assert len(parts) == 3
    parts[0].unlink()
    parts[1].write_bytes(kept[1][:-1] + bytes((kept[1][-1] ^ 1,)))
    _, again = go(resumed(spec, of(whole, "checkpoint")[0], out="again"))
    assert known(again)[-1] == f"{first}; 2 were before"
    assert [part.read_bytes() for part in parts] == kept
    assert again[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


def test_method_dpo_asked_to_stop_in_the_reference_stage_it_keeps_what_it_has(
    pairs_spec: TrainSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunery.ml.reference.PART_ROWS", 2)
    spec = msgspec.structs.replace(pairs_spec, reference_dir=str(tmp_path / "references"))
    asked = iter([False, False, True])
    code, events = go(spec, lambda: next(asked, True))
    assert (code, events[-1]["type"]) == (ExitCode.PREEMPTED, "preempted")
    assert len(known(events)) == 2
    _, whole = go(resumed(spec, out="whole"))
    assert known(whole)[-1].endswith("; 4 were before")
    assert len(of(whole, "step")) == STEPS


def test_method_dpo_a_killed_reference_stage_goes_on_where_it_was(
    pairs_spec: TrainSpec, make_shard: Callable[..., Path], tmp_path: Path
) -> None:
    """A real process, ended by SIGKILL between two parts."""
    numbers = range(3 * PART_ROWS)
    rows = [[[900 + n, 300, 100 + n], [900 + n, 300, 500 + n]] for n in numbers]
    spec = msgspec.structs.replace(
        pairs_spec,
        train_shards=(str(make_shard(rows, "many", pairs=True)),),
        hyper=msgspec.structs.replace(pairs_spec.hyper, max_steps=2),
        reference_dir=str(tmp_path / "references"),
    )
    path = tmp_path / "spec.json"
    path.write_bytes(encode_spec(spec))
    command = [sys.executable, "-m", "tunery.ml.train", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if b"reference log-probabilities" in line:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    code, events = go(resumed(spec, out="after"))
    done = re.fullmatch(r".* of 96 packed rows are known; (\d+) were before", known(events)[-1])
    assert (code, done is not None and int(done[1]) >= PART_ROWS) == (ExitCode.FINISHED, True)
    _, whole = go(resumed(msgspec.structs.replace(spec, reference_dir=None), out="whole"))
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


def test_training_on_with_dpo_has_the_version_it_begins_with_as_its_reference(
    pairs_spec: TrainSpec, tmp_path: Path
) -> None:
    """Not the base: to it the pairs of the first training are no news any more."""
    spec = msgspec.structs.replace(pairs_spec, reference_dir=str(tmp_path / "references"))
    _, first = go(spec)
    assert of(first, "step")[-1]["loss"] < 0.65
    start = StartingAdapter(
        name="ft:x", dir=first[-1]["adapter_dir"], sha256=first[-1]["adapter_sha256"]
    )
    on = resumed(msgspec.structs.replace(spec, start=start), out="on")
    _, second = go(on)
    begins = of(second, "step")[0]
    assert begins["loss"] == pytest.approx(0.6931, abs=1e-4)
    assert begins["reward_margin"] == pytest.approx(0, abs=1e-5)
    assert "were before" not in known(second)[-1], "likelihoods under the base are of no use"
    assert len(list((tmp_path / "references").iterdir())) == 2
    again = resumed(msgspec.structs.replace(on, reference_dir=None), out="again")
    checkpoint = of(second, "checkpoint")[2]
    _, rest = go(resumed(again, checkpoint, out="rest"))
    assert rest[0]["resumed_from_step"] == checkpoint["step"]
    assert rest[-1]["adapter_sha256"] == second[-1]["adapter_sha256"], (
        "computed before it is loaded"
    )
