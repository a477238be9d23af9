"""Training processes that are killed and resumed end with the same bytes as undisturbed ones.

    python -m pytest tests/e2e -k resume

A tiny model with the real tokenizer, fp32, dropout on. Compared are bytes.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import save_file

from services.trainer.adapters.forks import WorkForks
from services.trainer.adapters.processes import MARK, ProcessGroups
from services.trainer.effect.environment import environment_on
from tests.bases import tiny_base
from tunery.work.exits import ExitCode

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]  # lowest priority: it may be slow

ROWS, EPOCHS, ROWS_PER_STEP = 40, 2, 2
STEPS = ROWS // ROWS_PER_STEP * EPOCHS
CHECKPOINT_EVERY = 3
KILLS = 3
PROMPT, ITEM = 5, b'{"word": "eeeeeeee"}'
RUN_S_MAX = 600  # a shared machine may be slow; alone it takes about 10 s

Event = dict[str, Any]


class Run(NamedTuple):
    code: int
    events: list[Event]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["type"] == kind]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The training spec of every attempt here; only `out_dir` and `resume` differ."""
    folder = tmp_path_factory.mktemp("resume")
    tiny = tiny_base()
    return {
        "base_dir": str(tiny.dir),
        "base_id": "tiny-llama",
        "base_sha256": tiny.sha256,
        "train_shards": [str(shard(folder / "train.safetensors", ROWS))],
        "valid_shards": [str(shard(folder / "valid.safetensors", 3))],
        "hyper": {
            "n_epochs": EPOCHS,
            "batch_size": 1,
            "accumulation": ROWS_PER_STEP,
            "learning_rate": 0.01,
            "rank": 16,
            "alpha": 32,
            "dropout": 0.1,
            "max_length": 128,
            "warmup": 0.05,
            "weight_decay": 0.0,
            "seed": 42,
        },
        "precision": "fp32",
        "threads": 1,
        "checkpoint_every_steps": CHECKPOINT_EVERY,
    }


def shard(path: Path, rows: int, roles: tuple[int, ...] = ()) -> Path:
    """Packed rows of three documents each, of 20 to 36 tokens, their second halves labelled.

    roles: of the documents of a row, which is as many, where they are answers to compare, or
      prompts: then each has an item for its grader
    """
    per_row = len(roles) or 3
    lengths = [20 + (7 * number) % 17 for number in range(per_row * rows)]
    ids = [
        50 + (13 * at + 5 * n) % 3000 for n, length in enumerate(lengths) for at in range(length)
    ]
    mask = [int(2 * at >= length) for length in lengths for at in range(length)]
    tensors = {
        "input_ids": torch.tensor(ids, dtype=torch.int32),
        "loss_mask": torch.tensor(mask, dtype=torch.uint8),
        "seq_lengths": torch.tensor(lengths, dtype=torch.int32),
        "row_lengths": torch.full((rows,), per_row, dtype=torch.int32),
    }
    if roles:
        tensors["seq_roles"] = torch.tensor(roles * rows, dtype=torch.uint8)
    if PROMPT in roles:
        ends = [at == length - 1 for length in lengths for at in range(length)]
        tensors["loss_mask"] = torch.tensor(ends, dtype=torch.uint8)
        tensors["item_lengths"] = torch.full((len(lengths),), len(ITEM), dtype=torch.int32)
        tensors["item_bytes"] = torch.tensor(list(ITEM * len(lengths)), dtype=torch.uint8)
    save_file(tensors, path)
    return path


@contextmanager
def training(spec: dict[str, Any], out: Path, resume: list[Event]) -> Iterator[Any]:
    """Start a training process that is killed at the end of the block; its stdout is a pipe."""
    candidates = [
        {key: checkpoint[key] for key in ("dir", "manifest_sha256")} for checkpoint in resume
    ]
    out.mkdir(parents=True, exist_ok=True)
    path = out / "spec.json"
    path.write_text(json.dumps({**spec, "out_dir": str(out / "ck"), "resume": candidates}))
    command = [sys.executable, "-m", "tunery.ml.train", str(path)]
    with (out / "stderr").open("a") as errors:
        # A session of its own, as an agent's: the kernel gives sessions equal shares of the
        # processor, and at its low priority it would get none beside others of our session.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    watchdog = threading.Timer(RUN_S_MAX, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def attempt(
    spec: dict[str, Any],
    out: Path,
    resume: list[Event] | None = None,
    *,
    at_step: int | None = None,
    deliver: signal.Signals = signal.SIGKILL,
) -> Run:
    """Run to the end, or send a signal once the step is reported; returns the run."""
    events: list[Event] = []
    with training(spec, out, resume or []) as process:
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["type"] == "step" and events[-1]["step"] == at_step:
                os.kill(process.pid, deliver)
        return Run(process.wait(), events)


def adapter(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((out / "ck" / "adapter").iterdir())}


@pytest.fixture(scope="module")
def uninterrupted(spec: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted")
    run = attempt(spec, out)
    assert run.code == ExitCode.FINISHED
    assert run.events[-1]["steps"] == STEPS
    return out


def newest_first(run: Run) -> list[Event]:
    """Reported checkpoints whose folders still exist, newest first."""
    return [
        checkpoint
        for checkpoint in reversed(run.of("checkpoint"))
        if Path(checkpoint["dir"]).is_dir()
    ]


@pytest.mark.soak  # test_crash_points kills one training at several points in a row
def test_resume_after_three_kills_gives_the_same_bytes(
    spec: dict[str, Any], uninterrupted: Path, tmp_path: Path
) -> None:
    """kill -9 at three random steps of one run; each time it resumes from the last checkpoint."""
    seed = random.SystemRandom().randrange(2**32)
    steps = sorted(random.Random(seed).sample(range(CHECKPOINT_EVERY, STEPS), KILLS))
    print(f"killed at steps {steps} (seed {seed})")
    known: list[Event] = []
    for step in steps:
        run = attempt(spec, tmp_path, known[:3], at_step=step)
        assert run.code == -signal.SIGKILL
        expected = known[0]["step"] if known else 0
        assert run.events[0]["resumed_from_step"] == expected
        known = newest_first(run) + [
            checkpoint for checkpoint in known if Path(checkpoint["dir"]).is_dir()
        ]
    last = attempt(spec, tmp_path, known[:3])
    assert last.code == ExitCode.FINISHED
    behind = 2 * CHECKPOINT_EVERY  # the last one may be taken and not written
    assert last.events[0]["resumed_from_step"] >= steps[-1] - behind
    assert adapter(tmp_path) == adapter(uninterrupted)
    assert not list((tmp_path / "ck").glob("tmp-*"))


async def test_resume_a_fork_trains_the_same_bytes_and_resumes_those_of_a_killed_one(
    spec: dict[str, Any], uninterrupted: Path, tmp_path: Path
) -> None:
    killed = attempt(spec, tmp_path, at_step=CHECKPOINT_EVERY + 2)
    environment = environment_on(())
    forks = WorkForks(environment, tmp_path / "forks", {MARK: str(tmp_path)})
    groups = ProcessGroups(str(tmp_path), forks=forks)
    for resume in ([], newest_first(killed)):
        out = tmp_path / str(len(resume))
        out.mkdir()
        candidates = [
            {key: checkpoint[key] for key in ("dir", "manifest_sha256")} for checkpoint in resume
        ]
        path = out / "spec.json"
        path.write_text(json.dumps({**spec, "out_dir": str(out / "ck"), "resume": candidates}))
        command = (sys.executable, "-m", "tunery.ml.train", str(path))
        process = await groups.start(command, environment, out)
        events = [json.loads(line) async for line in process.lines()]
        assert await process.wait() == ExitCode.FINISHED
        assert events[0]["resumed_from_step"] == (resume[0]["step"] if resume else 0)
        assert adapter(out) == adapter(uninterrupted)
    assert forks.server_pid is not None
    await groups.sweep()


@pytest.mark.soak  # test_crash_points kills trainings of each
@pytest.mark.parametrize(
    "changed",
    [
        {"adaptation": "qlora"},
        {"adaptation": "full"},
        # test_optimizers.py resumes them without a kill
        pytest.param({"optimizer": "adamw_8bit"}, marks=pytest.mark.soak),
        pytest.param({"optimizer": "muon", "adaptation": "full"}, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_resume_after_a_kill_gives_the_same_bytes_however_it_is_adapted(
    spec: dict[str, Any], tmp_path: Path, changed: dict[str, str]
) -> None:
    """QLoRA: a process that quantises the base again has the same weights."""
    hyper = {**spec["hyper"], **changed, "max_steps": 2 * CHECKPOINT_EVERY + 2}
    spec = {**spec, "hyper": hyper}
    assert attempt(spec, tmp_path / "whole").code == ExitCode.FINISHED
    killed = attempt(spec, tmp_path / "killed", at_step=CHECKPOINT_EVERY + 1)
    assert killed.code == -signal.SIGKILL
    rest = attempt(spec, tmp_path / "killed", newest_first(killed))
    assert rest.events[0]["resumed_from_step"] >= CHECKPOINT_EVERY
    assert adapter(tmp_path / "killed") == adapter(tmp_path / "whole")


def test_resume_after_a_notice_loses_no_step(
    spec: dict[str, Any], uninterrupted: Path, tmp_path: Path
) -> None:
    step = 5  # no multiple of the checkpoint interval
    stopped = attempt(spec, tmp_path, at_step=step, deliver=signal.SIGTERM)
    assert stopped.code == ExitCode.PREEMPTED
    saved = stopped.of("checkpoint")[-1]
    assert stopped.events[-1]["type"] == "preempted"
    assert saved["step"] == stopped.of("step")[-1]["step"] >= step
    rest = attempt(spec, tmp_path, [saved])
    assert rest.code == ExitCode.FINISHED
    assert [event["step"] for event in rest.of("step")] == list(range(saved["step"] + 1, STEPS + 1))
    assert adapter(tmp_path) == adapter(uninterrupted)


@pytest.mark.soak  # test_bad_days damages one on a whole stack
def test_resume_skips_a_damaged_checkpoint_and_uses_the_older(
    spec: dict[str, Any], uninterrupted: Path, tmp_path: Path
) -> None:
    killed = attempt(spec, tmp_path, at_step=3 * CHECKPOINT_EVERY + 1)
    newest, older = newest_first(killed)[:2]
    path = Path(newest["dir"]) / "adapter_model.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    resumed = attempt(spec, tmp_path, [newest, older])
    started = resumed.events[0]
    assert started["resumed_from_step"] == older["step"]
    assert [
        (checkpoint["manifest_sha256"], checkpoint["reason"]) for checkpoint in started["skipped"]
    ] == [(newest["manifest_sha256"], "adapter_model.safetensors does not match its SHA-256")]
    assert adapter(tmp_path) == adapter(uninterrupted)


@pytest.mark.soak  # test_causes fills a disk, and another node goes on
def test_resume_after_a_full_disk_gives_the_same_bytes(
    spec: dict[str, Any], uninterrupted: Path, tmp_path: Path
) -> None:
    """From the first checkpoint on RLIMIT_FSIZE makes every write fail, as on a full disk."""
    events: list[Event] = []
    with training(spec, tmp_path, []) as process:
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["type"] == "checkpoint":
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, 1))
        run = Run(process.wait(), events)
    assert run.code == ExitCode.PLATFORM
    assert run.events[-1]["type"] == "failed"
    assert run.events[-1]["cause"] == "platform"
    assert "File too large" in run.events[-1]["message"]
    assert len(run.of("step")) < STEPS, "it did not train on for nothing"
    kept = newest_first(run)
    rest = attempt(spec, tmp_path, kept)
    assert rest.events[0]["resumed_from_step"] == kept[0]["step"]
    assert adapter(tmp_path) == adapter(uninterrupted)


def test_resume_on_another_node_gives_the_same_bytes(
    spec: dict[str, Any], uninterrupted: Path, tmp_path: Path
) -> None:
    """The checkpoint is copied to another path, as on another node."""
    killed = attempt(spec, tmp_path / "a", at_step=STEPS // 2 + 1)
    newest = newest_first(killed)[0]
    moved = shutil.copytree(newest["dir"], tmp_path / "b" / "fetched")
    shutil.rmtree(tmp_path / "a")
    resumed = attempt(spec, tmp_path / "b", [{**newest, "dir": str(moved)}])
    assert resumed.events[0]["loaded_manifest"] == newest["manifest_sha256"]
    assert adapter(tmp_path / "b") == adapter(uninterrupted)
