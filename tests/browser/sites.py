"""The console over an API in memory, of a tenant that has something for each view."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from math import exp, sin
from typing import Any, Final

import httpx
import uvicorn
from playwright.async_api import Browser, Page

from schemas.telemetry import Step
from schemas.topics import POOL
from schemas.training import BlobFile
from schemas.units import HOUR_MS
from services.gateway.console.app import Console
from simulator.control_plane.samples import node
from tests.unit.services.gateway.billing.test_invoice_routes import MONTH, billed
from tests.unit.services.gateway.billing.used import lease, sliced, use
from tests.unit.services.gateway.console.consoles import key_of
from tests.unit.services.gateway.control_plane import ControlPlane, control_plane
from tests.unit.services.gateway.jobs.test_queue_routes import ask_pool
from tests.unit.services.gateway.jobs.test_routes import submit
from tests.unit.services.gateway.jobs.test_sweep_routes import sweep
from tests.unit.services.gateway.models.test_routes import version
from tests.unit.services.gateway.sessions.sdk import Sdk
from tunery.local.console import scripts_dir
from tunery.work.session import StepAnswer

LATE_MS: Final = 120_000
RIGHT_TO_LEFT: Final = "מגדלור \u202eנמל"  # with a mark that turns all that follows it
#: files of a version
ADAPTER: Final = {"adapter_config.json": b'{"r": 8}', "adapter_model.safetensors": b"weights"}
HOOK: Final = {"name": "ci", "url": "https://example.com/hook"}
OBSERVE: Final = """
  window.shifted = 0;
  new PerformanceObserver((list) => {
    for (const each of list.getEntries()) if (!each.hadRecentInput) window.shifted += each.value;
  }).observe({type: "layout-shift", buffered: true});
"""
#: cumulative layout shift of the page so far
SHIFTS: Final = "shifted"


@dataclass
class Site:
    """The console at an address, with keys of a tenant and of the operator, and its views."""

    url: str
    tenant_key: str
    operator_key: str
    views: dict[str, str]
    tenant: httpx.AsyncClient  # of the API
    console: Console
    api: ControlPlane


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """One tenant that has something for each view."""
    async with control_plane() as api:
        views, tenant = await _filled(api)
        settings = api.deps.settings.model_copy(update={"console_dir": scripts_dir()})
        app = api.api._transport.app  # type: ignore[attr-defined]  # as in `console_of`
        console = Console(app, settings, None)
        async with serving(console) as url:
            yield Site(url, key_of(tenant), key_of(api.api), views, tenant, console, api)


@asynccontextmanager
async def serving(console: Console, port: int = 0) -> AsyncIterator[str]:
    """Serve the console inside the block; what is connected at its end is cut off."""
    config = uvicorn.Config(console, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", port))  # it queues what comes before the start
    running = asyncio.create_task(server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/console"
    finally:
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        server.should_exit = server.force_exit = True
        await running


async def _filled(api: ControlPlane) -> tuple[dict[str, str], httpx.AsyncClient]:
    """Give a tenant something to see; return the views by name, and its client."""
    client = await billed(api, "ftjob-last")  # in order of ids after those that are drawn
    tenant = client.headers["x-tenant"]
    file_id = (await api.upload(client))["id"]
    await api.validated(client, file_id)
    jobs = [
        (await submit(client, file_id, suffix=f"rank-{rank}", lora={"rank": rank}, seed=7)).json()[
            "id"
        ]
        for rank in (8, 16)
    ]
    await api.runtime.sender.send(POOL, "default", "", node("a", "a-1", 1))
    for job_id in jobs:
        await ask_pool(api, tenant, job_id, memory_bytes=1)
        for number in range(1, 41):
            better = 0.2 if job_id == jobs[1] else 0.0  # the larger rank learns more
            await api.telemetry(tenant, job_id, step_of(tenant, job_id, number, better))
    await use(api, sliced(lease(tenant, jobs[0]), api.deps.clock.now_ms() // HOUR_MS))
    model_id = await version(api, client, "keeper", job_id=jobs[0], files=_adapter())
    await client.post(f"/v1/models/{model_id}/promote", json={"stage": "staging"})
    long_id = await version(api, client, "long" * 42, job_id=jobs[1])
    assert len(long_id) >= 200
    others = []
    for number, rank in enumerate((4, 32, 64, 128), 1):
        settings = {"suffix": f"wide-{rank}", "lora": {"rank": rank}, "seed": 7}
        other = await submit(client, file_id, **settings)
        others.append(other.json()["id"])
        for step in range(1, 41):
            await api.telemetry(tenant, others[-1], step_of(tenant, others[-1], step, -number / 5))
        await client.post(f"/v1/fine_tuning/jobs/{others[-1]}/cancel")
    rtl_id = (await submit(client, file_id, suffix=RIGHT_TO_LEFT)).json()["id"]
    swept = (await client.post("/v1/sweeps", json=sweep(file_id))).json()["id"]
    for job_id in (*jobs, *others):
        path = f"/v1/fine_tuning/jobs/{job_id}/metrics?limit=100"
        await api.until(client, path, lambda page: len(page["data"]) == 40)
    session_id = await _session(Sdk(api, client))
    await _members(api, client)
    hook = (await client.post("/v1/webhook_endpoints", json=HOOK)).json()["id"]
    # the queue is planned a few seconds after a change
    await api.until(client, "/v1/fine_tuning/jobs?limit=100", _shows_starts)
    return {
        "jobs": "",
        "job": f"/jobs/{jobs[0]}",
        "starts": f"/jobs/{jobs[1]}/starts",
        "compare": "/compare?" + "&".join(f"job={job_id}" for job_id in (*jobs, *others)),
        "new": "/new",
        "report": f"/new?file={file_id}",
        "sweeps": "/sweeps",
        "sweep": f"/sweeps/{swept}",
        "sessions": "/sessions",
        "session": f"/sessions/{session_id}",
        "models": "/models",
        "model": f"/models/{model_id}",
        "files": f"/models/{model_id}/files",
        "long": f"/models/{long_id}",
        "right to left": f"/jobs/{rtl_id}",
        "playground": f"/playground?model={model_id}",
        "usage": "/money",
        "invoice": f"/money/invoices/{MONTH}-EUR",
        "statement": f"/money/jobs/{jobs[0]}",
        "webhooks": "/webhooks",
        "webhook": f"/webhooks/{hook}",
        "keys": "/keys",
        "operators": "/operators",
        "plan": "/operators/plan?like=a&nodes=2",
        "tenants": "/operators/tenants",
        "missing": "/nowhere",
    }, client


def _shows_starts(page: Any) -> bool:
    waiting = [job for job in page["data"] if job["status"] in ("queued", "validating_files")]
    return all(job["queue"] is not None and job["queue"]["eta"] for job in waiting)


async def _members(api: ControlPlane, client: httpx.AsyncClient) -> None:
    """Keys of two members; promotions to production need the approval of the first."""
    ids = []
    for name, scopes in (("Ada", ["read", "jobs.write", "models.write"]), ("Ben", ["read"])):
        body = {"name": name, "scopes": scopes}
        key = await api.api.post(f"/v1/tenants/{client.headers['x-tenant']}/keys", json=body)
        ids.append(key.json()["id"])
    rule = {"stage": "production", "required": 1, "approvers": ids[:1]}
    await client.post("/v1/approval_rules", json=rule)


def _adapter() -> tuple[BlobFile, ...]:
    return tuple(
        BlobFile(name=name, blob=f"t/x/{name}", sha256=sha256(part).hexdigest(), bytes=len(part))
        for name, part in ADAPTER.items()
    )


async def _session(sdk: Sdk) -> str:
    """A session that waits for its slot again, with an answered step and one that is not."""
    session_id = await sdk.model()
    path = f"/v1/sessions/{session_id}/commands"
    (command,) = (await sdk.client.get(path)).json()["data"]
    await sdk.answer(session_id, command["id"], StepAnswer(grad_norm=1.0))
    await sdk.api.until(sdk.client, path, lambda page: page["data"][0]["answered_at"])
    asked = await sdk.call("optim_step", {"model_id": session_id, "seq_id": 2, "adam_params": {}})
    assert asked.is_success, asked.text
    return session_id


def step_of(tenant: str, job_id: str, number: int, better: float = 0.0) -> Step:
    """Return a step of a curve with a gap: two losses are not finite."""
    loss = 0.6 - better + 2.4 * exp(-number / 9) + 0.09 * sin(2.4 * number)
    return Step(
        tenant=tenant,
        job_id=job_id,
        attempt=1,
        step=number,
        total_steps=100,
        loss=float("nan") if number in (20, 21) else loss,
        accuracy=0.5,
        grad_norm=1.0,
        learning_rate=1e-4 * min(number / 5, 5 / number),
        tokens=100 * number,
        elapsed_ms=1_000 * number,
        tokens_per_s=900.0 + 120 * sin(number),
        memory_bytes=(1 << 30) + (min(number, 12) << 24),
    )


async def signed_in(chromium: Browser, url: str, key: str, wrong: list[str]) -> Page:
    # axe-core is added to the page by its text, which the console's policy refuses
    context = await chromium.new_context(bypass_csp=True, locale="en-GB")
    await context.add_init_script(OBSERVE)
    page = await context.new_page()
    page.set_default_timeout(LATE_MS)
    page.on("pageerror", lambda error: wrong.append(f"{page.url} {error}"))
    await page.goto(f"{url}/sign-in")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(url)
    return page


async def steps_of(page: Page, count: int) -> list[int]:
    """Return the steps of the page's curve, once there are `count` of them."""
    async with asyncio.timeout(LATE_MS / 1_000):
        while True:
            steps: list[int] = await page.evaluate("curve?.step ?? []")
            if len(steps) >= count:
                return steps
            await page.wait_for_timeout(100)
