"""Measures the API under load: requests a second, and their times while a job trains.

    python -m bench.gateway [--json] [--quick]

Beside it, in the same run, a bare FastAPI handler with the same SQL (`bench.bare_gateway`). A whole
local stack with a node agent runs on the machine, and one job trains at low priority meanwhile.
`paced`: 50 requests a second come at fixed times; a request is timed from the moment at which it
was due, so that a slow answer is not hidden by the ones that wait for it. One of fifty submits a
job: 86,400 a day, 170 times what the product is built for. `rush`: one of five does.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from bench.measures import data_folder, ok, percentile, print_figures
from tunery.local.initial_setup import run_setup_steps
from tunery.local.paths import BASE_MODEL_ID
from tunery.local.ports import find_free
from tunery.local.stack import SERVICES, Stack, stack

CLIENTS: Final = 8
CLOSED_S: Final = 8
PACED_S: Final = 30
QUICK_S: Final = 2
PER_SECOND: Final = 50
PACES: Final = {"paced": 50, "rush": 5}  # one of so many requests submits
GOAL_P99_MS: Final = 50.0
TENANT: Final = "bench"
START_S_MAX: Final = 30
TRAINING_S_MAX: Final = 120
LONG_EPOCHS: Final = 50  # it trains for as long as we measure
LIMITS: Final = {"soft_gpu_ms": 2**52, "hard_gpu_ms": 2**52, "concurrency": 10_000}
EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "lighthouse.jsonl"
Request = Callable[[], Awaitable[None]]


async def measure(quick: bool) -> dict[str, float]:
    """Measure the gateway and the bare handler while a job trains; returns figures by key."""
    closed_s, paced_s = (QUICK_S, QUICK_S) if quick else (CLOSED_S, PACED_S)
    with data_folder() as folder:
        async with stack(folder, list(SERVICES)) as running:
            await run_setup_steps(running, lambda line: print(line, file=sys.stderr))
            key = await _tenant(running)
            async with _client(running.api_url, key) as ours, _bare(running, key) as bare:
                job = await _training(ours)
                figures: dict[str, float] = {}
                for name, client in (("", ours), ("bare_", bare)):
                    read, submit = _requests(client, job)
                    for pace, one_of in PACES.items():
                        figures |= await _run_paced(f"{name}{pace}", read, submit, paced_s, one_of)
                    figures |= await _run_closed_loop(f"{name}read", read, closed_s)
                    # last: hundreds of jobs, which the scheduler works off for a while
                    figures |= await _run_closed_loop(f"{name}submit", submit, closed_s)
                still = await _get(ours, f"/v1/fine_tuning/jobs/{job['training']}")
                figures["trained_beside"] = float(still["status"] == "running")
    for kind in ("read", "submit"):
        figures[f"{kind}_ratio_to_bare"] = _round(
            figures[f"{kind}_per_s"] / figures[f"bare_{kind}_per_s"]
        )
    return figures


def _client(url: str, key: str) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False)


@asynccontextmanager
async def _bare(running: Stack, key: str) -> AsyncIterator[httpx.AsyncClient]:
    port = find_free(set())
    env = {**os.environ, "DSN": running.postgres_dsn, "PORT": str(port)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.bare_gateway", env=env
    )
    try:
        async with _client(f"http://127.0.0.1:{port}", key) as client:
            deadline = time.monotonic() + START_S_MAX
            while True:
                try:
                    await client.get("/")
                    break
                except httpx.TransportError:
                    if time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(0.1)
            yield client
    finally:
        process.terminate()
        await process.wait()


async def _tenant(running: Stack) -> str:
    async with _client(running.api_url, running.admin_key) as admin:
        body = {"id": TENANT, "plan": "premium", "limits": LIMITS}
        ok(await admin.post("/v1/tenants", json=body))
        wanted = {"name": TENANT, "requests_per_minute": 1_000_000}
        return str(ok(await admin.post(f"/v1/tenants/{TENANT}/keys", json=wanted))["key"])


async def _training(client: httpx.AsyncClient) -> dict[str, str]:
    """Create a job that trains, and one that has ended and is read."""
    uploaded = ok(
        await client.post(
            "/v1/files",
            data={"purpose": "fine-tune"},
            files={"file": (EXAMPLE.name, EXAMPLE.read_bytes())},
        )
    )
    await _until(
        client, f"/v1/files/{uploaded['id']}", lambda answer: answer["status"] == "processed"
    )
    body = {"model": BASE_MODEL_ID, "training_file": uploaded["id"]}
    supervised = {"hyperparameters": {"n_epochs": LONG_EPOCHS}}
    long = {**body, "method": {"type": "supervised", "supervised": supervised}}
    training = ok(await client.post("/v1/fine_tuning/jobs", json=long))["id"]
    await _until(
        client, f"/v1/fine_tuning/jobs/{training}", lambda answer: answer["status"] == "running"
    )
    ended = ok(await client.post("/v1/fine_tuning/jobs", json=body))["id"]
    ok(await client.post(f"/v1/fine_tuning/jobs/{ended}/cancel"))
    return {"training": training, "ended": ended, "file": uploaded["id"]}


async def _until(
    client: httpx.AsyncClient, path: str, done: Callable[[dict[str, Any]], bool]
) -> None:
    deadline = time.monotonic() + TRAINING_S_MAX
    while not done(answer := await _get(client, path)):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{path} is not in the expected state after {TRAINING_S_MAX} s: {answer}"
            )
        await asyncio.sleep(0.2)


def _requests(client: httpx.AsyncClient, job: dict[str, str]) -> tuple[Request, Request]:
    body = {"model": BASE_MODEL_ID, "training_file": job["file"]}

    async def read() -> None:
        await _get(client, f"/v1/fine_tuning/jobs/{job['ended']}")

    async def submit() -> None:
        ok(await client.post("/v1/fine_tuning/jobs", json=body))

    return read, submit


async def _run_closed_loop(name: str, request: Request, seconds: float) -> dict[str, float]:
    """CLIENTS callers, each sends its next request when it has the answer to the last."""
    end = time.perf_counter() + seconds
    times_ms: list[float] = []

    async def caller() -> None:
        while (began := time.perf_counter()) < end:
            await request()
            times_ms.append(1_000 * (time.perf_counter() - began))

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CLIENTS)))
    rate = len(times_ms) / (time.perf_counter() - began)
    return {f"{name}_per_s": _round(rate), f"{name}_p99_ms": percentile(times_ms, 99)}


async def _run_paced(
    name: str, read: Request, submit: Request, seconds: float, one_of: int
) -> dict[str, float]:
    began = time.perf_counter()

    async def send(number: int) -> tuple[bool, float]:
        due = began + number / PER_SECOND
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        submits = number % one_of == 0
        await (submit if submits else read)()
        return submits, 1_000 * (time.perf_counter() - due)

    answers = await asyncio.gather(*(send(number) for number in range(int(seconds * PER_SECOND))))
    reads = [ms for submits, ms in answers if not submits]
    submissions = [ms for submits, ms in answers if submits]
    return {
        f"{name}_read_p99_ms": percentile(reads, 99),
        f"{name}_submit_p50_ms": percentile(submissions, 50),
        f"{name}_submit_p99_ms": percentile(submissions, 99),
        f"{name}_p99_ms": percentile([*reads, *submissions], 99),
    }


async def _get(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    body: dict[str, Any] = ok(await client.get(path))
    return body


def _round(value: float) -> float:
    return round(value, 2)


def main() -> None:
    """Measure, and print the figures or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    arguments = parser.parse_args()
    print_figures(
        asyncio.run(measure(arguments.quick)),
        as_json=arguments.json,
        goal=f"paced_p99_ms <= {GOAL_P99_MS:g} with a job training beside it",
    )


if __name__ == "__main__":
    main()
