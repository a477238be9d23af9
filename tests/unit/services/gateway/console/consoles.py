"""The console over the control plane of the API's tests, and people who are signed in to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from services.gateway.console.app import Console
from services.gateway.console.calls import InProcess
from services.gateway.console.visits import COOKIE
from tests.unit.services.gateway.control_plane import ControlPlane

OWN_SITE = {"sec-fetch-site": "same-origin"}


def console_of(api: ControlPlane) -> Console:
    transport = api.api._transport
    assert isinstance(transport, httpx.ASGITransport)
    return Console(transport.app, api.deps.settings, None)


@asynccontextmanager
async def visiting(console: Console) -> AsyncIterator[httpx.AsyncClient]:
    """A browser without a session."""
    transport = InProcess(console)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as browser:
        yield browser


@asynccontextmanager
async def signed_in(console: Console, key: str) -> AsyncIterator[httpx.AsyncClient]:
    async with visiting(console) as browser:
        answer = await browser.post("/console/sign-in", data={"key": key}, headers=OWN_SITE)
        assert answer.status_code == 303, answer.text
        assert browser.cookies[COOKIE]
        yield browser


def key_of(client: httpx.AsyncClient) -> str:
    return client.headers["authorization"].removeprefix("Bearer ")
