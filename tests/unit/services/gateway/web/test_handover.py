"""Questions are answered by another process, everything else here; and both while it is away."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import uvloop
from prometheus_client import REGISTRY

from services.gateway.web.handover import QUESTIONS, InferenceProcess
from services.gateway.web.server import HttpServer
from tests.unit.services.gateway.web.answering import who
from tunery.runtime.health import Health
from tunery.runtime.hosts.keeping import keep
from tunery.runtime.tasks import stop_tasks

QUESTION = "/v1/chat/completions"
HERE = os.getpid()
START_S_MAX = 120


@dataclass
class Gateway:
    client: httpx.AsyncClient

    async def ask(self, path: str = QUESTION, content: bytes = b"{}") -> tuple[int, int]:
        """Ask, and return which process has answered and how many bytes it got."""
        answer = await self.client.post(path, content=content)
        process, size, _ = answer.text.split()
        return int(process), int(size)

    async def elsewhere(self) -> tuple[int, int]:
        """The process that answers, once it is another; and how often this one has answered."""
        here = 0
        async with asyncio.timeout(START_S_MAX):
            while True:
                try:
                    process, _ = await self.ask()
                except httpx.TransportError:
                    continue  # it was given to a process that has just been killed
                if process != HERE:
                    return process, here
                here += 1
                await asyncio.sleep(0.05)


@asynccontextmanager
async def gateway() -> AsyncIterator[Gateway]:
    inference = InferenceProcess("tests.unit.services.gateway.web.answering")
    server = HttpServer(who, "127.0.0.1", 0, give=inference.give)
    kept = [asyncio.create_task(keep(host, Health())) for host in (server, inference)]
    try:
        await server.ready()
        url = "http://{}:{}".format(*server.address)
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            yield Gateway(client)
    finally:
        await stop_tasks(kept)


def on_the_loop_of_services(test: Callable[[Gateway], Awaitable[None]]) -> None:
    async def run() -> None:
        async with gateway() as asked:
            await test(asked)

    uvloop.run(run())


def counts() -> tuple[float, float]:
    """How many answers of the other process are in the metrics of this one, and their seconds."""
    labels = {"method": "POST", "route": "/told"}
    value = REGISTRY.get_sample_value
    count = value("tunery_http_requests_total", {**labels, "status": "200"})
    return count or 0.0, value("tunery_http_request_seconds_sum", labels) or 0.0


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_questions_go_to_another_process_with_all_their_bytes() -> None:
    other = 0

    async def test(asked: Gateway) -> None:
        nonlocal other
        assert (await asked.ask())[0] == HERE, "it starts with the first question"
        other, _ = await asked.elsewhere()
        large = bytes(3_000_000)
        assert await asked.ask(content=large) == (other, len(large))
        for question in QUESTIONS:
            path = question.split()[1].decode()
            assert await asked.ask(path) == (other, 2)
        assert await asked.ask("/v1/files", large) == (HERE, len(large))
        before, seconds = counts()
        many = await asyncio.gather(*(asked.ask() for _ in range(90)))
        assert {process for process, _ in many} == {other}
        async with asyncio.timeout(START_S_MAX):
            while counts() != (before + 90, seconds + 90 * 0.25):  # noqa: ASYNC110  # another process tells
                await asyncio.sleep(0.01)

    on_the_loop_of_services(test)
    assert not is_alive(other)


def test_a_connection_comes_back_to_the_api_with_its_next_request() -> None:
    async def test(asked: Gateway) -> None:
        other, _ = await asked.elsewhere()
        first = await asked.client.post("/v1/files", content=b"")
        question = await asked.client.post(QUESTION, content=b"")
        after = await asked.client.post("/v1/files", content=b"")
        processes, _, ports = zip(*(a.text.split() for a in (first, question, after)), strict=True)
        assert [int(process) for process in processes] == [HERE, other, HERE]
        assert ports[0] == ports[1] != ports[2]
        assert question.headers["connection"] == "close"

    on_the_loop_of_services(test)


def test_the_api_answers_itself_until_a_killed_process_is_back() -> None:
    async def test(asked: Gateway) -> None:
        other, _ = await asked.elsewhere()
        os.kill(other, signal.SIGKILL)
        again, here = await asked.elsewhere()
        assert again != other
        assert here

    on_the_loop_of_services(test)


def test_a_process_that_still_starts_ends_with_the_api() -> None:
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    program = "from services.gateway.web import handover; import time; handover.end_with_api(); "
    with theirs, ours:
        process = subprocess.Popen(
            [sys.executable, "-c", program + "time.sleep(600)"], stdin=theirs.fileno()
        )
    assert process.wait(START_S_MAX) == -signal.SIGTERM
