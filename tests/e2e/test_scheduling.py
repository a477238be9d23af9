"""Sixty jobs of three tiers on three nodes, with losses: the journal decides the same again.

Servers, services and agents are real; what trains and scores is a stand-in (`stand_in_process`).
"""

import asyncio
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.e2e import stand_in_agent
from tests.e2e.stand_in_process import STORIES, Story
from tests.e2e.stories import Api, Json, Tenant, client, rows, running_stack, tunery
from tunery.local.stack import ServiceSpec

pytestmark = pytest.mark.timeout(900)

AGENTS: Final = tuple(
    ServiceSpec(
        f"agent-{name}",
        module=stand_in_agent.__name__,
        env={"TUNERY_NODE_ID": name, "TUNERY_NODE_SLOTS": "8"},
        stop_ms_max=60_000,
    )
    for name in "abc"
)
TIERS: Final = ("premium", "standard", "free")
JOBS_OF_TIER: Final = 10
#: how the trainings of a tier end, in turn: all but the second have an evaluation as well
ENDS: Final[tuple[Story, ...]] = ("unpublished", "user", "unpublished", "unjudged")
CONCURRENCY: Final = {"soft_gpu_ms": 10**12, "hard_gpu_ms": 10**12, "concurrency": JOBS_OF_TIER}


@pytest.mark.soak  # tests/simulation/scheduling decides each record of the pool again
async def test_sched_b18_a_live_journal_decides_the_same_byte_for_byte(tmp_path: Path) -> None:
    async with running_stack(AGENTS) as home, AsyncExitStack() as clients:
        tenants = []
        for tier in TIERS:
            await home.api.post("/tenants", {"id": tier, "plan": tier, "limits": CONCURRENCY})
            key = await home.api.post(f"/tenants/{tier}/keys", {"name": "test"})
            http = await clients.enter_async_context(client(home.stack.api_url, key["key"]))
            file_id = await Api(http).upload(rows())
            tenants.append(Tenant(Api(http), home.base, file_id, home.dsn))
        submitted = [
            (tenant, await submit(tenant, number))
            for number in range(JOBS_OF_TIER)
            for tenant in tenants
        ]
        # The stack loses an agent with all that it runs, the scheduler, and a node to an operator.
        home.stack.kill("agent-b", tree=True)
        await asyncio.sleep(3)
        assert len(home.stack.kill("scheduler")) == 1
        assert (await tunery(home.stack.folders.root, "node", "drain", "a"))[0] == 0
        await asyncio.sleep(3)
        assert (await tunery(home.stack.folders.root, "node", "uncordon", "a"))[0] == 0
        ends = [
            await tenant.api.job(job_id, lambda job: job["phase"] == "done")
            for tenant, job_id in submitted
        ]
        assert Counter(job["status"] for job in ends) == {"failed": len(TIERS) * JOBS_OF_TIER}
        journal = tmp_path / "pool.jsonl"
        root = home.stack.folders.root
        assert (await tunery(root, "journal", "export", "pool", str(journal)))[0] == 0
    report = await simulate(journal, "--decisions")
    assert report["different_records"] == 0, report
    assert report["kinds"]["LeaseGranted"] > len(TIERS) * JOBS_OF_TIER, "evaluations, and retries"
    assert await simulate(journal, "--decisions") == report
    figures = await simulate(journal)
    assert figures["jobs"] >= len(TIERS) * JOBS_OF_TIER
    assert {"premium_under_5min_pct", "standard_under_1h_pct", "free_under_24h_pct"} <= {*figures}


async def submit(tenant: Tenant, number: int) -> str:
    """A job of one slot: what trains here is a stand-in."""
    return await tenant.submit(seed=STORIES.index(ENDS[number % len(ENDS)]))


async def simulate(journal: Path, *options: str) -> Json:
    """The report of `tunery simulate` on a journal."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tunery.cli.main", "simulate", str(journal), *options, "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    report: Json = json.loads(out)
    return report
