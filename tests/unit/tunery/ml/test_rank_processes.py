"""The parent of ranks: what it passes on, whom it names.

The ranks here are shells; real ones are in `test_ranks`.
"""

import io
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tunery.ml import rank_processes
from tunery.ml.events import EventWriter
from tunery.ml.rank_processes import RankProcess, environment_of_ranks, follow
from tunery.work.codec import encode_event
from tunery.work.events import Failed, Noted, Preempted, StepCompleted
from tunery.work.exits import ExitCode, WorkError

STEP = StepCompleted(
    step=7, total_steps=9, epoch=1.0, loss=2.0, grad_norm=1.0, learning_rate=0.1,
    mean_token_accuracy=None, tokens=1, tokens_total=2,
)  # fmt: skip
NOTED, PREEMPTED = Noted(step=7, message="x"), Preempted(step=7)
FAILED = Failed(cause="bad_data", message="row 3 is broken", advice="Mend it.")
LOST = f"exit {ExitCode.RANK_LOST}"
NEVER_ENDS = "exec sleep 60"


def says(*events: StepCompleted | Noted | Preempted | Failed) -> str:
    return "; ".join(f"echo '{encode_event(event, 5).decode()}'" for event in events)


def follow_shells(
    *scripts: str, stop: Callable[[], bool] = lambda: False
) -> tuple[ExitCode, list[str]]:
    """The exit code, and the types of the events that were passed on."""
    ranks = [
        RankProcess(number, subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE))
        for number, script in enumerate(scripts)
    ]
    stream = io.BytesIO()
    try:
        code = follow(ranks, EventWriter(stream, time.monotonic()), stop)
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.communicate()
    return code, [json.loads(line)["type"] for line in stream.getvalue().splitlines()]


def test_events_of_the_first_rank_are_passed_on() -> None:
    code, kinds = follow_shells(
        f"{says(STEP, PREEMPTED)}; exit 75", f"{says(NOTED, PREEMPTED)}; exit 75"
    )
    assert (code, kinds) == (ExitCode.PREEMPTED, ["step", "preempted"])


def test_a_line_that_was_cut_off_is_left_out() -> None:
    code, kinds = follow_shells(f"{says(STEP)}; printf '{{\"type\":'; exit 0")
    assert (code, kinds) == (ExitCode.FINISHED, ["step"])


@pytest.mark.parametrize(
    ("scripts", "cause", "named"),
    [
        ((LOST, f"{says(STEP)}; kill -9 $$"), "platform", r"rank 1 of 2 .* SIGKILL after step 7"),
        ((f"{says(FAILED)}; exit 65", LOST), "bad_data", "rank 0 of 2: row 3 is broken"),
        ((LOST, f"{says(FAILED)}; exit 65"), "bad_data", "rank 1 of 2: row 3 is broken"),
        ((f"{says(FAILED)}; exit 70", "kill -9 $$"), "platform", "rank 1 of 2 .* was killed"),
        ((LOST, "exit 1", LOST), "platform", "rank 1 of 3 .* left with exit code 1 after step 0"),
    ],
)
def test_the_rank_that_ended_the_others_is_named(
    scripts: tuple[str, ...], cause: str, named: str
) -> None:
    with pytest.raises(WorkError, match=named) as caught:
        follow_shells(*scripts)
    assert caught.value.cause == cause


def test_what_does_not_end_by_itself_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that stands still is why the others have waited too long, unless one has died."""
    monkeypatch.setattr(rank_processes, "GRACE_S", 0.1)
    with pytest.raises(WorkError, match=r"rank 1 of 2 .* did not answer"):
        follow_shells(LOST, NEVER_ENDS)
    monkeypatch.setattr(rank_processes, "GRACE_S", 2.0)
    with pytest.raises(WorkError, match=r"rank 1 of 3 .* left with exit code 3"):
        follow_shells(LOST, "exit 3", NEVER_ENDS)


def test_a_request_to_stop_reaches_all_ranks(tmp_path: Path) -> None:
    """It comes once both listen to signals."""
    files = [tmp_path / "0", tmp_path / "1"]
    scripts = [f"trap 'exit 75' TERM; : > {file}; while :; do sleep 0.01; done" for file in files]
    code, _ = follow_shells(*scripts, stop=lambda: all(file.exists() for file in files))
    assert code == ExitCode.PREEMPTED


def test_ranks_know_nothing_of_other_launchers() -> None:
    environment = {"PATH": "/bin", "RANK": "3", "MASTER_ADDR": "10.0.0.1", "NCCL_DEBUG": "INFO"}
    assert environment_of_ranks(environment | {"CUDA_VISIBLE_DEVICES": "0,1"}) == {
        "PATH": "/bin",
        "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "",
    }
