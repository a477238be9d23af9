"""`tunery status`: what it says of stacks that run, were stopped, failed or were killed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tunery.cli.main import main
from tunery.cli.status import NOT_READY
from tunery.local import ports, state
from tunery.local.events import Changed, Notice, Phase
from tunery.local.paths import DataDir
from tunery.local.state import StackPhase, StateFile


@pytest.fixture
def folders(tmp_path: Path) -> DataDir:
    folders = DataDir(tmp_path)
    folders.create()
    return folders


def run(folders: DataDir, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["status", "--data-dir", str(folders.root), *words])
    return done.exit_code, done.output


def kill(folders: DataDir) -> None:
    """The supervisor is gone, as after a power cut: no process has its id."""
    content = json.loads(state.path(folders).read_text())
    content["supervisor"]["boot_id"] = "the boot before this one"
    state.path(folders).write_text(json.dumps(content))


def test_a_ready_stack_is_success_and_names_its_address(folders: DataDir) -> None:
    chosen = ports.assign(folders.ports, lambda _: None, ports.ANY)
    file = StateFile(folders)
    file.record(Changed("kafka", Phase.READY, pid=7, address="127.0.0.1:9"))
    file.record(Notice("port [bold] is taken"))
    file.enter(StackPhase.READY)
    exit_code, shown = run(folders)
    assert exit_code == 0
    assert f"http://127.0.0.1:{chosen['gateway']}" in shown
    assert "kafka" in shown
    assert "port [bold] is taken" in shown, "a note is no markup"
    answer = json.loads(run(folders, "--json")[1])
    assert answer["children"]["kafka"]["address"] == "127.0.0.1:9"
    assert (answer["running"], answer["state"], answer["failure"]) == (True, "ready", "")


@pytest.mark.parametrize("phase", [StackPhase.STARTING, StackPhase.STOPPING])
def test_a_stack_that_runs_and_is_not_ready_is_no_success(
    phase: StackPhase, folders: DataDir
) -> None:
    StateFile(folders).enter(phase)
    exit_code, shown = run(folders, "--json")
    assert (exit_code, json.loads(shown)["state"]) == (NOT_READY, phase)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (StackPhase.STOPPED, "is not running"),
        (StackPhase.FAILED, "could not start"),
        (StackPhase.READY, "was killed"),
        (StackPhase.STARTING, "was killed"),
    ],
)
def test_a_stack_that_does_not_run_says_how_it_ended(
    phase: StackPhase, words: str, folders: DataDir
) -> None:
    file = StateFile(folders)
    file.record(Changed("kafka", Phase.READY, pid=7))
    file.enter(phase, "port [kafka] is in use" if phase is StackPhase.FAILED else "")
    kill(folders)
    exit_code, shown = run(folders)
    assert (exit_code, words in shown) == (NOT_READY, True)
    assert ("port [kafka] is in use" in shown) == (phase is StackPhase.FAILED)
    answer = json.loads(run(folders, "--json")[1])
    assert (answer["running"], answer["state"]) == (False, "stopped")
    assert answer["children"] == {}, "processes of a stack that is gone are not shown as running"
    assert answer["api_url"] is None


def test_a_folder_without_a_stack_is_not_running(tmp_path: Path) -> None:
    exit_code, shown = run(DataDir(tmp_path / "none"))
    assert (exit_code, "is not running" in shown) == (NOT_READY, True)
