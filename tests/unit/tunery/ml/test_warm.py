"""The process that waits: it leaves with its agent, and becomes what its order names."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tunery.work.exits import ExitCode
from tunery.work.warm import BEGUN, Order, WarmModule, encode_order

pytestmark = pytest.mark.train
COMMAND = (sys.executable, "-m", "tunery.ml.warm")
RUN_S_MAX = 560  # it imports torch: 10 s on an idle machine


@contextmanager
def waiting(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder) as process:
        yield process
        process.kill()


def order(module: WarmModule, folder: Path) -> bytes:
    spec = str(folder / "spec.json")
    return encode_order(Order(module=module, spec=spec, folder=str(folder)))


@pytest.mark.parametrize(
    "module", ["tunery.ml.train", pytest.param("tunery.ml.score", marks=pytest.mark.soak)]
)
def test_it_becomes_the_process_that_the_order_names(module: WarmModule, tmp_path: Path) -> None:
    """Its events and its exit code are that process's; it works where the order says."""
    (tmp_path / "spec.json").write_text('{"base_dir": 1}')
    (lease := tmp_path / "lease").mkdir()
    (lease / "spec.json").write_text('{"base_dir": "x", "lerning_rate": 1}')
    with waiting(tmp_path) as process:
        said, _ = process.communicate(order(module, lease), timeout=RUN_S_MAX)
    begun, failed = said.splitlines(keepends=True)
    assert begun == BEGUN
    assert (process.returncode, json.loads(failed)["cause"]) == (ExitCode.USER, "user")
    assert str(lease / "spec.json") in json.loads(failed)["message"]
    assert json.loads(failed)["elapsed_ms"] < 1_000, "counted from when it began"


def test_a_place_that_is_gone_ends_it_before_it_has_begun(tmp_path: Path) -> None:
    """Its agent starts a fresh process then, whose failure says what is wrong."""
    with waiting(tmp_path) as process:
        said, errors = process.communicate(order("tunery.ml.train", tmp_path / "gone"), 120)
    assert process.returncode not in (ExitCode.FINISHED, ExitCode.PREEMPTED)
    assert said == b""
    assert b"FileNotFoundError" in errors


def test_it_leaves_when_its_agent_is_gone_or_tells_it_to(tmp_path: Path) -> None:
    with waiting(tmp_path) as alone, waiting(tmp_path) as signalled:
        assert alone.stdin is not None
        alone.stdin.close()
        os.kill(signalled.pid, signal.SIGTERM)
        assert signalled.wait(400) == -signal.SIGTERM
        assert alone.wait(400) == ExitCode.ORPHANED
