"""Creates the first tenant and registers the base model, once the gateway is ready.

Each step returns a line for the user, and raises LocalError when the stack cannot be used
without it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import httpx

from tunery.local.errors import LocalError
from tunery.local.paths import BASE_MODEL_ID, base_model_dir
from tunery.local.settings import TENANT
from tunery.local.stack import Stack

REQUEST_S_MAX: Final = 30.0
ATTEMPTS_MAX: Final = 10
PAUSE_MS: Final = 500
LICENCE: Final = "Apache-2.0"  # of the base model of the demo: tenants may download it

Step = Callable[[Stack, httpx.AsyncClient], Awaitable[str]]


async def create_tenant(_running: Stack, client: httpx.AsyncClient) -> str:
    """Create the first tenant unless it exists. Raises LocalError when that is refused."""
    body = {"id": TENANT, "name": TENANT, "plan": "premium"}
    reply = await post(client, "/v1/tenants", body)
    match reply.status_code:
        case 200 | 201:
            return f"tenant {TENANT} created"
        case 409:
            return f"tenant {TENANT} exists"
        case _:
            raise refusal("the first tenant could not be created", reply)


async def register_base(_running: Stack, client: httpx.AsyncClient) -> str:
    """Register the base model of the demo, if it is installed. Raises LocalError."""
    folder = base_model_dir()
    if not (folder / "model.safetensors").is_file():
        return f"no base model in {folder}: `make setup` converts it, `tunery base add` adds it"
    body = {"id": BASE_MODEL_ID, "path": str(folder), "licence": LICENCE, "shared": True}
    reply = await post(client, "/v1/bases", body)
    match reply.status_code:
        case 200 | 201 | 202:
            return f"base model {BASE_MODEL_ID} registered"
        case 409:
            return f"base model {BASE_MODEL_ID} exists"
        case 404:
            return f"base model {BASE_MODEL_ID} not registered: this gateway has no /v1/bases"
        case _:
            raise refusal("the base model could not be registered", reply)


#: run in this order at every start; each can be repeated
STEPS: Final[tuple[Step, ...]] = (create_tenant, register_base)


async def run_setup_steps(
    running: Stack, notice: Callable[[str], None], steps: tuple[Step, ...] = STEPS
) -> None:
    """Run the steps with the admin key; `notice` gets the line of each. Raises LocalError."""
    headers = {"Authorization": f"Bearer {running.admin_key}"}
    async with httpx.AsyncClient(
        base_url=running.api_url, headers=headers, timeout=REQUEST_S_MAX, trust_env=False
    ) as client:
        for step in steps:
            notice(await step(running, client))


async def post(client: httpx.AsyncClient, path: str, body: Mapping[str, Any]) -> httpx.Response:
    """POST `body`, repeated while owners still take over their partitions (503).

    Raises LocalError after ATTEMPTS_MAX tries.
    """
    problem = ""
    for _attempt in range(ATTEMPTS_MAX):
        try:
            reply = await client.post(path, json=body)
            if reply.status_code not in {502, 503, 504}:
                return reply
            problem = f"{reply.status_code} {reply.text[:200]}"
        except httpx.TransportError as error:
            problem = f"{type(error).__name__}: {error}"
        await asyncio.sleep(PAUSE_MS / 1000)
    raise LocalError(
        f"POST {path} did not succeed in {ATTEMPTS_MAX} tries: {problem}",
        "see `tunery logs gateway` and `tunery logs billing`",
    )


def refusal(what: str, reply: httpx.Response) -> LocalError:
    return LocalError(
        f"{what}: {reply.status_code} {reply.text[:300]}", "see `tunery logs gateway`"
    )
