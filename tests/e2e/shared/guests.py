"""Tenants of the stack that tests share, each with a key, a validated file and commands."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tests.e2e.stories import COMMAND_S_MAX, Api, RunningStack, client, rows


@dataclass(frozen=True)
class Guest(RunningStack):
    """A tenant of the shared stack. operator: the API with the operator's key."""

    operator: Api
    key: str

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of this tenant's programs."""
        return {"OPENAI_BASE_URL": f"{self.stack.api_url}/v1", "OPENAI_API_KEY": self.key}

    async def command(self, *words: str, code: int = 0) -> Any:
        """Run a `tunery` command, check its exit code, and return the JSON that it prints."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tunery.cli.main", *words, "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self.variables},
        )
        out, errors = await asyncio.wait_for(process.communicate(), COMMAND_S_MAX)
        assert process.returncode == code, errors.decode()
        return json.loads(out)


@asynccontextmanager
async def new_guest(running: RunningStack, plan: str = "premium") -> AsyncIterator[Guest]:
    """Create a tenant with a key and a validated file."""
    tenant = f"guest-{uuid4().hex[:12]}"
    await running.api.post("/tenants", {"id": tenant, "plan": plan})
    key = (await running.api.post(f"/tenants/{tenant}/keys", {"name": "test"}))["key"]
    async with client(running.stack.api_url, key) as http:
        api = Api(http)
        file_id = await api.upload(rows())
        yield Guest(
            api,
            running.base,
            file_id,
            running.dsn,
            running.stack,
            running.receiver,
            operator=running.api,
            key=key,
        )
