"""Measures followers of one job: what each received, and how long after it was sent.

    python -m bench.follow [--json] [--quick]

A local stack without a node; the steps of a job are written to the telemetry topic as an agent
writes them, and FOLLOWERS read its metrics as server-sent events over HTTP from another process's
gateway. `lost` and `twice` count steps over all followers. What bounds the delay is the way through
Kafka into PostgreSQL and back (a commit and a notice), then one write for each follower.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import httpx
import msgspec
from aiokafka import AIOKafkaProducer

from bench.measures import data_folder
from schemas.telemetry import Step
from schemas.topics import TELEMETRY
from tunery.local.initial_setup import run_setup_steps
from tunery.local.paths import BASE_MODEL_ID
from tunery.local.stack import SERVICES, Stack, stack

FOLLOWERS: Final = 200
STEPS: Final = 3_600  # an hour at one step a second
PER_SECOND: Final = 40
QUICK_FOLLOWERS, QUICK_STEPS = 10, 40
FOLLOW_S_MAX: Final = 240
AGENT: Final = "trainer"
EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "lighthouse.jsonl"


async def measure(quick: bool) -> dict[str, float]:
    """Start a stack, follow a job, and return figures by key."""
    followers, steps = (QUICK_FOLLOWERS, QUICK_STEPS) if quick else (FOLLOWERS, STEPS)
    with data_folder() as folder:
        async with stack(folder, [name for name in SERVICES if name != AGENT]) as running:
            await run_setup_steps(running, lambda line: print(line, file=sys.stderr))
            async with httpx.AsyncClient(
                base_url=f"{running.api_url}/v1",
                headers={"authorization": f"Bearer {running.admin_key}"},
                limits=httpx.Limits(max_connections=None),
                timeout=FOLLOW_S_MAX,
                trust_env=False,
            ) as client:
                return await _followed(running, client, followers, steps)


async def _followed(
    running: Stack, client: httpx.AsyncClient, followers: int, steps: int
) -> dict[str, float]:
    job = await _job(client)
    sent_at: dict[int, float] = {}
    tasks = [asyncio.create_task(_follow(client, job["id"], sent_at)) for _ in range(followers)]
    begun = time.monotonic()
    await _send_steps(running, job, steps, sent_at)
    took = time.monotonic() - begun
    (await client.post(f"/fine_tuning/jobs/{job['id']}/cancel")).raise_for_status()
    observed = await asyncio.wait_for(asyncio.gather(*tasks), FOLLOW_S_MAX)
    delays = sorted(delay for _, mine in observed for delay in mine)
    cuts = quantiles(delays, n=100)
    return {
        "followers": followers,
        "steps": steps,
        "steps_per_s": round(steps / took, 1),
        "events_per_s": round(len(delays) / took, 1),
        "lost": sum(steps - len(seen) for seen, _ in observed),
        "twice": sum(count - 1 for seen, _ in observed for count in seen.values()),
        "delay_p50_ms": round(1_000 * cuts[49], 1),
        "delay_p99_ms": round(1_000 * cuts[98], 1),
    }


async def _job(client: httpx.AsyncClient) -> dict[str, Any]:
    rows = {"file": (EXAMPLE.name, EXAMPLE.read_bytes())}
    file = (await client.post("/files", data={"purpose": "fine-tune"}, files=rows)).json()
    body = {"model": BASE_MODEL_ID, "training_file": file["id"]}
    answer = await client.post("/fine_tuning/jobs", json=body)
    answer.raise_for_status()
    job: dict[str, Any] = answer.json()
    return job


async def _send_steps(
    running: Stack, job: dict[str, Any], steps: int, sent_at: dict[int, float]
) -> None:
    """The steps, as an agent would report them, at PER_SECOND."""
    keys = running.settings.keys.sender_keys("node.bench")
    producer = AIOKafkaProducer(**running.kafka_as().client_options)
    await producer.start()
    begun = time.monotonic()
    try:
        for number in range(1, steps + 1):
            await asyncio.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            value = keys.sign(TELEMETRY.name, msgspec.json.encode(_step(job, number, steps)))
            sent_at[number] = time.monotonic()
            await producer.send(TELEMETRY.name, key=job["id"].encode(), value=value)
        await producer.flush()
    finally:
        await producer.stop()


def _step(job: dict[str, Any], number: int, steps: int) -> Step:
    return Step(
        tenant=job["organization_id"],
        job_id=job["id"],
        attempt=1,
        step=number,
        total_steps=steps,
        loss=1.5,
        accuracy=0.5,
        grad_norm=1.0,
        learning_rate=1e-4,
        tokens=100 * number,
        elapsed_ms=1_000 * number,
    )


async def _follow(
    client: httpx.AsyncClient, job_id: str, sent_at: dict[int, float]
) -> tuple[Counter[int], list[float]]:
    """How often each step was received, and the delays in seconds."""
    seen: Counter[int] = Counter()
    delays = []
    path = f"/fine_tuning/jobs/{job_id}/metrics"
    async with client.stream("GET", path, params={"stream": "true"}) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                step = json.loads(line[len("data: ") :])["step"]
                seen[step] += 1
                delays.append(time.monotonic() - sent_at[step])
    return seen, delays


def main() -> int:
    """Measure and print. Exit code 1 when a follower lost a step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object, nothing else")
    parser.add_argument("--quick", action="store_true", help="few followers, few steps")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.quick))
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:14} {value:>10,.1f}")
    return 0 if figures["lost"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
