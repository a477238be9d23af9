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
from tests.score_models import judging, likes, relayed
from tests.unit.tunery.ml.test_model_scores import JUDGE
from tests.unit.tunery.ml.trainings import HYPER
from tunery.work.codec import encode_spec
from tunery.work.spec import ResumeCandidate, TrainSpec

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]

ROWS, EACH_TIME = 6, 3
NONE = Path("none")
# one of each kind; the others take minutes
QUICK = (
    "between two micro-batches",
    "in a file of a checkpoint",
    "after the rename",
    "in an evaluation",
    "while what was trained is written",
)
IN_A_ROW = (
    ("while files are synced", "while a checkpoint is loaded", "before the record"),
    ("at the end of an epoch", "while the oldest is deleted", "before the end is said"),
    ("before the first step", "during the upload", "at the last step"),
)
OF_RESULT = "while what was trained is written"
OF_REFERENCE = (
    "in the reference stage",
    "in a file of the reference stage",
    "after the reference stage",
)
OF_ANSWERS = "in the answers to prompts"
OF_ROLLOUTS = (
    "in the likelihoods of answers",
    "while answers are written",
    "between two grades",
    "while likeliest answers are graded",
)
OF_SCORES = ("while models are asked for scores", "once models gave scores")
FIRST_POINTS = tuple(
    point
    for point in POINTS
    if point
    not in ("while a checkpoint is loaded", *OF_REFERENCE, OF_ANSWERS, *OF_ROLLOUTS, *OF_SCORES)
)
# roles of the documents of a row
ROLES = {"kto": (3, 4, 3, 4), "reinforcement": (5, 5)}
PAIRS = (1, 2, 1, 2)
GRADER = (
    b'{"type": "text_similarity", "evaluation_metric": "fuzzy_match", '
    b'"input": "{{sample.output_text}}", "reference": "{{item.word}}"}'
)
# What differs from `HYPER`, for each method and what changes the state of one.
METHODS: dict[str, dict[str, Any]] = {
    "dpo": {"method": "dpo", "beta": 0.1},
    "dpo, smoothed": {"method": "dpo", "beta": 0.1, "label_smoothing": 0.1},
    "simpo": {"method": "simpo", "beta": 2.0, "gamma": 1.0},
    "orpo": {"method": "orpo", "beta": 0.1},
    "cpo": {"method": "cpo", "beta": 0.1},
    "kto": {"method": "kto", "beta": 0.1},
    "reward": {"method": "reward"},
    "full": {"adaptation": "full", "learning_rate": 1e-3},
    "full dpo": {"adaptation": "full", "learning_rate": 1e-3, "method": "dpo", "beta": 0.1},
    "qlora": {"adaptation": "qlora"},
    "answers meanwhile": {"sample_every_steps": 2},
    "reinforcement": {
        "method": "reinforcement",
        "beta": 0.04,
        "num_generations": 3,
        "max_completion_length": 4,
    },
}
SCORED = "reinforcement, a model scores"
METHODS[SCORED] = METHODS["reinforcement"]
# They resume as another does; `make soak` runs them.
LIKE_OTHERS = (
    *("dpo, smoothed", "orpo", "cpo", "simpo", "kto", "reward", "full", "full dpo"),
    *("reinforcement", "answers meanwhile"),
)


class Forks:
    """Attempts at one run, each in a process of its own that is forked from one.

    socket: of an agent that asks a model for scores; `NONE` has no listener
    """

    def __init__(
        self, server: "subprocess.Popen[str]", spec: TrainSpec, socket: Path = NONE
    ) -> None:
        self.server, self.spec, self.socket = server, spec, socket

    def attempt(
        self, out: Path, resume: list[dict[str, Any]], point: str | None, **limits: int
    ) -> tuple[int, list[dict[str, Any]]]:
        """Exit status and events. `limits`: on memory, see tests/crashes.py."""
        candidates = tuple(
            ResumeCandidate(dir=event["dir"], manifest_sha256=event["manifest_sha256"])
            for event in resume
        )
        out.mkdir(exist_ok=True)
        spec = msgspec.structs.replace(self.spec, out_dir=str(out / "ck"), resume=candidates)
        (out / "spec.json").write_bytes(encode_spec(spec))
        paths = {"spec": str(out / "spec.json"), "events": str(out / "events")}
        order = {**paths, "point": point, **limits}
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
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server,
        judging(likes("e")) as judge,
        relayed(judge.endpoint(), JUDGE, folder) as socket,
    ):
        yield Forks(server, spec, socket)


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


def own_points(spec: TrainSpec) -> tuple[str, ...]:
    """Return the crash points that only the method of this training reaches."""
    hyper = spec.hyper
    if spec.score_socket is not None:
        return (*OF_ROLLOUTS, *OF_SCORES)
    if hyper.sample_every_steps:
        return (OF_ANSWERS,)
    if hyper.method == "reinforcement":
        return OF_ROLLOUTS
    return OF_REFERENCE if hyper.method in ("dpo", "kto") else ()


def of_method(forks: Forks, method: str, folder: Path) -> Forks:
    hyper = msgspec.structs.replace(HYPER, **METHODS[method])
    spec = msgspec.structs.replace(forks.spec, hyper=hyper, prompts=("Is the lamp on?", "Why?"))
    if hyper.method != "supervised":
        roles = ROLES.get(hyper.method, PAIRS)
        spec = msgspec.structs.replace(
            spec,
            grader=GRADER.decode() if hyper.method == "reinforcement" else None,
            train_shards=(str(shard(folder / "train.safetensors", ROWS, roles)),),
            valid_shards=(str(shard(folder / "valid.safetensors", 2, roles)),),
        )
    if method == SCORED:
        grader = json.dumps(JUDGE)
        spec = msgspec.structs.replace(spec, grader=grader, score_socket=str(forks.socket))
    return Forks(forks.server, spec, forks.socket)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, marks=pytest.mark.soak if method in LIKE_OTHERS else ())
        for method in METHODS
    ],
)
def test_resume_of_each_method_after_kills_in_a_row_gives_the_same_bytes(
    forks: Forks, tmp_path: Path, method: str
) -> None:
    of = of_method(forks, method, tmp_path)
    own = own_points(of.spec)
    stage = tuple(point for point in own if point in OF_REFERENCE)
    later = tuple(point for point in own if point not in OF_REFERENCE)
    kill_and_finish(of, tmp_path / "undisturbed", ())
    points = (
        *stage,
        "in a file of a checkpoint",
        "while a checkpoint is loaded",
        *later,
        OF_RESULT,
    )
    kill_and_finish(of, tmp_path / "killed", points)
    assert adapter(tmp_path / "killed") == adapter(tmp_path / "undisturbed")


@pytest.mark.soak
@pytest.mark.parametrize("method", METHODS)
def test_resume_of_each_method_after_a_kill_at_any_point_gives_the_same_bytes(
    forks: Forks, tmp_path: Path, method: str
) -> None:
    """Methods that train whole models wait while a checkpoint is written."""
    of = of_method(forks, method, tmp_path)
    for point in (None, *FIRST_POINTS, *own_points(of.spec)):
        out = tmp_path / (point or "undisturbed")
        kill_and_finish(of, out, () if point is None else (point,))
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
