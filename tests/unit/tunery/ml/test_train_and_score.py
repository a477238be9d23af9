"""A training and the evaluation of its job in one process: to the bit what two processes do."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tunery.work.codec import encode_spec
from tunery.work.exits import ExitCode
from tunery.work.orders import BEGUN, ENDED, Order, encode_order
from tunery.work.spec import ScoreSpec, TrainSpec

pytestmark = pytest.mark.train
# With fewer seconds to wait, and what is left of a training at its end.
PROGRAM: Final = """
import gc, sys
from functools import partial
from tunery.ml import train_and_score as program
from tunery.ml.process import main

read = program.read_order
def noted(wait_s):
    import torch
    from tunery.ml.adamw import AdapterAdamW
    every = gc.get_objects()
    optimizers = [each for each in every if isinstance(each, AdapterAdamW)]
    trained = [each for each in every if isinstance(each, torch.Tensor) and each.requires_grad]
    print("alive", len(optimizers), len(trained), file=sys.stderr, flush=True)
    return read({wait_s})
program.read_order = noted
main("x", partial(program.train_and_score, alone=True))
"""


@pytest.fixture
def evaluation(spec: TrainSpec, tmp_path: Path) -> ScoreSpec:
    (items := tmp_path / "items.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "id": f"i{n}",
                    "question": f"Which is thing {n}?",
                    "choices": [f"thing {n}", "a lamp", "the long grey harbour wall"],
                    "answer_index": 0,
                    "category": "things",
                }
            )
            + "\n"
            for n in range(4)
        )
    )
    (rows := tmp_path / "validation.jsonl").write_text(
        '{"row": 1, "prompt_ids": [5, 6], "reference": "three"}\n' * 3
    )
    return ScoreSpec(
        base_dir=spec.base_dir,
        base_sha256=spec.base_sha256,
        adapter_dir=str(tmp_path / "out" / "adapter"),
        out=str(tmp_path / "scores.json"),
        items=str(items),
        valid_shards=spec.train_shards,
        valid_rows=str(rows),
        prompts=("Who are you?",),
        precision="fp32",
        threads=1,
        generated_max=3,
        new_tokens_max=4,
        answer_tokens_max=4,
    )


@contextmanager
def started(
    spec: TrainSpec, folder: Path, wait_s: float = 400
) -> Iterator[subprocess.Popen[bytes]]:
    (path := folder / "spec.json").write_bytes(encode_spec(spec))
    pipe = subprocess.PIPE
    command = (sys.executable, "-c", PROGRAM.replace("{wait_s}", str(wait_s)), str(path))
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, start_new_session=True
    ) as process:
        yield process
        process.kill()


def until_ended(process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """Its events until it says that the training has ended."""
    assert process.stdout is not None
    events = []
    for line in iter(process.stdout.readline, ENDED):
        assert line, "it left"
        events.append(json.loads(line))
    return events


def test_first_hour2_u14_scores_and_weights_are_those_of_two_processes(
    spec: TrainSpec, evaluation: ScoreSpec, tmp_path: Path
) -> None:
    spec = replace(spec, out_dir=str(tmp_path / "out"), threads=1, precision="fp32")
    (lease := tmp_path / "lease").mkdir()
    (lease / "spec.json").write_bytes(encode_spec(evaluation))
    order = Order(spec=str(lease / "spec.json"), folder=str(lease))
    with started(spec, tmp_path) as process:
        (finished,) = [each for each in until_ended(process) if each["type"] == "finished"]
        said, errors = process.communicate(encode_order(order), timeout=500)
    assert process.returncode == ExitCode.FINISHED, errors
    begun, *lines = said.splitlines(keepends=True)
    events = [json.loads(line) for line in lines]
    assert begun == BEGUN
    assert [events[0]["type"], events[-1]["type"]] == ["scoring_started", "scoring_finished"]
    assert events[0]["elapsed_ms"] < finished["elapsed_ms"], "counted from when it began"
    assert b"alive 0 0\n" in errors, "optimizer and trained weights are freed before"
    together = Path(evaluation.out).read_bytes()
    assert json.loads(together)["items"]

    alone = replace(spec, out_dir=str(tmp_path / "alone"))
    (path := tmp_path / "alone.json").write_bytes(encode_spec(alone))
    run("tunery.ml.train", path)
    names = sorted(each.name for each in Path(evaluation.adapter_dir).iterdir())
    for name in names:
        own, other = (Path(each.out_dir) / "adapter" / name for each in (spec, alone))
        assert own.read_bytes() == other.read_bytes(), name
    run("tunery.ml.score", lease / "spec.json")
    assert Path(evaluation.out).read_bytes() == together


def run(module: str, path: Path) -> None:
    done = subprocess.run(
        (sys.executable, "-m", module, str(path)),
        capture_output=True,
        check=False,
        timeout=500,
        start_new_session=True,  # beside others of a session it would get no processor
    )
    assert done.returncode == ExitCode.FINISHED, done.stderr


@pytest.mark.parametrize("how", ["no order comes", "its agent is gone"])
def test_first_hour2_u14_it_leaves_where_no_evaluation_comes(
    how: str, spec: TrainSpec, tmp_path: Path
) -> None:
    spec = replace(spec, out_dir=str(tmp_path / "out"), threads=1)
    with started(spec, tmp_path, wait_s=0.5 if how == "no order comes" else 600) as process:
        until_ended(process)
        assert process.stdin is not None
        if how == "its agent is gone":
            process.stdin.close()
        assert process.wait(400) == ExitCode.FINISHED


def test_first_hour2_u14_a_training_that_fails_waits_for_nothing(
    spec: TrainSpec, tmp_path: Path
) -> None:
    wrong = replace(spec, base_sha256="0" * 64, threads=1)
    with started(wrong, tmp_path) as process:
        assert process.wait(400) == ExitCode.BAD_NODE
        assert process.stdout is not None
        assert ENDED not in process.stdout.read()


READS: Final = """
import os, tempfile
from tunery.ml.train_and_score import become, read_order
first = read_order()
if first is None:
    print("gone")
    raise SystemExit
become(first)
print(os.getcwd(), os.environ["TMPDIR"], tempfile.gettempdir())
print(read_order(60))
"""


def said(lines: bytes, folder: Path) -> str:
    done = subprocess.run(
        (sys.executable, "-c", READS),
        input=lines,
        env={"TMPDIR": str(folder / "before" / "tmp"), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
        timeout=400,
    )
    return done.stdout.decode()


def test_without_its_agent_there_is_no_order(tmp_path: Path) -> None:
    assert said(b"", tmp_path) == "gone\n"


def test_it_works_in_the_folder_that_the_order_names(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    order = encode_order(Order(spec="spec.json", folder=str(tmp_path)))
    assert said(order, tmp_path) == f"{tmp_path} {tmp_path / 'tmp'} {tmp_path / 'tmp'}\nNone\n"
