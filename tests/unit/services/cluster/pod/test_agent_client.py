"""A pod whose agent is unreachable, or refuses."""

import asyncio
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from schemas.pool import ReportExit
from services.cluster.domain.link import Pulse
from services.cluster.pod.agent_client import AgentAway, AgentClient, AgentRefuses
from tests.http_server import answering
from tests.unit.services.trainer.domain.test_evolve import grant
from tunery.runtime.clock import SystemClock

STATUSES: list[int] = []  # of the next answers; then 204


class Agent(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(STATUSES.pop(0) if STATUSES else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def url() -> Iterator[str]:
    STATUSES.clear()
    with answering(Agent) as url:
        yield url


def client_of(url: str) -> AgentClient:
    return AgentClient(url, ssl.create_default_context(), SystemClock())


EXIT = ReportExit(token=grant().token, incarnation="a1", outcome="succeeded", elapsed_ms=1)


async def test_a_fact_is_sent_until_it_is_in_the_log(url: str) -> None:
    STATUSES.extend([503, 503])
    client = client_of(url)
    await asyncio.wait_for(client.fact(EXIT), 120)
    assert STATUSES == []
    await client.close()


async def test_a_fact_that_is_refused_is_not_said_again(url: str) -> None:
    STATUSES.extend([410, 500])
    client = client_of(url)
    with pytest.raises(AgentRefuses, match="410"):
        await client.fact(EXIT)
    assert STATUSES == [500]
    await client.close()


async def test_an_unreachable_agent_differs_from_one_that_refuses() -> None:
    client = client_of("http://127.0.0.1:1")
    with pytest.raises(AgentAway, match="ConnectError"):
        await client.pulse(Pulse())
    await client.close()
