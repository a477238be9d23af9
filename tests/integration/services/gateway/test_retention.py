"""Old rows of the read models are deleted; young ones, and what bills are made of, are kept."""

import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest_asyncio

from schemas.access import schema_of
from schemas.units import DAY_MS, Ms
from services.gateway.settings import GatewaySettings
from services.gateway.views import retention
from services.gateway.views.audit import AUDIT_ROWS
from services.gateway.views.ports import DaysKept
from services.gateway.views.projections.journals import DDL
from services.gateway.views.retention import Retention
from tests.integration.services.gateway.control_plane import ROWS, admin
from tests.integration.services.gateway.test_views import store as store
from tunery.local.stack import Stack
from tunery.platform.store.postgres import PostgresStore, connect_store
from tunery.runtime.clock import SystemClock

KEPT = DaysKept(steps=90, history=400, deliveries=90, audit=1_096)
NOW: Ms = 2_000 * DAY_MS


@dataclass
class Later(SystemClock):
    """A wall clock of another day."""

    now: Ms = NOW

    def now_ms(self) -> Ms:
        return self.now


@pytest_asyncio.fixture(loop_scope="session")
async def tables(store: PostgresStore) -> PostgresStore:
    """The gateway's tables, empty."""
    await store.pool.execute(DDL)
    await store.pool.execute("\n".join(table.ddl() for table in AUDIT_ROWS.tables))
    return store


async def insert(store: PostgresStore, table: str, **values: Any) -> None:
    columns, parameters = ", ".join(values), ", ".join(f"${n}" for n in range(1, len(values) + 1))
    query = f"INSERT INTO {table} ({columns}) VALUES ({parameters})"  # noqa: S608  # names of ours
    await store.pool.execute(query, *values.values())


async def add_job(store: PostgresStore, job_id: str, days_ago: int | None) -> None:
    """Add a job that ended `days_ago`, or runs, with a row in each table of details."""
    ended = None if days_ago is None else NOW - days_ago * DAY_MS
    await insert(store, "jobs", tenant="a", id=job_id, finished_at=ended)
    await insert(store, "steps", tenant="a", job_id=job_id, step=1, id="s1")
    await insert(store, "usage", tenant="a", job_id=job_id, id="u1")
    await insert(store, "attempt_nodes", pool="default", job_id=job_id, id=f"{job_id}/1")
    for table in ("lines", "job_history", "job_events"):
        await insert(store, table, tenant="a", job_id=job_id, id="1")


async def jobs_in(store: PostgresStore, table: str) -> list[str]:
    return sorted(row["job_id"] for row in await store.rows(table))


async def test_details_of_jobs_go_by_the_end_of_their_job(
    tables: PostgresStore, monkeypatch: Any
) -> None:
    monkeypatch.setattr(retention, "ENDED", retention.ENDED.replace("LIMIT 200", "LIMIT 2"))
    ages = {"old": 500, "same": 500, "older": 700, "middle": 100, "young": 10, "runs": None}
    for job_id, days_ago in ages.items():
        await add_job(tables, job_id, days_ago)
    clock = Later()
    host = Retention(tables.pool, clock, KEPT)
    await host.work()
    assert await jobs_in(tables, "steps") == await jobs_in(tables, "lines") == ["runs", "young"]
    assert await jobs_in(tables, "attempt_nodes") == ["runs", "young"]
    assert await jobs_in(tables, "job_history") == ["middle", "runs", "young"]
    assert await jobs_in(tables, "job_events") == ["middle", "runs", "young"]
    assert await jobs_in(tables, "usage") == sorted(ages)  # of which bills are made
    assert len(await tables.rows("jobs")) == len(ages)
    clock.now += 90 * DAY_MS  # the next round goes on where the last one ended
    await host.work()
    assert await jobs_in(tables, "steps") == ["runs"]
    await insert(tables, "lines", tenant="a", job_id="older", id="2")  # made anew from the log
    clock.now += DAY_MS
    await host.work()
    assert await jobs_in(tables, "lines") == ["runs"]


async def test_deliveries_audit_entries_and_durations_go_by_their_own_age(
    tables: PostgresStore, monkeypatch: Any
) -> None:
    monkeypatch.setattr(retention, "TIMED", retention.TIMED.replace("OFFSET 10000", "OFFSET 2"))
    for index, days_ago in enumerate((1_200, 1_100, 1_000, 95, 1)):
        at = NOW - days_ago * DAY_MS
        await insert(tables, "deliveries", tenant="a", id=f"d{index}", ended_at=at)
        await insert(tables, "audit_entries", id=f"e{index}", sequence=index, at=at)
        await insert(tables, "attempt_times", pool="p", id=f"j{index}/1", sequence=index)
    await insert(tables, "deliveries", tenant="a", id="open")
    await Retention(tables.pool, Later(), KEPT).work()
    assert sorted(row["id"] for row in await tables.rows("deliveries")) == ["d4", "open"]
    assert sorted(row["id"] for row in await tables.rows("audit_entries")) == ["e2", "e3", "e4"]
    assert sorted(row["id"] for row in await tables.rows("attempt_times")) == ["j3/1", "j4/1"]


async def test_a_job_whose_states_are_gone_is_shown_as_it_ended(running: Stack) -> None:
    async with admin(running) as api:
        tenant = {"id": "retained", "plan": "premium"}
        assert (await api.post("/v1/tenants", json=tenant)).status_code == 201
        key = (await api.post("/v1/tenants/retained/keys", json={"name": "k"})).json()["key"]
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=f"{running.api_url}/v1", headers=headers) as client:
        rows = "\n".join(json.dumps(row) for row in ROWS).encode()
        file = await client.post(
            "/files", data={"purpose": "fine-tune"}, files={"file": ("rows.jsonl", rows)}
        )
        body = {"model": "tiny", "training_file": file.json()["id"]}
        job = (await client.post("/fine_tuning/jobs", json=body)).json()
        path = f"/fine_tuning/jobs/{job['id']}"
        ended = (await client.post(f"{path}/cancel")).json()
        assert (await client.get(path, params={"at": job["created_at"]})).status_code == 200
        gateway = await connect_store(running.postgres_dsn, schema_of("gateway"), 1)
        try:
            later = Later(SystemClock().now_ms() + 401 * DAY_MS)
            await Retention(gateway.pool, later, GatewaySettings().days_kept).work()
        finally:
            await gateway.close()
        gone = await client.get(path, params={"at": job["created_at"] - 1})
        assert "did not exist yet" in gone.json()["error"]["message"]
        if job["created_at"] < ended["finished_at"]:
            gone = await client.get(path, params={"at": job["created_at"]})
            assert (gone.status_code, gone.json()["error"]["param"]) == (404, "at")
            assert "400 days" in gone.json()["error"]["message"]
        shown = await client.get(path, params={"at": ended["finished_at"] + 1})
        assert shown.json()["status"] == "cancelled"
        assert (await client.get(f"{path}/events")).json()["data"] == []
