import asyncio
import socket
from typing import Any

import httpx
import pytest
import uvloop

from services.gateway.web.server import HttpServer
from tests.unit.tunery.runtime.strays import cancel_by_mistake, tasks_called, until
from tunery.runtime.backoff import Backoff
from tunery.runtime.health import Health
from tunery.runtime.hosts import keeping
from tunery.runtime.hosts.keeping import keep
from tunery.runtime.tasks import stop_tasks


async def hello(scope: Any, _receive: Any, send: Any) -> None:
    """The smallest ASGI application."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


async def answer(client: httpx.AsyncClient, url: str) -> str:
    """The body, once the server answers. Raises TimeoutError."""
    async with asyncio.timeout(10):
        while True:
            try:
                return (await client.get(url)).text
            except httpx.TransportError:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", ["http", "uvicorn"])
def test_server_answers_again_on_its_port_after_a_stray_cancellation(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "BACKOFF", Backoff(1, 3_000))
    answers = uvloop.run(answers_after_cancellations(name))  # the loop that services run on
    assert answers == ["/there", "/there"]


async def answers_after_cancellations(name: str) -> list[str]:
    """Cancel the task of this name twice; what the server answers after each."""
    server, health = HttpServer(hello, "127.0.0.1", free_port()), Health()
    url = "http://{}:{}/there".format(*server.address)
    keeper = asyncio.create_task(keep(server, health))
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            await server.ready()
            assert (await answer(client, url)) == "/there"
            answers = []
            for _ in range(2):
                cancel_by_mistake(name)
                await until(lambda: dict(health.failing) == {"http": "cancelled"})
                answers.append(await answer(client, url))
            return answers
    finally:
        await stop_tasks((keeper,))
        await until(lambda: not tasks_called("uvicorn"))  # the next test looks for its own
