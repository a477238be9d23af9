"""The two processes as their caller sees them: arguments, lines, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tunery.ml.events import EXIT_ORPHANED, EXIT_USER

SAYS_MUCH = """
import os, sys
from tunery.ml.process import main

def work(path, events, stop):
    print("noise of a library")
    os.system("echo noise of a child")
    events.emit("step", step=1)
    return 0

main("x", work)
"""
LOSES_ITS_READER = """
import os, time
from tunery.ml.process import main

def work(path, events, stop):
    while True:
        events.emit("step", step=1)
        time.sleep(0.01)

main("x", work)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("module", ["tunery.ml.train", "tunery.ml.score"])
def test_without_a_spec_it_shows_usage(module: str) -> None:
    done = run("-m", module)
    assert done.returncode == EXIT_USER
    assert f"python -m {module} SPEC.json" in done.stderr


def test_a_bad_spec_fails_before_torch_is_loaded(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"base_dir": "x", "lerning_rate": 1}')
    done = run("-X", "importtime", "-m", "tunery.ml.train", str(spec))
    failed = json.loads(done.stdout)
    assert (done.returncode, failed["type"], failed["cause"]) == (EXIT_USER, "failed", "user")
    assert "base_id" in failed["message"] or "lerning_rate" in failed["message"]
    assert "| torch" not in done.stderr


def test_only_events_reach_standard_output() -> None:
    done = run("-c", SAYS_MUCH, "spec.json")
    assert [json.loads(line)["step"] for line in done.stdout.splitlines()] == [1]
    assert "noise of a library" in done.stderr
    assert "noise of a child" in done.stderr


def test_a_process_nobody_listens_to_ends() -> None:
    command = [sys.executable, "-c", LOSES_ITS_READER, "spec.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=20) == EXIT_ORPHANED
