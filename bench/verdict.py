"""Measures a short job from its submission to its verdict, in one process and in two.

    python -m bench.verdict [--json] [--jobs 3]

Two local stacks, one after the other, each with SmolLM2-135M, one slot and jobs of STEPS steps
that are submitted one by one. In the first, as `tunery up` has it, a training is a fork of a
process that has loaded the libraries, and continues as the evaluation of its job; in the second,
each lease starts a process anew. The first job of a stack is not counted: it scores the base model,
for all that follow. `first_step_s` is the median time from the lease of a job to its first step, in
the first stack.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import asyncpg

from bench.measures import data_folder
from schemas.access import schema_of
from tunery.cli.demo.polling import poll_until
from tunery.client import AsyncApi
from tunery.local.initial_setup import run_setup_steps
from tunery.local.paths import BASE_MODEL_ID
from tunery.local.stack import AGENT, SERVICES, WARM_NODE, ServiceSpec, stack

STEPS: Final = 4
JOBS: Final = 3
FILE_S_MAX: Final = 300
JOB_S_MAX: Final = 900
IDLE_S: Final = 20
NODE: Final = {"TUNERY_NODE_ID": "bench", "TUNERY_NODE_SLOTS": "1"}
FIRST_STEP: Final = """
SELECT steps.at AS stepped_at, placements.granted_at
FROM {rows}.steps JOIN {rows}.placements ON placements.id = steps.job_id
WHERE steps.job_id = $1 AND placements.granted_at < steps.at ORDER BY steps.step LIMIT 1
""".format(rows=schema_of("gateway"))
EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "lighthouse.jsonl"
AGENTS: Final = {
    "one": ServiceSpec(AGENT, env=NODE | WARM_NODE),
    "two": ServiceSpec(AGENT, argv=(sys.executable, "-m", "bench.verdict", "--agent"), env=NODE),
}


class Times(NamedTuple):
    """Seconds from submission to verdict, and from the lease to the first step."""

    verdict_s: float
    first_step_s: float


async def measure(jobs: int) -> dict[str, float]:
    """Run the jobs in both ways, and return figures by key."""
    return figures({way: await _times(agent, jobs) for way, agent in AGENTS.items()})


def figures(times: Mapping[str, Sequence[Times]]) -> dict[str, float]:
    """Medians by the number of processes, and how many seconds one process saves."""
    medians = {way: median(each.verdict_s for each in of_way) for way, of_way in times.items()}
    named = {f"{way}_s": round(value, 1) for way, value in medians.items()}
    first = median(each.first_step_s for each in times["one"])
    saved = medians["two"] - medians["one"]
    return {**named, "saved_s": round(saved, 1), "first_step_s": round(first, 2)}


async def _times(agent: ServiceSpec, jobs: int) -> list[Times]:
    services: list[str | ServiceSpec] = [name for name in SERVICES if name != AGENT]
    with data_folder() as folder:
        async with stack(folder, [*services, agent]) as running:
            await run_setup_steps(running, lambda line: print(line, file=sys.stderr))
            async with AsyncApi(f"{running.api_url}/v1", running.admin_key) as api:
                file_id = (await api.upload(EXAMPLE))["id"]
                await poll_until(
                    lambda: api.validation(file_id),
                    lambda shown: shown["status"] == "done",
                    FILE_S_MAX,
                )
                rows = await asyncpg.connect(running.postgres_dsn)
                times = [await _job(api, rows, file_id, number) for number in range(jobs + 1)]
                await rows.close()
    print(f"{agent.argv or agent.name}: {times}", file=sys.stderr)
    return times[1:]


async def _job(api: AsyncApi, rows: Any, file_id: str, seed: int) -> Times:
    """Times of one job. Raises ValueError where it has no verdict."""
    await asyncio.sleep(IDLE_S)  # the stack does nothing else
    begun = time.monotonic()
    body = {
        "model": BASE_MODEL_ID,
        "training_file": file_id,
        "seed": seed,
        "training": {"max_steps": STEPS, "max_length": 128},
    }
    job_id = (await api.submit(body, f"bench-verdict-{seed}"))["id"]
    async with asyncio.timeout(JOB_S_MAX):
        while (first := await rows.fetchrow(FIRST_STEP, job_id)) is None:  # noqa: ASYNC110  # rows of a database
            await asyncio.sleep(0.05)
    job = await poll_until(
        lambda: api.job(job_id), lambda shown: shown["phase"] == "done", JOB_S_MAX
    )
    if job["status"] != "succeeded":
        raise ValueError(f"a job ended as {job['status']}: {job['error']}")
    first_step_s = (first["stepped_at"] - first["granted_at"]) / 1_000
    return Times(round(time.monotonic() - begun, 1), first_step_s)


def be_agent() -> None:
    """Be an agent that starts each process anew; trainings never continue as evaluations."""
    from services.trainer.app import build
    from services.trainer.settings import STOP_MS_MAX
    from tunery.platform.process import main as serve

    adapters = "services.trainer.adapters"
    with patch(f"{adapters}.leased.TRAIN", ""), patch(f"{adapters}.forks.WARM_MODULES", ()):
        serve("trainer", build, stop_ms_max=STOP_MS_MAX)


def main() -> None:
    """Print the figures, or be the agent of the stack with two processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs in each way")
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        be_agent()
        return
    measured = asyncio.run(measure(options.jobs))
    if options.json:
        print(json.dumps(measured))
        return
    print(f"one process:  {measured['one_s']} s from submission to verdict")
    print(f"first step:    {measured['first_step_s']} s after the lease")
    print(f"two processes: {measured['two_s']} s; one saves {measured['saved_s']} s")


if __name__ == "__main__":
    main()
