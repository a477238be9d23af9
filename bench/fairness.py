"""Measures what one tenant at its limits costs another: each pool that tenants share.

    python -m bench.fairness [--json] [--quick] [--only POOL]

A local stack without a node. A premium tenant repeats one task, one at a time, for some seconds by
itself and for some seconds beside a free tenant. That one's process (`bench.loads`) has used what
it may send at once, and asks for a quarter more than its plan allows. The two take turns.
`…_alone` and `…_beside` are medians in tasks a second. Each time beside the other is compared with
the mean of those before and after it, and the medians count: `…_machine_slower_percent` is how much
slower a loop of the client was then, and `…_lost_percent` what tasks a second lost beyond that. A
machine that others use may be a fifth slower from one second to the next, beside nobody.

reads: lists of files. uploads: small files, until the quota of the other is full. previews: rows as
tokens. streams: the first frame of a job's events. checks: from the upload to the checked file.
machine: a loop of pure computing, beside another one with the lowest priority; what is lost here no
service can give back. check_cpu_s, preview_cpu_s: processor time of the worker of one of them.
strangers: reads again, beside 2,100 idle connections and up to 12,000 requests with strange
methods, 100 at a time, without a key, from other addresses; here `…_p99_ratio` counts.
flood: reads once more, beside a tenant that sends five times what it may; it has no goal.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final

import httpx
import msgspec

from bench.loads import EXAMPLE, PURPOSE, Load
from bench.measures import cpu_s_below, data_folder, ok, percentile, print_figures
from tunery.local.initial_setup import run_setup_steps
from tunery.local.paths import BASE_MODEL_ID
from tunery.local.stack import SERVICES, ServiceSpec, Stack, stack

LIMITS: Final = {"soft_gpu_ms": 2**52, "hard_gpu_ms": 2**52, "concurrency": 10_000}
ROUNDS, ROUND_S, QUICK_S = 7, 5.0, 3.0
#: what the first tenant may do is not what is measured
UNLIMITED: Final = {
    "TUNERY_GATEWAY_PLAN_LIMITS": json.dumps({"premium": {"records_per_minute_max": 60_000}})
}
BEGIN_S_MAX: Final = 60.0  # until the other has used what it may send at once
END_S: Final = 1.0  # until it is as it was
CHECKED_S_MAX: Final = 600.0  # for one file
LOST_PERCENT_MAX, P99_RATIO_MAX = 10, 2
MACHINE_S: Final = 2.0
PROBE_EVERY_S: Final = 0.1  # seconds of tasks
ADDED: Final = 50_000  # numbers, by a loop that takes a few milliseconds
LOOP: Final = "number = 0\nwhile True: number += 1"
COUNTED: Final = 5  # checks, and previews, whose processor time is measured
POOLS: Final = ("reads", "uploads", "previews", "streams", "checks", "strangers", "flood")
NO_GOAL: Final = ("strangers", "flood")  # for what is lost


@dataclass(frozen=True)
class Caller:
    """A tenant's client, with a checked file and a job that waits."""

    http: httpx.AsyncClient
    file_id: str
    job_id: str


# --- tasks: what the first tenant repeats


async def read(caller: Caller) -> None:
    ok(await caller.http.get("/files", params={"limit": 10}))


async def upload(caller: Caller) -> None:
    file = await _upload(caller.http, EXAMPLE.read_bytes())
    (await caller.http.delete(f"/files/{file['id']}")).raise_for_status()


async def preview(caller: Caller) -> None:
    body = {"model": BASE_MODEL_ID, "training_file": caller.file_id, "rows": 5}
    ok(await caller.http.post("/fine_tuning/preview", json=body))


async def follow(caller: Caller) -> None:
    path = f"/fine_tuning/jobs/{caller.job_id}/events"
    async with caller.http.stream("GET", path, params={"stream": "true"}) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                return


async def check(caller: Caller) -> None:
    file = await _upload(caller.http, EXAMPLE.read_bytes())
    await _checked(caller.http, file["id"])


TASKS: Final[dict[str, Callable[[Caller], Awaitable[None]]]] = {
    "reads": read,
    "uploads": upload,
    "previews": preview,
    "streams": follow,
    "checks": check,
    "strangers": read,
    "flood": read,
}


# --- measuring


async def measure(pools: tuple[str, ...], quick: bool) -> dict[str, float]:
    """Start a stack, measure each pool, and return figures by key."""
    rounds, seconds = (1, QUICK_S) if quick else (ROUNDS, ROUND_S)
    left_out = ("trainer", "eval", "engine", "notifier", "exporter")
    figures = {"machine_lost_percent": await _machine_lost_percent()}
    with data_folder() as folder:
        services = [name for name in SERVICES if name not in (*left_out, "gateway")]
        gateway = ServiceSpec("gateway", env=UNLIMITED)
        async with stack(folder, (*services, gateway)) as running:
            await run_setup_steps(running, lambda line: print(line, file=sys.stderr))
            async with (
                _caller(running, "modest", "premium") as modest,
                _caller(running, "greedy", "free") as greedy,
            ):
                for task, service in (("check", "ingest"), ("preview", "gateway")):
                    taken_s = await _worker_cpu_s(TASKS[f"{task}s"], modest, running, service)
                    figures[f"{task}_cpu_s"] = round(taken_s, 2)
                for pool in pools:
                    figures |= await _pool(pool, modest, greedy, rounds, seconds)
    return figures


async def _machine_lost_percent() -> float:
    """Return how much slower a loop runs with one at the lowest priority: cores may share their
    parts.
    """
    alone = _loops()
    process = await asyncio.create_subprocess_exec("nice", "-n", "19", sys.executable, "-c", LOOP)
    try:
        beside = _loops()
    finally:
        process.kill()
        await process.wait()
    return round(max(0.0, 100 * (1 - beside / alone)), 1)


def _loops() -> int:
    """Number of rounds of pure computing in MACHINE_S."""
    until, times = time.monotonic() + MACHINE_S, 0
    while time.monotonic() < until:
        _compute()
        times += 1
    return times


def _compute() -> None:
    total = 0
    for number in range(ADDED):
        total += number & 1


def _speed() -> float:
    """How fast the machine computes now, by the processor time that it takes."""
    begun = time.thread_time()
    _compute()
    return 1 / (time.thread_time() - begun)


async def _worker_cpu_s(
    task: Callable[[Caller], Awaitable[None]], caller: Caller, running: Stack, service: str
) -> float:
    """Processor time that workers of a service take for one task."""
    pid = running.supervisor.pid(service)
    if pid is None:
        raise RuntimeError(f"{service} does not run")
    await task(caller)  # what is done once is not measured
    before = cpu_s_below(pid)
    for _ in range(COUNTED):
        await task(caller)
    return (cpu_s_below(pid) - before) / COUNTED


@dataclass(frozen=True)
class _Part:
    """Task durations in seconds, and the machine's speed in that time."""

    times: list[float]
    speed: float

    @property
    def rate(self) -> float:
        return len(self.times) / sum(self.times)


async def _pool(
    pool: str, modest: Caller, greedy: Caller, rounds: int, seconds: float
) -> dict[str, float]:
    """Each time beside is compared with those alone before and after it."""
    await TASKS[pool](modest)  # what is done once is not measured
    alone = [await _tasks(pool, modest, seconds)]
    beside: list[_Part] = []
    for _ in range(rounds):
        async with _load(pool, greedy):
            beside.append(await _tasks(pool, modest, seconds))
        alone.append(await _tasks(pool, modest, seconds))
    slower = _lost(beside, alone, lambda part: part.speed)
    lost = _lost(beside, alone, lambda part: part.rate / part.speed)
    figures = {
        f"{pool}_alone": round(median(part.rate for part in alone), 2),
        f"{pool}_beside": round(median(part.rate for part in beside), 2),
        f"{pool}_machine_slower_percent": round(median(slower), 1),
        f"{pool}_lost_percent": round(max(0.0, median(lost)), 1),
    }
    if pool == "strangers":
        before_ms, after_ms = (
            percentile([1_000 * took for part in parts for took in part.times], 99)
            for parts in (alone, beside)
        )
        figures["strangers_p99_ratio"] = round(after_ms / before_ms, 2)
    print(figures, "lost:", *(f"{part:.1f}" for part in lost), file=sys.stderr)
    return figures


def _lost(
    beside: Sequence[_Part], alone: Sequence[_Part], value: Callable[[_Part], float]
) -> list[float]:
    """Percent that each part beside has less than the mean of those before and after it."""
    around = pairwise(map(value, alone))
    return [
        100 * (1 - 2 * value(part) / sum(pair)) for part, pair in zip(beside, around, strict=True)
    ]


async def _tasks(pool: str, caller: Caller, seconds: float) -> _Part:
    """Repeat a task for some seconds; twice at least."""
    times: list[float] = []
    speeds = [_speed()]
    while sum(times) < seconds or len(times) < 2:
        begun = time.monotonic()
        await TASKS[pool](caller)
        times.append(time.monotonic() - begun)
        if sum(times) > PROBE_EVERY_S * len(speeds):
            speeds.append(_speed())
    return _Part(times, median(speeds))


@asynccontextmanager
async def _load(pool: str, greedy: Caller) -> AsyncIterator[None]:
    """The other tenant at its limits, in a process with the lowest priority."""
    load = Load(
        pool=pool,
        url=str(greedy.http.base_url),
        authorization=greedy.http.headers["authorization"],
        file_id=greedy.file_id,
        job_id=greedy.job_id,
    )
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", "19", sys.executable, "-m", "bench.loads"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(load))
        process.stdin.close()
        assert process.stdout is not None
        async with asyncio.timeout(BEGIN_S_MAX):
            await process.stdout.readline()
        yield
        if process.returncode is not None:
            raise RuntimeError(f"the load of {pool} has ended with code {process.returncode}")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await asyncio.sleep(END_S)


@asynccontextmanager
async def _caller(running: Stack, tenant: str, plan: str) -> AsyncIterator[Caller]:
    async with _client(f"{running.api_url}/v1", f"Bearer {running.admin_key}") as admin:
        ok(await admin.post("/tenants", json={"id": tenant, "plan": plan, "limits": LIMITS}))
        body: dict[str, Any] = {"name": tenant}
        if plan == "premium":
            body["requests_per_minute"] = 1_000_000  # its own limit is not what is measured
        key = ok(await admin.post(f"/tenants/{tenant}/keys", json=body))["key"]
    async with _client(f"{running.api_url}/v1", f"Bearer {key}") as http:
        file = await _upload(http, EXAMPLE.read_bytes())
        await _checked(http, file["id"])
        body = {"model": BASE_MODEL_ID, "training_file": file["id"]}
        job = ok(await http.post("/fine_tuning/jobs", json=body))
        yield Caller(http, file["id"], job["id"])


def _client(url: str, authorization: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=url,
        headers={"authorization": authorization},
        limits=httpx.Limits(max_connections=None),
        timeout=120,
        trust_env=False,
    )


async def _upload(http: httpx.AsyncClient, rows: bytes) -> dict[str, Any]:
    file: dict[str, Any] = ok(
        await http.post("/files", data=PURPOSE, files={"file": ("a.jsonl", rows)})
    )
    return file


async def _checked(http: httpx.AsyncClient, file_id: str) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(CHECKED_S_MAX):
        while True:
            answer = await http.get(f"/files/{file_id}")
            if answer.status_code != 429 and ok(answer)["status"] != "uploaded":
                return
            await asyncio.sleep(0.1)


def main() -> int:
    """Measure and print. Exit code 1 when a pool lost more than is allowed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object, nothing else")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", choices=POOLS, action="append", help="may be repeated")
    arguments = parser.parse_args()
    pools = tuple(arguments.only or POOLS)
    figures = asyncio.run(measure(pools, arguments.quick))
    goal = f"at most {LOST_PERCENT_MAX} % lost; p99 beside strangers below {P99_RATIO_MAX} times"
    print_figures(figures, as_json=arguments.json, goal=goal)
    lost = max((figures[f"{p}_lost_percent"] for p in pools if p not in NO_GOAL), default=0.0)
    return int(lost > LOST_PERCENT_MAX or figures.get("strangers_p99_ratio", 0) >= P99_RATIO_MAX)


if __name__ == "__main__":
    sys.exit(main())
