"""Measures a short job from its submission to its verdict, in one process and in two.

    python -m bench.verdict [--json] [--jobs 3]

Two local stacks, one after the other, each with SmolLM2-135M, one slot and jobs of STEPS steps
that are submitted one by one. In the first a training continues as the evaluation of its job; in
the second, each lease has its own process, as ranks have. The first job of a stack is not counted:
it scores the base model, for all that follow.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final
from unittest.mock import patch

from tunery.cli.demo.polling import poll_until
from tunery.client import AsyncApi
from tunery.local.initial_setup import run_setup_steps
from tunery.local.paths import BASE_MODEL_ID
from tunery.local.stack import AGENT, SERVICES, ServiceSpec, stack

STEPS: Final = 4
JOBS: Final = 3
FILE_S_MAX: Final = 300
JOB_S_MAX: Final = 900
NODE: Final = {"TUNERY_NODE_ID": "bench", "TUNERY_NODE_SLOTS": "1"}
EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "lighthouse.jsonl"
AGENTS: Final = {
    "one": ServiceSpec(AGENT, env=NODE),
    "two": ServiceSpec(AGENT, argv=(sys.executable, "-m", "bench.verdict", "--agent"), env=NODE),
}


async def measure(jobs: int) -> dict[str, float]:
    """Run the jobs in both ways, and return figures by key."""
    return figures({way: await _seconds(agent, jobs) for way, agent in AGENTS.items()})


def figures(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Medians by the number of processes, and how many seconds one process saves."""
    medians = {way: median(each) for way, each in seconds.items()}
    named = {f"{way}_s": round(value, 1) for way, value in medians.items()}
    return {**named, "saved_s": round(medians["two"] - medians["one"], 1)}


async def _seconds(agent: ServiceSpec, jobs: int) -> list[float]:
    services: list[str | ServiceSpec] = [name for name in SERVICES if name != AGENT]
    with tempfile.TemporaryDirectory(prefix="tunery-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        async with stack(folder, [*services, agent]) as running:
            await run_setup_steps(running, lambda line: print(line, file=sys.stderr))
            async with AsyncApi(f"{running.api_url}/v1", running.admin_key) as api:
                file_id = (await api.upload(EXAMPLE))["id"]
                await poll_until(
                    lambda: api.validation(file_id),
                    lambda shown: shown["status"] == "done",
                    FILE_S_MAX,
                )
                seconds = [await _job(api, file_id, number) for number in range(jobs + 1)]
    print(f"{agent.argv or agent.name}: {seconds}", file=sys.stderr)
    return seconds[1:]


async def _job(api: AsyncApi, file_id: str, seed: int) -> float:
    """Seconds of one job. Raises ValueError where it has no verdict."""
    begun = time.monotonic()
    body = {
        "model": BASE_MODEL_ID,
        "training_file": file_id,
        "seed": seed,
        "training": {"max_steps": STEPS, "max_length": 128},
    }
    job_id = (await api.submit(body, f"bench-verdict-{seed}"))["id"]
    job = await poll_until(
        lambda: api.job(job_id), lambda shown: shown["phase"] == "done", JOB_S_MAX
    )
    if job["status"] != "succeeded":
        raise ValueError(f"a job ended as {job['status']}: {job['error']}")
    return round(time.monotonic() - begun, 1)


def be_agent() -> None:
    """Be an agent whose trainings never continue as evaluations."""
    from services.trainer.app import build
    from services.trainer.settings import STOP_MS_MAX
    from tunery.platform.process import main as serve

    with patch("services.trainer.adapters.warm.TRAIN", ""):
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
    print(f"two processes: {measured['two_s']} s; one saves {measured['saved_s']} s")


if __name__ == "__main__":
    main()
