"""Measures short jobs from their submission to their verdict.

    python -m bench.verdict [--json] [--jobs 3] [--steps 4] [--max-length 128]

A local stack as `tunery up` has it, SmolLM2-135M, one slot, and jobs of so many steps that are
submitted one by one; their rows are as long as the plan makes them, or as `--max-length` says. The
first job is not counted: it scores the base model for all that follow. All figures are medians.
`first_step_s`: from the lease of a job to its first step; `training_s` and `gate_s`: of the slot
that the ledger bills for training and for the evaluation.
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
NODE: Final = {"TUNERY_NODE_ID": "bench", "TUNERY_NODE_SLOTS": "1", **WARM_NODE}
FIRST_STEP: Final = """
SELECT steps.at AS stepped_at, placements.granted_at
FROM {rows}.steps JOIN {rows}.placements ON placements.id = steps.job_id
WHERE steps.job_id = $1 AND placements.granted_at < steps.at ORDER BY steps.step LIMIT 1
""".format(rows=schema_of("gateway"))
EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "lighthouse.jsonl"


class Times(NamedTuple):
    """Seconds of a job."""

    verdict_s: float
    first_step_s: float
    training_s: float
    gate_s: float


async def measure(jobs: int, training: Mapping[str, int]) -> dict[str, float]:
    """Run the jobs, and return figures by key. training: settings of each job"""
    services: list[str | ServiceSpec] = [name for name in SERVICES if name != AGENT]
    with data_folder() as folder:
        async with stack(folder, [*services, ServiceSpec(AGENT, env=NODE)]) as running:
            await run_setup_steps(running, lambda line: print(line, file=sys.stderr))
            async with AsyncApi(f"{running.api_url}/v1", running.admin_key) as api:
                file_id = (await api.upload(EXAMPLE))["id"]
                await poll_until(
                    lambda: api.validation(file_id),
                    lambda shown: shown["status"] == "done",
                    FILE_S_MAX,
                )
                rows = await asyncpg.connect(running.postgres_dsn)
                times = []
                for number in range(jobs + 1):
                    times.append(await _job(api, rows, file_id, training, number))
                    print(times[-1], file=sys.stderr)
                await rows.close()
    return figures(times[1:])


def figures(times: Sequence[Times]) -> dict[str, float]:
    """Return medians, and the gate's share of the training's time."""
    medians = {name: median(getattr(each, name) for each in times) for name in Times._fields}
    gate_share = medians["gate_s"] / medians["training_s"]
    return {name: round(s, 2) for name, s in medians.items()} | {"gate_share": round(gate_share, 2)}


async def _job(
    api: AsyncApi, rows: Any, file_id: str, training: Mapping[str, int], seed: int
) -> Times:
    """Times of one job. Raises ValueError where it has no verdict."""
    await asyncio.sleep(IDLE_S)  # the stack does nothing else
    begun = time.monotonic()
    body = {
        "model": BASE_MODEL_ID,
        "training_file": file_id,
        "seed": seed,
        "training": training,
    }
    job_id = (await api.submit(body, f"bench-verdict-{seed}"))["id"]
    async with asyncio.timeout(JOB_S_MAX):
        while (first := await rows.fetchrow(FIRST_STEP, job_id)) is None:  # noqa: ASYNC110  # rows of a database
            await asyncio.sleep(0.05)
    job = await poll_until(
        lambda: api.job(job_id), lambda shown: shown["phase"] == "done", JOB_S_MAX
    )
    verdict_s = round(time.monotonic() - begun, 1)
    if job["status"] != "succeeded":
        raise ValueError(f"a job ended as {job['status']}: {job['error']}")
    cost = await poll_until(lambda: api.cost(job_id), lambda shown: shown["final"], JOB_S_MAX)
    used = {"train": 0, "eval": 0}
    for line in cost["lines"]:
        used[line["role"]] += line["used_gpu_ms"]
    first_step_s = (first["stepped_at"] - first["granted_at"]) / 1_000
    return Times(verdict_s, first_step_s, used["train"] / 1_000, used["eval"] / 1_000)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs that are counted")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each job")
    parser.add_argument("--max-length", type=int, help="tokens of a row; else by the plan")
    options = parser.parse_args()
    training = {"max_steps": options.steps}
    if options.max_length is not None:
        training["max_length"] = options.max_length
    measured = asyncio.run(measure(options.jobs, training))
    if options.json:
        print(json.dumps(measured))
        return
    print(f"verdict:    {measured['verdict_s']} s after submission")
    print(f"first step: {measured['first_step_s']} s after the lease")
    print(f"training:   {measured['training_s']} s of the slot")
    print(f"gate:       {measured['gate_s']} s, {measured['gate_share']} of the training's time")


if __name__ == "__main__":
    main()
