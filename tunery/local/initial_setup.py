"""What `up` does once the gateway is ready: the first tenant, the base model.

Each step is a function that returns a line for the reader; it raises LocalError when the stack is
of no use without it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import httpx

from tunery.local.errors import LocalError
from tunery.local.paths import BASE_MODEL_ID, base_model_dir
from tunery.local.settings import TENANT
from tunery.local.stack import Stack

REQUEST_S_MAX: Final = 30.0
ATTEMPTS_MAX: Final = 10
PAUSE_MS: Final = 500

Step = Callable[[Stack, httpx.AsyncClient], Awaitable[str]]


async def create_tenant(_running: Stack, client: httpx.AsyncClient) -> str:
    body = {"id": TENANT, "name": TENANT, "plan": "premium"}
    reply = await post(client, "/v1/tenants", body)
    match reply.status_code:
        case 200 | 201:
            return f"tenant {TENANT} created"
        case 409:
            return f"tenant {TENANT} is there"
        case _:
            raise refused("the first tenant could not be created", reply)


async def register_base(_running: Stack, client: httpx.AsyncClient) -> str:
    folder = base_model_dir()
    if not (folder / "model.safetensors").is_file():
        return f"no base model in {folder}: `make setup` converts it, `tunery base add` adds it"
    reply = await post(client, "/v1/bases", {"id": BASE_MODEL_ID, "path": str(folder)})
    match reply.status_code:
        case 200 | 201 | 202:
            return f"base model {BASE_MODEL_ID} registered"
        case 409:
            return f"base model {BASE_MODEL_ID} is there"
        case 404:
            return f"base model {BASE_MODEL_ID} not registered: this gateway has no /v1/bases"
        case _:
            raise refused("the base model could not be registered", reply)


#: in this order; each is harmless when repeated
STEPS: Final[tuple[Step, ...]] = (create_tenant, register_base)


async def run_setup_steps(
    running: Stack, tell: Callable[[str], None], steps: tuple[Step, ...] = STEPS
) -> None:
    """Run the steps with the admin key. Raises LocalError of the step that was refused."""
    headers = {"Authorization": f"Bearer {running.admin_key}"}
    async with httpx.AsyncClient(
        base_url=running.api_url, headers=headers, timeout=REQUEST_S_MAX, trust_env=False
    ) as client:
        for step in steps:
            tell(await step(running, client))


async def post(client: httpx.AsyncClient, path: str, body: dict[str, str]) -> httpx.Response:
    """Try again while the owners of the streams are still taking over their partitions (503)."""
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
        f"POST {path} did not succeed in {ATTEMPTS_MAX} attempts: {problem}",
        "see `tunery logs gateway` and `tunery logs billing`",
    )


def refused(what: str, reply: httpx.Response) -> LocalError:
    return LocalError(
        f"{what}: {reply.status_code} {reply.text[:300]}", "see `tunery logs gateway`"
    )
