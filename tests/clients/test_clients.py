"""Tools that were written for OpenAI's fine-tuning, unchanged, against a whole stack."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.clients.programs import LEFT_OUT, command_of
from tests.e2e.stories import RunningStack, rows, running_stack

pytestmark = pytest.mark.timeout(600)

RUN_S_MAX: Final = 300


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="home")
async def ready_stack() -> AsyncIterator[RunningStack]:
    async with running_stack() as home:
        yield home


async def run_client(home: RunningStack, client: str, folder: Path) -> Any:
    """The JSON that a client's script prints last."""
    command = await asyncio.to_thread(command_of, client, folder)
    (folder / "rows.jsonl").write_bytes(rows())
    process = await asyncio.create_subprocess_exec(
        *(*command, str(folder / "rows.jsonl")),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "OPENAI_BASE_URL": f"{home.stack.api_url}/v1",
            "OPENAI_API_KEY": home.stack.admin_key,
            "TUNERY_MODEL": home.base,
            "WANDB_MODE": "offline",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )
    async with asyncio.timeout(RUN_S_MAX):
        out, _ = await process.communicate()
    said = out.decode()
    assert process.returncode == 0, said
    return json.loads(said.splitlines()[-1])


@pytest.mark.parametrize("client", LEFT_OUT)
async def test_first_hour_s02_a_client_trains_a_model_unchanged(
    home: RunningStack, client: str, tmp_path: Path
) -> None:
    said = await run_client(home, client, tmp_path)
    jobs = (await home.api.get("/fine_tuning/jobs", limit=2))["data"]
    (job,) = [job for job in jobs if job["status"] == "succeeded"][:1]
    assert said["model"] == job["fine_tuned_model"]
    assert said.get("job", job["id"]) == job["id"]
