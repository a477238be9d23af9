"""Who starts ranks by itself: what it passes on, how it ends. The ranks here are shells."""

import asyncio
import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.tunery.ranks.test_group import FAILED, LOST, PREEMPTED, STEP, says, shells
from tunery.ml.events import EventWriter
from tunery.ml.rank_processes import environment_of_rank, follow
from tunery.work.exits import ExitCode, WorkError


def follow_shells(
    *scripts: str, stop: Callable[[], bool] = lambda: False
) -> tuple[ExitCode, list[str]]:
    """The exit code, and the types of the events that were passed on."""
    stream = io.BytesIO()

    async def run() -> ExitCode:
        return await follow(await shells(*scripts), EventWriter(stream, time.monotonic()), stop)

    code = asyncio.run(run())
    return code, [json.loads(line)["type"] for line in stream.getvalue().splitlines()]


def test_events_are_passed_on_and_the_code_is_that_of_the_end() -> None:
    ranks = (f"{says(STEP, PREEMPTED)}; exit 75", "exit 75")
    assert follow_shells(*ranks) == (ExitCode.PREEMPTED, ["step", "preempted"])
    ranks = (f"{says(FAILED)}; exit 65", LOST)
    assert follow_shells(*ranks) == (ExitCode.BAD_DATA, ["failed"])


def test_a_rank_that_was_killed_is_named() -> None:
    with pytest.raises(WorkError, match=r"rank 1 of 2 .* SIGKILL after step 7") as caught:
        follow_shells(LOST, f"{says(STEP)}; kill -9 $$")
    assert caught.value.cause == "platform"


def test_a_request_to_stop_reaches_all_ranks(tmp_path: Path) -> None:
    """It comes once both listen to signals."""
    files = [tmp_path / "0", tmp_path / "1"]
    scripts = [f"trap 'exit 75' TERM; : > {file}; while :; do sleep 0.01; done" for file in files]
    code, _ = follow_shells(*scripts, stop=lambda: all(file.exists() for file in files))
    assert code == ExitCode.PREEMPTED


@pytest.mark.parametrize("device", ["", "GPU-1"])
def test_ranks_know_nothing_of_other_launchers_and_of_one_device_at_most(device: str) -> None:
    environment = {"PATH": "/bin", "RANK": "3", "MASTER_ADDR": "10.0.0.1", "NCCL_DEBUG": "INFO"}
    assert environment_of_rank(environment | {"CUDA_VISIBLE_DEVICES": "0,1"}, device) == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": device,
    }
