"""Measures steps of a tenant's own loop beside those of a job, on one local stack.

    python -m bench.sessions [--json] [--steps 6] [--models 4] [--tokens 512]

SmolLM2-135M, LoRA of one rank, ROWS rows of about so many tokens a step. In turn, twice: a job,
then the official Tinker SDK in an environment of its own. `job_ms` and `session_ms` are medians of
a step, each for 1,000 tokens: the session's at its client, with HTTP, log and storage, the job's as
its process says. `overhead_percent` compares them. `first_s` is the time from the lease of the
second session to its first answer: its process waited with its libraries loaded. Then as many
models on one base take their steps at once, each in a process of its own; `models_ratio` is their
tokens a second beside those of one model.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import asyncpg

from bench.measures import data_folder, print_figures
from schemas.access import schema_of
from tests.environments import environment
from tunery.cli.demo.polling import poll_until
from tunery.client import AsyncApi
from tunery.local.initial_setup import run_setup_steps
from tunery.local.paths import BASE_MODEL_ID
from tunery.local.stack import AGENT, SERVICES, ServiceSpec, Stack, stack

SDK: Final = "0.30.0"
STEPS, MODELS = 6, 4
ROUNDS: Final = 2
TOKENS: Final = 512
ROWS, RANK = 2, 16
TEMPLATE_TOKENS: Final = 42  # of a row of the job, around its answer
WAIT_S_MAX: Final = 1_800
TRAINED: Final = ("evaluating", "registering", "done")
CLIENT: Final = Path(__file__).with_name("session_client.py")
FIRST: Final = """
SELECT commands.answered_at - placements.granted_at
FROM {rows}.session_commands AS commands
JOIN {rows}.placements ON placements.id = commands.session_id
WHERE commands.session_id = $1 AND commands.id = '1'
""".format(rows=schema_of("gateway"))


async def measure(steps: int, models: int, tokens: int) -> dict[str, float]:
    """Run jobs and sessions in turn, then several sessions at once; return figures by key.

    steps, tokens: steps of each, tokens of a row
    """
    node = ServiceSpec(AGENT, env={"TUNERY_NODE_ID": "bench", "TUNERY_NODE_SLOTS": str(models)})
    services: list[str | ServiceSpec] = [name for name in SERVICES if name != AGENT]
    job_ms, steps_s, first_s = list[float](), list[float](), 0.0
    with data_folder() as folder:
        async with stack(folder, [*services, node]) as running:
            await run_setup_steps(running, lambda line: print(line, file=sys.stderr))
            async with AsyncApi(f"{running.api_url}/v1", running.admin_key) as api:
                file_id = await _upload(api, folder / "rows.jsonl", steps, tokens)
                for number in range(ROUNDS):
                    job_ms += await _job(api, file_id, steps, tokens, number)
                    (session,) = await _sessions(running, api, steps, tokens, 1)
                    steps_s += session["steps_s"]
                    first_s = session["first_s"]
                together = await _sessions(running, api, steps, tokens, models)
    each_s = [each["steps_s"] for each in together]
    return figures(job_ms, steps_s, first_s, each_s, ROWS * tokens)


def figures(
    job_ms: Sequence[float],
    steps_s: Sequence[float],
    first_s: float,
    together_s: Sequence[Sequence[float]],
    step_tokens: int,
) -> dict[str, float]:
    """Return figures by key.

    job_ms: of 1,000 tokens, each step; together_s: seconds of the steps of each of several models
    """
    per_1000 = 1e6 / step_tokens  # seconds of a step to milliseconds for 1,000 tokens
    job, session = median(job_ms), median(steps_s) * per_1000
    rates = [1 / median(each) for each in together_s]
    return {
        "job_ms": round(job, 1),
        "session_ms": round(session, 1),
        "overhead_percent": round(100 * (session / job - 1), 1),
        "first_s": round(first_s, 2),
        "models": len(together_s),
        "models_ratio": round(sum(rates) * median(steps_s), 2),
    }


async def _upload(api: AsyncApi, rows: Path, steps: int, tokens: int) -> str:
    """The id of a file with a row for each row of each step."""
    answer = {"role": "assistant", "content": " the" * (tokens - TEMPLATE_TOKENS)}
    asked = ([{"role": "user", "content": f"{n}."}, answer] for n in range(2 * ROWS * steps))
    lines = (json.dumps({"messages": messages}) + "\n" for messages in asked)
    rows.write_text("".join(lines), encoding="utf-8")
    file_id: str = (await api.upload(rows))["id"]
    await poll_until(
        lambda: api.validation(file_id), lambda shown: shown["status"] == "done", WAIT_S_MAX
    )
    return file_id


async def _job(api: AsyncApi, file_id: str, steps: int, tokens: int, number: int) -> list[float]:
    """Milliseconds for 1,000 tokens, by step. Raises ValueError for a job that fails."""
    body: dict[str, Any] = {
        "model": BASE_MODEL_ID,
        "training_file": file_id,
        "seed": number,
        "method": {
            "type": "supervised",
            "supervised": {"hyperparameters": {"n_epochs": 1, "batch_size": ROWS}},
        },
        "lora": {"rank": RANK},
        "training": {"max_steps": steps, "max_length": tokens},
    }
    job_id = (await api.submit(body, f"bench-sessions-{number}"))["id"]
    job = await poll_until(
        lambda: api.job(job_id), lambda shown: shown["phase"] in TRAINED, WAIT_S_MAX
    )
    if job["error"]:
        raise ValueError(f"the job ended as {job['status']}: {job['error']}")
    metrics = [each async for each in api.metrics(job_id)]
    await api.change(job_id, "cancel")  # its gate is not measured
    print(f"job: {metrics}", file=sys.stderr)
    return [1e6 / float(each["tokens_per_second"]) for each in metrics if each["step"] > 1]


async def _sessions(
    running: Stack, api: AsyncApi, steps: int, tokens: int, models: int
) -> list[dict[str, Any]]:
    """Return what the client has measured of each model. Raises ValueError where it fails."""
    programs = await asyncio.to_thread(environment, "tinker", SDK)
    process = await asyncio.create_subprocess_exec(
        *(str(programs / "python"), str(CLIENT)),
        *map(str, (steps, ROWS, tokens, RANK, models)),
        stdout=asyncio.subprocess.PIPE,
        env={
            "TUNERY_URL": running.api_url,
            "TUNERY_KEY": running.admin_key,
            "TUNERY_MODEL": BASE_MODEL_ID,
            "HOME": str(programs.parent),
        },
    )
    out, _ = await asyncio.wait_for(process.communicate(), WAIT_S_MAX)
    if process.returncode != 0:
        raise ValueError("the SDK has failed")
    measured: list[dict[str, Any]] = json.loads(out.splitlines()[-1])
    rows = await asyncpg.connect(running.postgres_dsn)
    for each in measured:
        each["first_s"] = await rows.fetchval(FIRST, each["model"]) / 1_000
        # its client is gone without a word: it would keep its slot for ten minutes
        await api.post("sessions", each["model"], "end")
    await rows.close()
    for each in measured:
        ended = partial(api.job, each["model"])
        await poll_until(ended, lambda job: job["phase"] == "done", WAIT_S_MAX)
    print(f"sessions: {measured}", file=sys.stderr)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each")
    parser.add_argument("--models", type=int, default=MODELS, help="at once, and slots of the node")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of a row")
    options = parser.parse_args()
    measured = asyncio.run(measure(options.steps, options.models, options.tokens))
    print_figures(measured, as_json=options.json)


if __name__ == "__main__":
    main()
