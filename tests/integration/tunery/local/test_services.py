"""All services on real servers: they become ready, do their setup, and survive kill -9 of each."""

import asyncio

import httpx
import pytest

from tests.stacks import temporary_data_dir
from tunery.local import initial_setup
from tunery.local.paths import BASE_MODEL_ID
from tunery.local.stack import AGENT, SERVICES, Stack, stack

ANSWER_S_MAX = 180


async def models(running: Stack) -> list[str]:
    """Ids of base models; waits until the gateway answers 200."""
    headers = {"Authorization": f"Bearer {running.admin_key}"}
    async with asyncio.timeout(ANSWER_S_MAX):
        async with httpx.AsyncClient(base_url=running.api_url, headers=headers) as client:
            while True:
                try:
                    reply = await client.get("/v1/models")
                    if reply.status_code == 200:
                        return [base["id"] for base in reply.json()["data"]]
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.2)


@pytest.mark.soak  # test_bad_days kills each of them while a job runs
@pytest.mark.timeout(900)
async def test_every_service_restarts_after_a_kill() -> None:
    names = [name for name in SERVICES if name != AGENT]
    with temporary_data_dir() as folder:
        async with stack(folder, services=names, environ={}) as running:
            lines: list[str] = []
            await initial_setup.run_setup_steps(running, lines.append)
            assert lines == ["tenant local created", f"base model {BASE_MODEL_ID} registered"]
            assert await models(running) == [BASE_MODEL_ID]
            before = {name: running.supervisor.pid(name) for name in names}
            for name in names:
                assert len(running.kill(name)) == 1
            for name in names:
                await running.await_ready(name)
            after = {name: running.supervisor.pid(name) for name in names}
            assert all(after[name] not in {None, before[name]} for name in names)
            assert await models(running) == [BASE_MODEL_ID]
            again: list[str] = []
            await initial_setup.run_setup_steps(running, again.append)
            assert again[0] == "tenant local exists"
