"""Compares what 20 different jobs cost with what their estimates said, through the front door.

    python -m bench.estimates [--json] [--data-dir DIR] [--seconds 1200]

A whole local stack with two node agents runs on the machine, and two jobs at a time. They differ
in rows, length of rows, epochs, batch size, rank, length of packed rows, validation and method, on
two tiny base models of different sizes. The first eight teach: the service needs so many to trust
what it has seen. For each of the others, the estimate of `POST /v1/fine_tuning/jobs/estimate` just
before the submission is compared with the bill after the end. `ratio`: the larger of both amounts
by the smaller one, so 1.25 is a quarter off. Goal: nine of ten within a factor of two.

With `--data-dir` the stack's data and what was measured stay there, and a later run continues with
the next job; `--seconds` bounds one run. All 20 take some seven minutes on two cores.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from bench.measures import ok, percentile
from services.gateway.jobs.past_jobs import KEPT_MS
from tunery.local.initial_setup import create_tenant, run_setup_steps
from tunery.local.stack import AGENT, SERVICES, ServiceSpec, stack

TEACHERS: Final = 8
GOAL_P90: Final = 2.0
FILE_S_MAX: Final = 90
JOB_S_MAX: Final = 300
POLL_S: Final = 0.25
NODES: Final = tuple(
    ServiceSpec(f"agent-{name}", module="services.trainer", env={"TUNERY_NODE_ID": name})
    for name in ("a", "b")
)
MEASURED: Final = "estimates.jsonl"
#: `--base NAME` writes one: layers, hidden size
BASES: Final = {"small": (2, 64), "larger": (2, 128)}
JOBS_PATH: Final = "/v1/fine_tuning/jobs"
#: of answers; each is one token
WORDS: Final = (
    "the",
    "lamp",
    "of",
    "a",
    "tower",
    "is",
    "at",
    "sea",
    "and",
    "it",
    "on",
    "for",
    "boat",
)
Json = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """One job. words: of each answer. held_out: rows of a validation file, 0: none is given."""

    base: str
    rows: int
    words: int
    epochs: int
    batch: int = 4
    rank: int = 8
    length: int = 256
    held_out: int = 0
    method: str = "supervised"
    packing: bool = True


SHAPES: Final = (
    Shape("small", 60, 20, 1),
    Shape("larger", 100, 30, 1, rank=16),
    Shape("small", 150, 60, 2, batch=8, length=512),
    Shape("larger", 40, 80, 2, batch=2),
    Shape("small", 400, 40, 1, rank=4),
    Shape("larger", 100, 25, 2, batch=8, held_out=20),
    Shape("small", 60, 200, 2, batch=2, length=512),
    Shape("larger", 160, 60, 1, rank=32, length=512),
    Shape("small", 40, 30, 4, batch=1, length=128),
    Shape("larger", 60, 20, 1),
    Shape("small", 250, 80, 1, rank=16, held_out=40),
    Shape("larger", 120, 80, 2, batch=8, length=1_024),
    Shape("small", 600, 20, 1, batch=16),
    Shape("larger", 60, 30, 1, method="dpo"),
    Shape("small", 100, 60, 3, rank=64),
    Shape("larger", 80, 150, 1, batch=2, rank=4, length=512),
    Shape("small", 80, 30, 2, packing=False),
    Shape("larger", 200, 30, 1, held_out=30),
    Shape("small", 40, 20, 5, batch=1),
    Shape("larger", 60, 60, 2, length=128),
)


async def measure(folder: Path, seconds: float, write: Callable[[Json], None]) -> None:
    """Run the jobs that `folder` has no measurement of; `write` keeps each measurement."""
    known = {each["number"] for each in measured(folder)}
    teachers = [number for number in range(TEACHERS) if number not in known]
    others = [number for number in range(TEACHERS, len(SHAPES)) if number not in known]
    if not teachers + others:
        return
    deadline = time.monotonic() + seconds
    async with _running(folder) as client:
        await _run_all(client, teachers, deadline, write)
        if teachers:
            await asyncio.sleep(KEPT_MS / 1_000)  # so long the gateway keeps what it has read
        await _run_all(client, others, deadline, write)


async def _run_all(
    client: httpx.AsyncClient, numbers: list[int], deadline: float, write: Callable[[Json], None]
) -> None:
    """Run these jobs, as many at a time as there are nodes, and begin none after the deadline."""
    waiting = iter(numbers)

    async def work_off() -> None:
        for number in waiting:
            if time.monotonic() > deadline:
                return
            write(await _run_job(client, number))

    await asyncio.gather(*(work_off() for _ in NODES))


async def _run_job(client: httpx.AsyncClient, number: int) -> Json:
    shape = SHAPES[number]
    body = await _body(client, shape, number)
    forecast = ok(await client.post(f"{JOBS_PATH}/estimate", json=body))
    submitted = ok(await client.post(JOBS_PATH, json=body))
    path = f"{JOBS_PATH}/{submitted['id']}"
    job = await _until(client, path, lambda answer: answer["phase"] == "done", JOB_S_MAX)
    if job["status"] != "succeeded":
        raise RuntimeError(f"job {number} {shape}: {job['error']}")
    cost = await _until(client, f"{path}/cost", lambda answer: answer["final"], FILE_S_MAX)
    return _measurement(number, shape, forecast, cost)


def _measurement(number: int, shape: Shape, forecast: Json, cost: Json) -> Json:
    expected, actual = forecast["amount_micro"], cost["amount_micro"]
    used = {
        role: sum(line["billable_gpu_ms"] for line in cost["lines"] if line["role"] == role)
        for role in ("train", "eval")
    }
    return {
        "number": number,
        "job": str(shape),
        "teaches": number < TEACHERS,
        "steps": forecast["steps"],
        "tokens": forecast["trained_tokens"],
        "estimated_micro": expected,
        "billed_micro": actual,
        "ratio": round(max(expected / actual, actual / expected), 3),
        "estimated_train_ms": forecast["train_gpu_ms"],
        "train_ms": used["train"],
        "estimated_eval_ms": forecast["eval_gpu_ms"],
        "eval_ms": used["eval"],
        "within_hold": actual <= forecast["amount_max_micro"],
    }


def measured(folder: Path) -> list[Json]:
    """Return the results of earlier runs in this data directory, job by job."""
    path = folder / MEASURED
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def figures_of(measurements: list[Json]) -> Json:
    """p50, p90 and the largest ratio of the jobs that were estimated from history."""
    ratios = [each["ratio"] for each in measurements if not each["teaches"]]
    figures: Json = {"jobs": len(measurements), "estimated_jobs": len(ratios)}
    if len(ratios) > 1:
        figures |= {"ratio_p50": percentile(ratios, 50), "ratio_p90": percentile(ratios, 90)}
        figures |= {"ratio_max": max(ratios)}
    holds = sum(each["within_hold"] for each in measurements)
    return {**figures, "within_hold": holds}


@asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    folder.chmod(0o711)  # PostgreSQL runs as another user under root
    bases = [_base(folder / "bases", name) for name in BASES]
    services = [ServiceSpec(name) for name in SERVICES if name != AGENT]
    async with stack(folder, [*services, *NODES]) as running:
        await run_setup_steps(running, lambda _line: None, (create_tenant,))
        headers = {"authorization": f"Bearer {running.admin_key}"}
        async with httpx.AsyncClient(
            base_url=running.api_url, headers=headers, timeout=60, trust_env=False
        ) as client:
            for base in bases:
                added = await client.post("/v1/bases", json={"id": base.name, "path": str(base)})
                if added.status_code != httpx.codes.CONFLICT:
                    ok(added)
            yield client


def _base(folder: Path, name: str) -> Path:
    """A base model, written by its own process, which needs torch."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    path = folder / name
    if not (path / "config.json").exists():
        words = (sys.executable, "-m", "bench.estimates", "--write-base", name, str(path))
        subprocess.run(words, check=True)
    return path


def write_base(name: str, path: Path) -> None:
    """Write a random Llama with the tokenizer and template of the tiny base model."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from tests.bases import tiny_base

    layers, hidden = BASES[name]
    tokenizer = AutoTokenizer.from_pretrained(tiny_base().dir)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2_048,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
    tokenizer.save_pretrained(path)
    for file in path.iterdir():
        file.chmod(0o644)


def rows_of(shape: Shape, number: int, count: int, first: int = 0) -> bytes:
    """Rows that no two jobs share: conversations, or pairs of answers."""
    lines = []
    for row in range(first, first + count):
        words = [WORDS[(31 * row + 17 * n + number) % len(WORDS)] for n in range(shape.words)]
        question = {"role": "user", "content": f"Job {number}: what is {row} plus {row + 3}?"}
        answer = {"role": "assistant", "content": f"It is {2 * row + 3}: {' '.join(words)}."}
        if shape.method == "dpo":
            other = {"role": "assistant", "content": f"Ask again, {row}: {' '.join(words[::-1])}."}
            pair = {"preferred_output": [answer], "non_preferred_output": [other]}
            lines.append({"input": {"messages": [question]}, **pair})
        else:
            lines.append({"messages": [question, answer]})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def _body(client: httpx.AsyncClient, shape: Shape, number: int) -> Json:
    hyper = {"n_epochs": shape.epochs, "batch_size": shape.batch}
    body: Json = {
        "model": shape.base,
        "training_file": await _upload(client, rows_of(shape, number, shape.rows)),
        "method": {"type": shape.method, shape.method: {"hyperparameters": hyper}},
        "lora": {"rank": shape.rank},
        "training": {"max_length": shape.length, "packing": shape.packing},
        "seed": number,
    }
    if shape.held_out:
        held_out = rows_of(shape, number, shape.held_out, first=shape.rows)
        body["validation_file"] = await _upload(client, held_out)
    return body


async def _upload(client: httpx.AsyncClient, content: bytes) -> str:
    file = {"file": ("rows.jsonl", content, "application/jsonl")}
    uploaded = ok(await client.post("/v1/files", data={"purpose": "fine-tune"}, files=file))
    path = f"/v1/files/{uploaded['id']}"
    shown = await _until(client, path, lambda answer: answer["status"] != "uploaded", FILE_S_MAX)
    if shown["status"] != "processed":
        raise RuntimeError(f"{path}: {shown['status_details']}")
    return str(uploaded["id"])


async def _until(
    client: httpx.AsyncClient, path: str, holds: Callable[[Json], bool], seconds_max: float
) -> Json:
    deadline = time.monotonic() + seconds_max
    while True:
        answer: Json = ok(await client.get(path))
        if holds(answer):
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} after {seconds_max:g} s: {answer}")
        await asyncio.sleep(POLL_S)


def _run(folder: Path, seconds: float) -> list[Json]:
    def write(measurement: Json) -> None:
        with (folder / MEASURED).open("a") as file:
            file.write(json.dumps(measurement) + "\n")
        shown = ("number", "ratio", "estimated_micro", "billed_micro", "train_ms", "eval_ms")
        print({name: measurement[name] for name in shown}, file=sys.stderr, flush=True)

    asyncio.run(measure(folder, seconds, write))
    return measured(folder)


def main() -> None:
    """Measure, and print the figures, or one JSON object with each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--data-dir", type=Path, help="keep the data; go on with the next job")
    parser.add_argument("--seconds", type=float, default=1_200, help="submit no job after so long")
    parser.add_argument("--write-base", nargs=2, metavar=("NAME", "DIR"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write_base is not None:
        write_base(arguments.write_base[0], Path(arguments.write_base[1]))
        return
    if arguments.data_dir is not None:
        arguments.data_dir.mkdir(parents=True, exist_ok=True)
        measurements = _run(arguments.data_dir, arguments.seconds)
    else:
        with tempfile.TemporaryDirectory(
            prefix="tunery-bench-", ignore_cleanup_errors=True
        ) as folder:
            measurements = _run(Path(folder), arguments.seconds)
    figures = figures_of(measurements)
    if arguments.json:
        print(json.dumps({**figures, "measurements": measurements}))
        return
    for name, value in figures.items():
        print(f"{name:16} {value:8g}")
    print(f"goal: ratio_p90 <= {GOAL_P90:g}")


if __name__ == "__main__":
    main()
