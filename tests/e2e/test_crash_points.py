"""Exact resume from every point at which a training can be killed.

    python -m pytest tests/e2e/test_crash_points.py -m soak     # all of them

A process kills itself at a named point (tests/crashes.py); the next one goes on from what was
recorded, and ends with the bytes of an undisturbed one. No kill leaves a folder that looks like a
checkpoint and has no manifest.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bases import tiny_base
from tests.crashes import POINTS, UNRECORDED
from tests.e2e.test_resume import shard
from tests.unit.tunery.ml.trainings import HYPER
from tunery.work.codec import encode_spec
from tunery.work.spec import ResumeCandidate, TrainSpec

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]

ROWS, EACH_TIME = 6, 3
# one of each kind; the others take minutes
QUICK = (
    "between two micro-batches",
    "in a file of a checkpoint",
    "after the rename",
    "in an evaluation",
    "while the adapter is written",
)
IN_A_ROW = (
    ("while files are synced", "while a checkpoint is loaded", "before the record"),
    ("at the end of an epoch", "while the oldest is deleted", "before the end is said"),
    ("before the first step", "during the upload", "at the last step"),
)
OF_WHOLE = "while the whole model is written"
FIRST_POINTS = tuple(
    point for point in POINTS if point not in ("while a checkpoint is loaded", OF_WHOLE)
)
POINTS_OF_WHOLE = (
    *(point for point in FIRST_POINTS if point != "while the adapter is written"),
    OF_WHOLE,
)


class Forks:
    """Attempts at one run, each in a process of its own that is forked from one."""

    def __init__(self, server: "subprocess.Popen[str]", spec: TrainSpec) -> None:
        self.server, self.spec = server, spec

    def attempt(
        self, out: Path, resume: list[dict[str, Any]], point: str | None
    ) -> tuple[int, list[dict[str, Any]]]:
        """Exit status and events."""
        candidates = tuple(
            ResumeCandidate(dir=event["dir"], manifest_sha256=event["manifest_sha256"])
            for event in resume
        )
        out.mkdir(exist_ok=True)
        spec = msgspec.structs.replace(self.spec, out_dir=str(out / "ck"), resume=candidates)
        (out / "spec.json").write_bytes(encode_spec(spec))
        order = {"spec": str(out / "spec.json"), "events": str(out / "events"), "point": point}
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(f"{json.dumps(order)}\n")
        self.server.stdin.flush()
        status = int(self.server.stdout.readline())
        lines = (out / "events").read_bytes().splitlines()
        return status, [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    folder = tmp_path_factory.mktemp("crashes")
    tiny = tiny_base()
    spec = TrainSpec(
        base_dir=str(tiny.dir),
        base_id="tiny-llama",
        base_sha256=tiny.sha256,
        train_shards=(str(shard(folder / "train.safetensors", ROWS)),),
        valid_shards=(str(shard(folder / "valid.safetensors", 2)),),
        out_dir="",
        hyper=HYPER,
        precision="fp32",
        threads=1,
        checkpoint_every_steps=1,
        keep_checkpoints=EACH_TIME,
    )
    command = [sys.executable, "-m", "tests.crashes"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        yield Forks(server, spec)


@pytest.fixture(scope="module")
def undisturbed(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed")
    status, _ = forks.attempt(out, [], None)
    assert status == 0
    return adapter(out)


def adapter(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((out / "ck" / "adapter").iterdir())}


def kill_and_finish(forks: Forks, out: Path, points: tuple[str, ...]) -> None:
    """Killed at each point in turn, then to the end."""
    known: list[dict[str, Any]] = []
    for point in (*points, None):
        status, events = forks.attempt(out, known, point)
        assert status == (0 if point is None else -signal.SIGKILL), (point, events[-1:])
        if events:
            expected = known[0]["step"] if known else 0
            assert events[0]["resumed_from_step"] == expected
            assert events[0]["skipped"] == []
        for folder in (out / "ck").glob("step-*"):
            assert (folder / "MANIFEST.json").exists(), f"{point} left {folder.name}"
        recorded = [event for event in events if event["type"] == "checkpoint"]
        if point in UNRECORDED:
            recorded.pop()
        known = [event for event in (*reversed(recorded), *known) if Path(event["dir"]).is_dir()][
            :EACH_TIME
        ]


@pytest.mark.parametrize("point", QUICK)
def test_resume_after_a_kill_gives_the_same_bytes(
    forks: Forks, undisturbed: dict[str, bytes], tmp_path: Path, point: str
) -> None:
    kill_and_finish(forks, tmp_path, (point,))
    assert adapter(tmp_path) == undisturbed


@pytest.mark.soak
def test_resume_of_a_whole_model_after_a_kill_at_any_point_gives_the_same_bytes(
    forks: Forks, tmp_path: Path
) -> None:
    """Its checkpoints are written while the training waits."""
    hyper = msgspec.structs.replace(HYPER, adaptation="full", learning_rate=1e-3)
    whole = Forks(forks.server, msgspec.structs.replace(forks.spec, hyper=hyper))
    for point in (None, *POINTS_OF_WHOLE):
        out = tmp_path / (point or "undisturbed")
        out.mkdir()
        kill_and_finish(whole, out, () if point is None else (point,))
        assert adapter(out) == adapter(tmp_path / "undisturbed"), point


@pytest.mark.soak
@pytest.mark.parametrize("point", [point for point in FIRST_POINTS if point not in QUICK])
def test_resume_after_a_kill_at_any_point_gives_the_same_bytes(
    forks: Forks, undisturbed: dict[str, bytes], tmp_path: Path, point: str
) -> None:
    kill_and_finish(forks, tmp_path, (point,))
    assert adapter(tmp_path) == undisturbed


@pytest.mark.soak
@pytest.mark.parametrize("points", IN_A_ROW)
def test_resume_after_kills_in_a_row_gives_the_same_bytes(
    forks: Forks, undisturbed: dict[str, bytes], tmp_path: Path, points: tuple[str, ...]
) -> None:
    kill_and_finish(forks, tmp_path, points)
    assert adapter(tmp_path) == undisturbed
