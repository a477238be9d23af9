"""Concurrent submissions over a faulty network: each intended job is created exactly once.

STORM_INTENTS=1000 is the full proof (150 s on two busy cores); the default is smaller.
"""

import json
import os

import httpx
import pytest

from tests.integration.services.gateway.control_plane import ROWS, admin
from tests.unit.services.gateway.storm import FAULTS, listed, quick_retries, storm
from tunery.local.stack import Stack

INTENTS = int(os.environ.get("STORM_INTENTS", "200"))
LIMITS = {"soft_gpu_ms": 10**13, "hard_gpu_ms": 10**13, "concurrency": 10_000}


async def test_each_intent_creates_one_job_despite_retries_and_faults(
    running: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_retries(monkeypatch)
    async with admin(running) as api:
        tenant = {"id": "stormy", "plan": "premium", "limits": LIMITS}
        assert (await api.post("/v1/tenants", json=tenant)).status_code == 201
        asked = {"requests_per_minute": 1_000_000}
        key = (await api.post("/v1/tenants/stormy/keys", json=asked)).json()
        api.headers["authorization"] = f"Bearer {key['key']}"
        body = "\n".join(json.dumps(row) for row in ROWS)
        files = {"file": ("rows.jsonl", body)}
        file = (await api.post("/v1/files", data={"purpose": "fine-tune"}, files=files)).json()
        jobs, met = await storm(
            httpx.AsyncHTTPTransport(),
            f"{running.api_url}/v1",
            key["key"],
            {"model": "tiny", "training_file": file["id"]},
            intents=INTENTS,
            seed=1,
        )
        assert all(met[fault] for fault in FAULTS), met
        assert len(set(jobs)) == INTENTS
        assert sorted(await listed(api, "/v1")) == sorted(jobs)
