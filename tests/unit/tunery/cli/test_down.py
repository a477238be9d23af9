"""`tunery down`: what it says of stacks that ran, that were killed, and that never were."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tunery.cli.main import main
from tunery.local import lifecycle
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.local.state import StackPhase, StackState, StateFile

STOPPED = "The stack is stopped.\n"
LEFT = "Stopped what a killed stack had left running: kafka, s3.\n"


@pytest.mark.parametrize(
    ("was_alive", "leftovers", "shown"),
    [
        (True, [], STOPPED),
        (True, ["kafka", "s3"], STOPPED + LEFT),
        (False, ["kafka", "s3"], LEFT),
        (False, [], "No stack is running on {folder}.\n"),
    ],
)
def test_stopped_services_are_listed(
    was_alive: bool,
    leftovers: list[str],
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = DataDir(tmp_path)
    folders.create()
    if was_alive:
        StateFile(folders).enter(StackPhase.READY)

    def stop(stopped: DataDir, watch: Callable[[StackState], None]) -> list[str]:
        watch(StackState())
        assert stopped.root == tmp_path
        return leftovers

    monkeypatch.setattr(lifecycle, "down", stop)
    done = CliRunner().invoke(main, ["down", "--data-dir", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, shown.format(folder=tmp_path))
    done = CliRunner().invoke(main, ["down", "--data-dir", str(tmp_path), "--json"])
    assert json.loads(done.stdout) == {"was_running": was_alive, "leftovers": leftovers}


def test_a_stack_that_does_not_stop_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*_: object) -> list[str]:
        raise LocalError("process 7 still runs after 120 s", "`kill -9 7`")

    monkeypatch.setattr(lifecycle, "down", hang)
    done = CliRunner().invoke(main, ["down", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert "still runs" in done.stderr
    assert "kill -9 7" in done.stderr
