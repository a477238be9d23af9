"""The two processes as their caller sees them: arguments, lines, exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from services.trainer.effect.evaluation import Evaluation
from services.trainer.effect.training import Training
from tests.unit.tunery.work.samples import HYPER
from tunery.ml.process import needs_bitsandbytes
from tunery.work.exits import ExitCode
from tunery.work.spec import TrainSpec, VariantsSpec

SPEC: Final = TrainSpec(
    base_dir="base", base_id="base", base_sha256="", train_shards=("rows",), out_dir="", hyper=HYPER
)

PRINTS_NOISE = """
import os, sys
from tunery.ml.process import main
from tunery.work.events import Preempted
from tunery.work.exits import ExitCode

def work(path, events, stop):
    print("noise of a library")
    os.system("echo noise of a child")
    events.emit(Preempted(step=1))
    return ExitCode.FINISHED

main("x", work)
"""
LOSES_ITS_READER = """
import os, time
from tunery.ml.process import main
from tunery.work.events import Preempted

def work(path, events, stop):
    while True:
        events.emit(Preempted(step=1))
        time.sleep(0.01)

main("x", work)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)


@pytest.mark.parametrize("module", [Training.module, Evaluation.module])
def test_without_a_spec_it_shows_usage(module: str) -> None:
    done = run("-m", module)
    assert done.returncode == ExitCode.USER
    assert f"python -m {module} SPEC.json" in done.stderr


def test_a_bad_spec_fails_before_torch_is_loaded(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"base_dir": "x", "lerning_rate": 1}')
    done = run("-X", "importtime", "-m", "tunery.ml.train", str(spec))
    failed = json.loads(done.stdout)
    assert (done.returncode, failed["type"], failed["cause"]) == (ExitCode.USER, "failed", "user")
    assert "base_id" in failed["message"] or "lerning_rate" in failed["message"]
    assert "| torch" not in done.stderr


def test_bitsandbytes_is_left_out() -> None:
    """As PEFT, transformers and accelerate ask for it."""
    code = """
from importlib.util import find_spec
from tunery.ml.process import leave_out_bitsandbytes

leave_out_bitsandbytes()
print(find_spec("bitsandbytes") is not None)
"""
    assert run("-c", code).stdout == "False\n"


@pytest.mark.parametrize(
    ("changed", "needs"),
    [
        ({}, False),
        ({"adaptation": "full", "optimizer": "muon"}, False),
        ({"adaptation": "qlora"}, True),
        ({"optimizer": "adamw_8bit"}, True),
    ],
)
def test_what_quantises_its_base_or_its_moments_needs_bitsandbytes(
    changed: dict[str, Any], needs: bool
) -> None:
    training = replace(SPEC, hyper=replace(SPEC.hyper, **changed))
    assert needs_bitsandbytes(training) is needs
    variants = VariantsSpec(training=SPEC, hypers=(SPEC.hyper, training.hyper))
    assert needs_bitsandbytes(variants) is needs


def test_only_events_reach_standard_output() -> None:
    done = run("-c", PRINTS_NOISE, "spec.json")
    assert [json.loads(line)["step"] for line in done.stdout.splitlines()] == [1]
    assert "noise of a library" in done.stderr
    assert "noise of a child" in done.stderr


def test_a_process_whose_reader_is_gone_ends() -> None:
    command = [sys.executable, "-c", LOSES_ITS_READER, "spec.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=400) == ExitCode.ORPHANED
