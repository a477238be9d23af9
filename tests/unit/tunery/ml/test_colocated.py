"""Trainings that share a base model and a process: each is what it is alone, to the bit."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from tests.unit.tunery.ml.trainings import Event, go, of, resumed
from tunery.ml.colocated import CommonBase, NamedEvents, train_together
from tunery.ml.events import EventWriter
from tunery.work.codec import decode_colocated_event, encode_spec
from tunery.work.exits import ExitCode
from tunery.work.spec import ColocatedSpec, ResumeCandidate, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning"),
]
RUN_S_MAX = 560  # it imports torch: 10 s on an idle machine
# Of events: when, how fast, with how much memory, and where.
NOT_OF_TRAINING = frozenset(
    {
        *("elapsed_ms", "tokens_per_s", "memory_bytes", "write_ms", "background_ms", "dir"),
        *("captured_elapsed_ms", "captured_monotonic_ms", "adapter_dir", "checkpoint"),
    }
)
Stop = Callable[[str], bool]


def unlike(spec: TrainSpec) -> dict[str, TrainSpec]:
    """Three trainings of other ranks, seeds, dropout, noise and lengths."""
    hyper = spec.hyper
    hypers = {
        "a": hyper,
        "b": replace(hyper, rank=4, seed=7, dropout=0.5, n_epochs=1, accumulation=1),
        "c": replace(
            hyper,
            rank=8,
            seed=3,
            neftune=5.0,
            n_epochs=3,
            dora=True,
            best_checkpoint=True,
            optimizer="muon",
        ),
    }
    return {
        name: replace(spec, hyper=own, out_dir=str(Path(spec.out_dir) / "together" / name))
        for name, own in hypers.items()
    }


def alone(spec: TrainSpec) -> TrainSpec:
    """Return the training with another folder for its results."""
    return replace(spec, out_dir=spec.out_dir.replace("together", "alone"))


def go_together(
    specs: Mapping[str, TrainSpec], must_stop: Stop = lambda name: False
) -> tuple[dict[str, ExitCode], dict[str, list[Event]], list[str]]:
    """Exit codes and events of each, and the names of the trainings in the order of their steps."""
    stream = io.BytesIO()
    codes = train_together(specs, NamedEvents.on(EventWriter(stream, time.monotonic())), must_stop)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    events = {name: [li["event"] for li in lines if li["training"] == name] for name in specs}
    return codes, events, [li["training"] for li in lines if li["event"]["type"] == "step"]


def facts(events: list[Event]) -> list[Event]:
    """What events say of a training; checkpoints are reported beside it, so they come last."""
    plain = [
        {field: value for field, value in event.items() if field not in NOT_OF_TRAINING}
        for event in events
    ]
    return [*(e for e in plain if e["type"] != "checkpoint"), *of(plain, "checkpoint")]


def files(folder: str) -> dict[str, bytes]:
    """All checkpoints and the adapter."""
    root = Path(folder)
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def check_same(spec: TrainSpec, events: list[Event]) -> None:
    """Raises AssertionError unless a training left what it leaves alone."""
    code, expected = go(alone(spec))
    assert code == ExitCode.FINISHED
    assert facts(events) == facts(expected)
    assert files(spec.out_dir) == files(alone(spec).out_dir)


def test_unlike_trainings_are_what_they_are_alone(spec: TrainSpec) -> None:
    specs = unlike(spec)
    codes, events, order = go_together(specs)
    assert set(codes.values()) == {ExitCode.FINISHED}
    assert "".join(order).startswith("abcabc")
    for name, own in specs.items():
        check_same(own, events[name])


def test_what_one_trains_of_the_base_stays_its_own(
    spec: TrainSpec, pairs_spec: TrainSpec, reward_spec: TrainSpec
) -> None:
    """A layer that is trained as a whole, activations computed again, pairs, and rewards."""
    hyper = replace(spec.hyper, modules_to_save=("lm_head",), recompute=True)
    specs = {
        "layer": replace(spec, hyper=hyper),
        "pairs": pairs_spec,
        "rewards": reward_spec,
    }
    folder = Path(spec.out_dir) / "together"
    specs = {name: replace(own, out_dir=str(folder / name)) for name, own in specs.items()}
    _, events, _ = go_together(specs)
    for name, own in specs.items():
        check_same(own, events[name])


def test_one_that_stops_or_fails_leaves_the_others_going(
    spec: TrainSpec, make_shard: Callable[..., Path]
) -> None:
    specs = unlike(spec)
    specs["diverges"] = replace(
        specs["a"],
        out_dir=str(Path(spec.out_dir) / "together" / "diverges"),
        hyper=replace(spec.hyper, learning_rate=1e30),
    )
    broken = make_shard([[[100, 101]]], "broken")
    broken.write_bytes(b"no shard")
    specs["broken"] = replace(
        specs["a"],
        out_dir=str(Path(spec.out_dir) / "together" / "broken"),
        train_shards=(str(broken),),
    )
    asked: list[str] = []

    def stop_a(name: str) -> bool:
        asked.append(name)
        return name == "a" and asked.count("a") > 2  # it is asked once before its first step

    codes, events, _ = go_together(specs, stop_a)
    assert codes["a"] == ExitCode.PREEMPTED
    assert [event["step"] for event in of(events["a"], "step")] == [1, 2]
    assert codes["broken"] == ExitCode.BAD_DATA
    assert of(events["broken"], "failed")
    assert codes["diverges"] == ExitCode.DIVERGENCE
    for name in ("b", "c"):
        check_same(specs[name], events[name])
    # resumed beside another one, it ends as it would have without a break
    (*_, last) = of(events["a"], "checkpoint")
    again = {"a": resumed(specs["a"], last, out="again"), "b": specs["b"]}
    shutil.rmtree(specs["b"].out_dir)
    codes, events, _ = go_together(again)
    assert set(codes.values()) == {ExitCode.FINISHED}
    go(alone(specs["a"]))
    adapter = files(f"{again['a'].out_dir}/adapter")
    assert adapter == files(f"{alone(specs['a']).out_dir}/adapter")
    check_same(specs["b"], events["b"])


def test_weights_of_the_base_are_in_memory_once(spec: TrainSpec) -> None:
    load = CommonBase()
    device = torch.device("cpu")
    mine, theirs = (load(spec.base_dir, torch.float32, device, four_bits=False) for _ in range(2))
    pairs = list(zip(mine.parameters(), theirs.parameters(), strict=True))
    assert pairs
    assert all(first is second for first, second in pairs)
    assert not {id(module) for module in mine.modules()} & {id(m) for m in theirs.modules()}
    narrow = load(spec.base_dir, torch.bfloat16, device, four_bits=False)
    assert next(narrow.parameters()).dtype == torch.bfloat16


def start(path: Path, specs: Mapping[str, TrainSpec]) -> subprocess.Popen[bytes]:
    path.write_bytes(encode_spec(ColocatedSpec(trainings=dict(specs))))
    command = [sys.executable, "-m", "tunery.ml.train", str(path)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)


def newest(spec: TrainSpec) -> TrainSpec:
    """The training, from its last checkpoint that is whole."""
    from hashlib import sha256

    manifests = sorted(Path(spec.out_dir).glob("step-*/MANIFEST.json"))
    candidates = tuple(
        ResumeCandidate(dir=str(path.parent), manifest_sha256=sha256(path.read_bytes()).hexdigest())
        for path in reversed(manifests)
    )
    return replace(spec, resume=candidates)


def test_a_killed_process_goes_on_to_the_same_bytes(spec: TrainSpec, tmp_path: Path) -> None:
    """And a line of standard input stops one of its trainings."""
    specs = unlike(spec)
    with start(tmp_path / "spec.json", specs) as process:
        assert process.stdout is not None
        written = 0
        for line in process.stdout:
            written += decode_colocated_event(line).event.__class__.__name__ == "Checkpointed"
            if written == 4:
                os.kill(process.pid, signal.SIGKILL)
                break
    again = {name: newest(own) for name, own in specs.items()}
    assert any(own.resume for own in again.values())
    with start(tmp_path / "spec.json", again) as process:
        said, _ = process.communicate(b"nobody\na\n", timeout=RUN_S_MAX)
    events: dict[str, list[Any]] = {name: [] for name in specs}
    for line in said.splitlines():
        event = decode_colocated_event(line)
        events[event.training].append(event.event)
    assert process.returncode == ExitCode.PREEMPTED
    ends = {name: type(events[name][-1]).__name__ for name in specs}
    assert ends == {"a": "Preempted", "b": "Finished", "c": "Finished"}
    assert go(newest(specs["a"]))[0] == ExitCode.FINISHED  # the rest of it alone
    for own in specs.values():
        go(alone(own))
        assert files(own.out_dir) == files(alone(own).out_dir)
