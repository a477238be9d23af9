"""Budgets, plans and suspension against real services; the guide's commands as they are printed."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.services.gateway.control_plane import ROWS
from tests.repo.rules import COMMAND, CONSOLE
from tests.repo.test_documents import ROOT
from tunery.local.stack import Stack

GUIDE = ROOT / "docs" / "how-to" / "budgets.md"
WAITING = "tunery_tenant_jobs_waiting"
SHOWN_S_MAX = 60


async def tunery(plane: Stack, *words: str, key: str | None = None, code: int = 0) -> str:
    env = {
        **os.environ,
        "OPENAI_BASE_URL": f"{plane.api_url}/v1",
        "OPENAI_API_KEY": key or plane.admin_key,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tunery.cli.main", *words),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == code, out.decode()
    return out.decode()


async def as_json(plane: Stack, *words: str, **options: Any) -> Any:
    return json.loads(await tunery(plane, *words, "--json", **options))


async def test_the_commands_of_the_guide_run(running: Stack) -> None:
    await tunery(running, "tenant", "create", "acme")
    blocks = CONSOLE.findall(GUIDE.read_text(encoding="utf-8"))
    create, *commands = [match[1] for block in blocks for match in COMMAND.finditer(block)]
    created = await tunery(running, *create.split()[1:])
    (key,), (key_id,) = re.findall(r"tun-\S+", created), re.findall(r"key_\w+", created)
    assert len(commands) >= 6
    for command in commands:
        words = command.replace("key_8c…", key_id).split()
        assert words.pop(0) == "tunery"
        await tunery(running, *words, key=key)
    (budget,) = await as_json(running, "budget", "list", key=key)
    assert (budget["id"], budget["left_micro"], budget["max_gpu_ms"]) == (
        "tenant",
        250_000_000,
        120 * 3_600_000,
    )


async def test_money_what_a_budget_a_plan_and_a_suspension_refuse(
    running: Stack, tmp_path: Path
) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in ROWS))
    tenant = f"globex-{uuid4().hex[:8]}"  # a second try has another one
    limits = ("--soft-hours", "500", "--hard-hours", "1000", "--concurrency", "1")
    await tunery(running, "tenant", "create", tenant, "--plan", "standard", *limits)
    words = ("key", "create", tenant, "--scope", "read", "--scope", "write")
    created = await as_json(running, *words, "--scope", "budgets.write")
    key = created["key"]
    file = await as_json(running, "file", "upload", str(data), key=key)
    submit = ("job", "submit", "--model", "tiny", "--file", file["id"], "--allow-duplicate")
    await tunery(running, "budget", "set", created["id"], "--amount", "0.000001", key=key)
    refused = await tunery(running, *submit, key=key, code=1)
    assert "budget_exceeded" in refused
    assert created["id"] in refused
    await tunery(running, "budget", "remove", created["id"], key=key)
    await tunery(running, "budget", "set", "--amount", "100", key=key)
    job = await as_json(running, *submit, key=key)
    (budget,) = await as_json(running, "budget", "list", key=key)
    assert budget["held_micro"] == job["cost"]["amount_max_micro"] > 0
    assert budget["held_micro"] + budget["left_micro"] == 100_000_000
    await check_metrics(running, tenant, key, budget["left_micro"])
    assert "concurrency_limit_exceeded" in await tunery(running, *submit, key=key, code=1)
    await tunery(running, "tenant", "plan", tenant, "--plan", "premium")
    second = await as_json(running, *submit, key=key)
    assert (job["lane"], second["lane"]) == ("standard", "premium")
    await tunery(running, "tenant", "suspend", tenant)
    assert "tenant_suspended" in await tunery(running, *submit, key=key, code=1)
    for job_id in (job["id"], second["id"]):
        await tunery(running, "job", "cancel", job_id, key=key)
    (budget,) = await as_json(running, "budget", "list", key=key)
    assert (budget["held_micro"], budget["left_micro"]) == (0, 100_000_000)
    await tunery(running, "tenant", "resume", tenant)
    third = await as_json(running, *submit, key=key)
    await tunery(running, "job", "cancel", third["id"], key=key)


async def check_metrics(plane: Stack, tenant: str, key: str, left_micro: int) -> None:
    """Raises AssertionError unless a key with `read` scrapes what its tenant has, and that alone:
    one standard job that waits, and a budget.
    """
    narrow = (await as_json(plane, "key", "create", tenant, "--scope", "jobs.read"))["key"]
    left = ("tunery_tenant_budget_left", "tenant", "EUR")
    async with httpx.AsyncClient(base_url=f"{plane.api_url}/v1") as client:

        async def scrape(key: str, query: str = "") -> httpx.Response:
            headers = {"authorization": f"Bearer {key}"}
            return await client.get(f"/metrics{query}", headers=headers)

        assert (await client.get("/metrics")).status_code == 401
        assert (await scrape(narrow)).status_code == 403
        assert (await scrape(key, "?tenant=local")).status_code == 403
        other = await scrape(plane.admin_key, "?tenant=local")
        async with asyncio.timeout(SHOWN_S_MAX):
            while f"{WAITING}{{" not in (own := await scrape(key)).text:  # noqa: ASYNC110  # the API computes it
                await asyncio.sleep(0.5)  # figures are kept for some seconds
    assert own.headers["content-type"].startswith("text/plain; version=")
    figures = figures_of(own.text)
    assert figures[left] == left_micro / 1_000_000
    assert figures["tunery_tenant_jobs", "queued"] == 1
    assert [names[1] for names in figures if names[0] == WAITING] == ["standard"]
    assert not {WAITING, left[0]} & {name for name, *_ in figures_of(other.text)}


def figures_of(text: str) -> dict[tuple[str, ...], float]:
    """Name and values of the labels → value, as Prometheus's own parser reads them."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
