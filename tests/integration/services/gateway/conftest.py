"""One control plane for the gateway's integration tests: real servers, real services, no node."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.bases import tiny_base
from tests.integration.services.gateway.control_plane import SERVICES, admin
from tests.stacks import temporary_data_dir
from tunery.local.stack import Stack, stack


@pytest.fixture(scope="session")
def tiny() -> Path:
    return tiny_base().dir


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def running(tiny: Path) -> AsyncIterator[Stack]:
    """Control plane without a node: jobs queue and wait."""
    with temporary_data_dir() as folder:
        async with stack(folder, services=SERVICES, environ={}) as started:
            async with admin(started) as api:
                tenant = {"id": "local", "name": "local", "plan": "premium"}
                assert (await api.post("/v1/tenants", json=tenant)).status_code == 201
                base = {"id": "tiny", "path": str(tiny)}
                added = await api.post("/v1/bases", json=base)
                assert added.status_code == 201, added.text
            yield started
