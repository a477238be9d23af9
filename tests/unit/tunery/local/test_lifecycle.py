"""Stacks in the background: what is started, how waiting ends, and what `down` stops."""

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tunery.local import lifecycle, processes, prometheus, state
from tunery.local.errors import LocalError
from tunery.local.kubernetes import laptop, programs
from tunery.local.paths import DataDir
from tunery.local.stack import EXPORTER, SERVICES
from tunery.local.state import StackPhase, StackState, StateFile


class Background:
    """Stands for the process of `tunery up --in-background`, whose options it keeps."""

    started: list[list[str]]
    exit_status: int | None

    def __init__(self, words: list[str], **_: object) -> None:
        Background.started.append(words)

    def poll(self) -> int | None:
        return Background.exit_status


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    folders = DataDir(tmp_path)
    folders.create()
    Background.started, Background.exit_status = [], None
    monkeypatch.setattr(subprocess, "Popen", Background)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return folders


def ready(folders: DataDir) -> list[StackState]:
    """Detach all services with the exporter; the stack is ready when it is looked at again."""
    seen: list[StackState] = []

    def watch(now: StackState) -> None:
        seen.append(now)
        StateFile(folders).enter(StackPhase.READY)

    lifecycle.detach(folders.root, (*SERVICES, EXPORTER), watch)
    return seen


def options() -> list[str]:
    """What the background process was started with, after its folder."""
    (words,) = Background.started
    assert words[1:4] == ["-m", "tunery.cli.main", "up"]
    assert words[-1] == "--in-background"
    return words[6:-1]


def test_starting_a_stack_waits_until_its_state_is_ready(folders: DataDir) -> None:
    StateFile(folders).enter(StackPhase.READY)  # of a run before this one: it says nothing
    seen = ready(folders)
    assert [now.phase for now in seen] == [StackPhase.STOPPED, StackPhase.READY]


@pytest.mark.parametrize(
    ("services", "words"),
    [
        (("gateway", "eval"), ["--service", "gateway", "--service", "eval"]),
        ((), ["--no-services"]),
        (("gateway", EXPORTER), ["--service", "gateway", "--exports"]),
        ((EXPORTER,), ["--no-services", "--exports"]),
    ],
)
def test_the_background_gets_options_that_up_understands(
    services: tuple[str, ...], words: list[str], folders: DataDir
) -> None:
    Background.exit_status = 1
    with pytest.raises(LocalError):
        lifecycle.detach(folders.root, services, lambda _: None)
    assert options() == words


def test_a_background_stack_gets_the_option_observe(folders: DataDir) -> None:
    Background.exit_status = 1
    with pytest.raises(LocalError):
        lifecycle.detach(folders.root, (EXPORTER,), lambda _: None, observe=True)
    assert options() == ["--no-services", "--exports", "--observe"]


def test_a_background_stack_trains_in_pods_once_the_cluster_is_built(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    Background.exit_status = 1
    built: list[bool] = []
    monkeypatch.setattr(laptop, "install", lambda: built.append(True))
    with pytest.raises(LocalError):
        lifecycle.detach(folders.root, (EXPORTER,), lambda _: None, kubernetes=True)
    assert options() == ["--no-services", "--exports", "--kubernetes"]
    assert built == [True]


async def test_a_cluster_that_cannot_be_built_ends_the_start_with_its_fix(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(programs, "go_binary", lambda: None)
    monkeypatch.setenv("TUNERY_CACHE_DIR", str(folders.root / "cache"))
    with pytest.raises(LocalError, match="no Go to build"):
        await lifecycle.run_until_stopped(
            folders.root, (), lambda _: None, lambda _: None, kubernetes=True
        )
    assert state.read(folders).phase is StackPhase.FAILED


async def test_a_prometheus_that_cannot_be_had_ends_the_start_with_its_fix(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Path:
        raise LocalError("no Prometheus", "install it")

    monkeypatch.setattr(prometheus, "install", fail)
    with pytest.raises(LocalError, match="no Prometheus"):
        await lifecycle.run_until_stopped(
            folders.root, (), lambda _: None, lambda _: None, observe=True
        )
    now = state.read(folders)
    assert (now.phase, "install it" in now.failure) == (StackPhase.FAILED, True)
    assert now.children == {}


def test_a_stack_that_ends_early_says_why(folders: DataDir) -> None:
    def fail(_: StackState) -> None:  # after the state was read, before the process is looked at
        StateFile(folders).enter(StackPhase.FAILED, "port 9092 is in use\n  fix: free it")
        Background.exit_status = 1

    with pytest.raises(LocalError) as raised:
        lifecycle.detach(folders.root, SERVICES, fail)
    assert raised.value.what == "port 9092 is in use"
    assert str(folders.log("supervisor")) in raised.value.fix


def test_a_stack_that_ends_without_a_word_names_its_log(folders: DataDir) -> None:
    Background.exit_status = 1
    with pytest.raises(LocalError, match="the stack ended before it was ready") as raised:
        lifecycle.detach(folders.root, SERVICES, lambda _: None)
    assert str(folders.log("supervisor")) in raised.value.fix


def test_waiting_for_a_hanging_stack_times_out(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "DETACH_MS_MAX", 0)
    with pytest.raises(LocalError, match="not ready after 0 s") as raised:
        lifecycle.detach(folders.root, SERVICES, lambda _: None)
    assert "`tunery down` stops it" in raised.value.fix


def test_down_ends_the_supervisor_and_names_what_it_left(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    StateFile(folders).enter(StackPhase.READY)
    sent: list[signal.Signals] = []
    alive = iter((True, True, True, False))
    monkeypatch.setattr(processes.ProcessRecord, "is_alive", lambda _: next(alive))
    monkeypatch.setattr(processes, "send", lambda _, number: sent.append(number))
    monkeypatch.setattr(processes, "stop_orphans", lambda _, names: [names[0]])
    seen: list[StackState] = []
    assert lifecycle.down(folders, seen.append) == [SERVICES[0]]
    assert (sent, len(seen)) == ([signal.SIGTERM], 2)


def test_a_supervisor_that_does_not_end_is_named(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StateFile(folders)
    monkeypatch.setattr(processes.ProcessRecord, "is_alive", lambda _: True)
    monkeypatch.setattr(processes, "send", lambda *_: None)
    monkeypatch.setattr(lifecycle, "DOWN_MS_MAX", 0)
    assert file.state.supervisor is not None
    with pytest.raises(LocalError, match="still runs") as raised:
        lifecycle.down(folders, lambda _: None)
    assert f"kill -9 {file.state.supervisor.pid}" in raised.value.fix


def test_down_on_a_folder_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    assert lifecycle.down(DataDir(tmp_path / "none"), lambda _: None) == []
    assert not (tmp_path / "none").exists()


async def test_signals_are_left_as_they_were() -> None:
    with lifecycle.stop_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        await stop.wait()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
