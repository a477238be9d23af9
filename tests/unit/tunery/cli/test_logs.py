"""`tunery logs`: the end of a log, logs that are cut or not text, and names that are unknown."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tunery.cli import logs
from tunery.cli.main import main
from tunery.local.paths import DataDir


@pytest.fixture
def folders(tmp_path: Path) -> DataDir:
    folders = DataDir(tmp_path)
    folders.create()
    return folders


def run(folders: DataDir, *words: str) -> Result:
    return CliRunner().invoke(main, ["logs", *words, "--data-dir", str(folders.root)])


@pytest.mark.parametrize(
    ("words", "first"), [([], 51), (["-n", "2"], 99), (["-n", "0"], None), (["-n", "1000"], 1)]
)
def test_the_last_lines_are_printed(words: list[str], first: int | None, folders: DataDir) -> None:
    folders.log("kafka").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    done = run(folders, "kafka", *words)
    expected = [] if first is None else [f"line {n}" for n in range(first, 101)]
    assert (done.exit_code, done.output.splitlines()) == (0, expected)


def test_bytes_that_are_no_text_end_nothing(folders: DataDir) -> None:
    folders.log("kafka").write_bytes(b"before\n\xff\xfe\nlast line without its end")
    assert run(folders, "kafka").output == "before\n\ufffd\ufffd\nlast line without its end"


def test_an_unknown_name_lists_those_that_have_a_log(folders: DataDir) -> None:
    for name in ("kafka", "gateway"):
        folders.log(name).touch()
    done = run(folders, "gatway")
    assert done.exit_code == 1
    assert "No log of `gatway`; logs exist for gateway, kafka." in done.output


def test_a_stack_that_never_ran_says_so(folders: DataDir) -> None:
    done = run(folders, "gateway")
    assert done.exit_code == 1
    assert f"{folders.logs} is empty" in done.output
    assert "fix: start the stack with `tunery up`" in done.output


def follow(
    log: Path, steps: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """What following a log prints while these things happen, one in each pause; then Ctrl-C."""
    printed: list[str] = []
    left = iter(steps)

    def pause(_: float) -> None:
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr(click, "echo", lambda text, nl: printed.append(text))
    with pytest.raises(KeyboardInterrupt):
        logs.tail(log, log.stat().st_size)
    return printed


def test_a_log_that_was_cut_is_read_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "kafka.log"
    log.write_text("old, not printed again\n")

    def append(text: str) -> None:
        with log.open("a") as file:
            file.write(text)

    steps: list[Callable[[], object]] = [
        lambda: append("one\n"),
        lambda: append("two\n"),
        lambda: log.write_text("new\n"),  # shorter than before
        log.unlink,
        lambda: log.write_text("again\n"),
    ]
    assert follow(log, steps, monkeypatch) == ["one\n", "two\n", "new\n", "again\n"]


def test_ctrl_c_ends_following_without_an_error(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.log("kafka").write_text("line\n")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    done = run(folders, "kafka", "-f")
    assert (done.exit_code, done.output) == (0, "line\n")


def event(job_id: str, at: int, **fields: object) -> str:
    return json.dumps({"event": "x", "at": f"2026-11-25T00:00:{at:02}", "job_id": job_id, **fields})


def test_lines_of_a_job_are_those_of_all_services_by_time(folders: DataDir) -> None:
    folders.log("gateway").write_text(f"{event('job-1', 1)}\n{event('job-2', 2)}\n")
    folders.log("trainer").write_text(f'job-1 is no event\n{event("job-1", 3)}\n["job-1"]\n')
    folders.log("scheduler").write_text(f"{event('job-1', 2)}\n{event('job-11', 4)}\n")
    folders.log("scheduler").with_suffix(".log.1").write_text(f"{event('job-1', 0)}\n")
    done = run(folders, "--job", "job-1")
    assert done.output.splitlines() == [event("job-1", at) for at in (0, 1, 2, 3)]
    assert run(folders, "--job", "job-1", "-n", "1").output.splitlines() == [event("job-1", 3)]
    only = run(folders, "trainer", "--job", "job-1").output.splitlines()
    assert only == [event("job-1", 3)]


def test_lines_of_a_request_may_be_asked_for(folders: DataDir) -> None:
    mine = event("job-1", 1, request_id="req_1")
    folders.log("gateway").write_text(f"{mine}\n{event('job-1', 2, request_id='req_2')}\n")
    assert run(folders, "--request", "req_1").output.splitlines() == [mine]
    both = run(folders, "--request", "req_2", "--job", "job-2")
    assert (both.exit_code, "No line with job_id job-2 and request_id req_2" in both.output) == (
        1,
        True,
    )


def test_neither_a_service_nor_a_job_is_an_error_of_usage(folders: DataDir) -> None:
    done = run(folders)
    assert (done.exit_code, "Name a service, or use --job" in done.output) == (2, True)


def test_new_lines_of_a_job_are_followed_in_all_logs(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(name: str, text: str) -> None:
        with folders.log(name).open("a") as file:
            file.write(text)

    half = event("job-1", 4)
    folders.log("gateway").touch()
    steps: list[Callable[[], object]] = [
        lambda: append("gateway", f"{event('job-1', 1)}\n{event('job-2', 2)}\n"),
        lambda: append("trainer", f"{event('job-1', 3)}\n{half[:20]}"),  # a file that is new
        lambda: append("trainer", f"{half[20:]}\n"),
    ]
    left = iter(steps)

    def pause(_: float) -> None:
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(time, "sleep", pause)
    done = run(folders, "--job", "job-1", "-f")
    assert done.output.splitlines() == [event("job-1", 1), event("job-1", 3), half]
