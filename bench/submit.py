"""How long a submission takes: HTTP → Kafka → decision → read model → answer.

    python -m bench.submit [--json]

500 sequential and 200 concurrent submissions against a whole local stack without a node agent, so
that nothing trains beside it. CPU time is that of all processes of the stack, servers included,
until nothing follows any more, less what an idle stack needs. The physical limit is one append
that the broker has fsynced: the bare client's acknowledged append to a topic with the same
settings is measured in the same run.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import httpx
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bench.measures import cpu_s_below, data_folder, ok, percentile, print_figures
from tunery.local.initial_setup import run_setup_steps
from tunery.local.paths import BASE_MODEL_ID
from tunery.local.stack import AGENT, SERVICES, Stack, stack

SEQUENTIAL: Final = 500
CONCURRENT: Final = 200
BARE: Final = 500
WARM_UP: Final = 20
SETTLED_S: Final = 5  # after the last answer: what follows from a submission has ended
IDLE_S: Final = 10
TENANT: Final = "bench"
BARE_TOPIC: Final = "tunery.bench.bare"
VALUE_BYTES: Final = 2_000  # a SubmitJob in its envelope
VALIDATION_S_MAX: Final = 60
EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "lighthouse.jsonl"
LIMITS: Final = {"soft_gpu_ms": 2**52, "hard_gpu_ms": 2**52, "concurrency": 10_000}


async def measure() -> dict[str, float]:
    """Submit jobs to a new stack, and append with the bare client; returns figures by key."""
    with data_folder() as folder:
        services = [name for name in SERVICES if name != AGENT]
        async with stack(folder, services) as running:
            await run_setup_steps(running, lambda line: print(line, file=sys.stderr))
            bare = await _bare_appends(running)
            key = await _tenant(running)
            async with _client(running, key) as client:
                submit = await _submitter(client)
                await _in_turn(submit, WARM_UP)
                idle = await _idle_share()
                sequential, alone_ms = await _measured(_in_turn(submit, SEQUENTIAL), idle)
                concurrent, together_ms = await _measured(_at_once(submit, CONCURRENT), idle)
    return {
        "sequential_p50_ms": percentile(sequential, 50),
        "sequential_p99_ms": percentile(sequential, 99),
        "sequential_cpu_ms": alone_ms,
        "concurrent_cpu_ms": together_ms,
        "concurrent_p50_ms": percentile(concurrent, 50),
        "concurrent_p99_ms": percentile(concurrent, 99),
        "bare_append_p50_ms": percentile(bare, 50),
        "ratio_to_bare_append_p50": percentile(sequential, 50) / percentile(bare, 50),
    }


def _client(running: Stack, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=running.api_url,
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
        trust_env=False,
        limits=httpx.Limits(max_connections=CONCURRENT),
    )


async def _tenant(running: Stack) -> str:
    """A tenant of its own, whose limits nothing here can reach; its key."""
    async with _client(running, running.admin_key) as admin:
        body = {"id": TENANT, "name": TENANT, "plan": "premium", "limits": LIMITS}
        ok(await admin.post("/v1/tenants", json=body))
        created = ok(await admin.post(f"/v1/tenants/{TENANT}/keys", json={"name": TENANT}))
        return str(created["key"])


async def _submitter(client: httpx.AsyncClient) -> Callable[[], Awaitable[float]]:
    """A function that submits one job and says how long it took, in ms."""
    uploaded = ok(
        await client.post(
            "/v1/files",
            data={"purpose": "fine-tune"},
            files={"file": (EXAMPLE.name, EXAMPLE.read_bytes())},
        )
    )
    deadline = time.monotonic() + VALIDATION_S_MAX
    while (file := ok(await client.get(f"/v1/files/{uploaded['id']}")))["status"] != "processed":
        if time.monotonic() > deadline:
            raise TimeoutError(f"the file is not validated: {file}")
        await asyncio.sleep(0.2)
    numbers = iter(range(1_000_000))

    async def submit() -> float:
        body = {"model": BASE_MODEL_ID, "training_file": uploaded["id"]}
        headers = {"Idempotency-Key": f"bench-{next(numbers)}"}
        began = time.perf_counter()
        ok(await client.post("/v1/fine_tuning/jobs", json=body, headers=headers))
        return 1000 * (time.perf_counter() - began)

    return submit


async def _idle_share() -> float:
    """Measure the CPU seconds that an idle stack needs in a second."""
    await asyncio.sleep(SETTLED_S)
    before = cpu_s_below(os.getpid())
    await asyncio.sleep(IDLE_S)
    return (cpu_s_below(os.getpid()) - before) / IDLE_S


async def _measured(work: Awaitable[list[float]], idle: float) -> tuple[list[float], float]:
    """Times of submissions, and the CPU time of the stack for one of them, in ms."""
    before, began = cpu_s_below(os.getpid()), time.perf_counter()
    times = await work
    await asyncio.sleep(SETTLED_S)
    spent_s = cpu_s_below(os.getpid()) - before - idle * (time.perf_counter() - began)
    return times, 1000 * spent_s / len(times)


async def _in_turn(submit: Callable[[], Awaitable[float]], count: int) -> list[float]:
    return [await submit() for _ in range(count)]


async def _at_once(submit: Callable[[], Awaitable[float]], count: int) -> list[float]:
    return list(await asyncio.gather(*(submit() for _ in range(count))))


async def _bare_appends(running: Stack) -> list[float]:
    """The bare client, one acknowledged append after the other, each fsynced as ours are."""
    admin = AIOKafkaAdminClient(**running.kafka_as().client_options)
    await admin.start()
    try:
        same = {"flush.messages": "1", "message.timestamp.type": "LogAppendTime"}
        await admin.create_topics([NewTopic(BARE_TOPIC, 1, 1, topic_configs=same)])
    finally:
        await admin.close()
    producer = AIOKafkaProducer(
        **running.kafka_as().client_options, acks="all", enable_idempotence=True
    )
    await producer.start()
    times_ms = []
    try:
        for number in range(WARM_UP + BARE):
            began = time.perf_counter()
            await producer.send_and_wait(BARE_TOPIC, b"x" * VALUE_BYTES, partition=0)
            if number >= WARM_UP:
                times_ms.append(1000 * (time.perf_counter() - began))
    finally:
        await producer.stop()
    return times_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    figures = asyncio.run(measure())
    print_figures(figures, as_json=arguments.json, goal="sequential_p99_ms <= 50")


if __name__ == "__main__":
    main()
