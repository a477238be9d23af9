"""Every call of three generations of the `openai` package, over real services."""

import asyncio
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from tests.environments import environment
from tests.integration.services.gateway.control_plane import admin
from tunery.local.stack import Stack

VERSIONS: Final = (
    "1.109.1",
    pytest.param("2.8.0", marks=pytest.mark.soak),  # between the oldest and the newest
    "3.52.0",
)
SCRIPT: Final = Path(__file__).with_name("openai_surface.py")
SCRIPT_S_MAX: Final = 240


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_call_answers_as_the_package_expects(running: Stack, version: str) -> None:
    tenant = f"openai-{uuid4().hex[:8]}"  # a second try has another one
    async with admin(running) as api:
        assert (await api.post("/v1/tenants", json={"id": tenant})).status_code == 201
        key = (await api.post(f"/v1/tenants/{tenant}/keys", json={})).json()["key"]
    programs = await asyncio.to_thread(environment, "openai", version)
    process = await asyncio.create_subprocess_exec(
        *(str(programs / "python"), str(SCRIPT), "tiny"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"OPENAI_BASE_URL": f"{running.api_url}/v1", "OPENAI_API_KEY": key},
    )
    out, errors = await asyncio.wait_for(process.communicate(), SCRIPT_S_MAX)
    assert process.returncode == 0, errors.decode()
    assert out.decode().split() == [version]
