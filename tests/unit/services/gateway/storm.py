"""Concurrent submissions over a faulty network, which loses, delays and duplicates messages.

The unmodified `openai` client repeats what it got no answer to. At the end there must be exactly
as many jobs as there were intents, whatever arrived how often and in which order.
"""

import asyncio
import random
from collections import Counter
from typing import Any, Final

import httpx

LATE_S: Final = 0.3  # longer than the client waits for an answer
RETRIES_MAX: Final = 60
AT_ONCE: Final = 20
FAULTS: Final = ("request lost", "answer lost", "request late", "answer late", "sent twice")


class FaultyTransport(httpx.AsyncBaseTransport):
    """A transport in which half of the submissions meet one of FAULTS."""

    def __init__(self, line: httpx.AsyncBaseTransport, seed: int, late_s: float) -> None:
        self._line, self._dice, self._late_s = line, random.Random(seed), late_s
        self.met: Counter[str] = Counter()
        self.behind: set[asyncio.Task[Any]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        fault = self._dice.choice((*FAULTS, *[""] * len(FAULTS)))
        if fault == "sent twice" and "idempotency-key" not in request.headers:
            fault = ""  # without a key a copy cannot be distinguished from a second job
        self.met[fault] += 1
        match fault:
            case "request lost":
                raise httpx.ConnectError("lost", request=request)
            case "answer lost":
                await self._send(request)
                raise httpx.ReadError("lost", request=request)
            case "request late":  # it arrives after its own repetition
                self._behind(self._late(request))
                raise httpx.ReadTimeout("late", request=request)
            case "answer late":  # its repetition arrives while it is being worked on
                self._behind(self._send(request))
                raise httpx.ReadTimeout("late", request=request)
            case "sent twice":
                self._behind(self._send(request))
                return await self._send(request)
            case _:
                return await self._send(request)

    async def aclose(self) -> None:
        await self._line.aclose()

    async def _send(self, request: httpx.Request) -> httpx.Response:
        copy = httpx.Request(
            request.method, request.url, headers=request.headers, content=request.content
        )
        response = await self._line.handle_async_request(copy)
        body = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=body)

    async def _late(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(self._dice.random() * self._late_s)
        return await self._send(request)

    def _behind(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.behind.add(task)


async def storm(
    line: httpx.AsyncBaseTransport,
    base_url: str,
    api_key: str,
    body: dict[str, Any],
    intents: int,
    seed: int,
    late_s: float = LATE_S,
) -> tuple[list[str], Counter[str]]:
    """Submit `intents` jobs, half with a key; returns each one's job, and counts of faults."""
    bad = FaultyTransport(line, seed, late_s)
    from openai import AsyncOpenAI  # a second of import, for few tests

    turns = asyncio.Semaphore(AT_ONCE)
    async with AsyncOpenAI(
        base_url=base_url,
        api_key=api_key,
        max_retries=RETRIES_MAX,
        http_client=httpx.AsyncClient(transport=bad),  # type: ignore[arg-type]  # httpx2 is its twin
    ) as client:

        async def submit(number: int) -> str:
            headers = {"Idempotency-Key": f"intent-{seed}-{number}"} if number % 2 else {}
            async with turns:
                job = await client.fine_tuning.jobs.create(
                    **body, metadata={"intent": f"{seed}-{number}"}, extra_headers=headers
                )
            return job.id

        jobs = await asyncio.gather(*(submit(number) for number in range(intents)))
        while bad.behind:
            late = await asyncio.gather(*bad.behind)
            assert {answer.status_code for answer in late} <= {200}, [item.text for item in late]
            bad.behind.difference_update({task for task in bad.behind if task.done()})
    return jobs, bad.met


def quick_retries(monkeypatch: Any) -> None:
    """The client's pauses between tries, a tenth of what they are."""
    from openai import _base_client

    monkeypatch.setattr(_base_client, "INITIAL_RETRY_DELAY", 0.05)
    monkeypatch.setattr(_base_client, "MAX_RETRY_DELAY", 0.2)


async def listed(client: httpx.AsyncClient, prefix: str) -> list[str]:
    """Every job of the tenant, page after page."""
    ids: list[str] = []
    params: dict[str, Any] = {"limit": 100}
    while True:
        page = (await client.get(f"{prefix}/fine_tuning/jobs", params=params)).json()
        ids += [item["id"] for item in page["data"]]
        if not page["has_more"]:
            return ids
        params["after"] = page["last_id"]
