"""Why a job waits, over the API: for its tenant, and for operators."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest_asyncio
from msgspec.structs import replace

from schemas.pool import RequestPlacement
from schemas.serving import ReplicaTerms, ServingPoolTerms, SetServingPool
from schemas.submission import Price
from schemas.topics import JOB, POOL
from schemas.training import WorkDescription, work_id_of
from schemas.works import DescribeWork
from simulator.control_plane.samples import BASE, node
from tests.unit.services.gateway.control_plane import ControlPlane, control_plane
from tests.unit.services.gateway.jobs.job_events import TRAIN, placed
from tests.unit.services.gateway.jobs.test_routes import ready, submit


@pytest_asyncio.fixture(loop_scope="session")
async def alone() -> AsyncIterator[ControlPlane]:
    """A pool in which no other test has nodes or jobs."""
    async with control_plane() as plane:
        yield plane


async def ask_pool(api: ControlPlane, tenant: str, job_id: str, **changed: Any) -> None:
    """The job asks the pool for a slot, as its reactions do once its inputs are there."""
    work_id = work_id_of(TRAIN)
    described = WorkDescription(job_id=job_id, work_id=work_id, work=TRAIN)
    await api.runtime.sender.send(
        POOL, "default", tenant, DescribeWork(tenant=tenant, description=described)
    )
    placement = replace(placed(1).placement, tenant=tenant, job_id=job_id, **changed)
    await api.runtime.sender.send(POOL, "default", tenant, RequestPlacement(placement=placement))


async def submitted(api: ControlPlane) -> tuple[httpx.AsyncClient, str]:
    client, file_id = await ready(api)
    answer = await submit(client, file_id)
    assert answer.status_code == 200, answer.text
    return client, answer.json()["id"]


async def test_a_job_behind_another_has_that_reason_without_names(alone: ControlPlane) -> None:
    api = alone
    first, first_id = await submitted(api)
    second, second_id = await submitted(api)
    await api.runtime.sender.send(POOL, "default", "", node("a", "a-1", 1))
    path = f"/v1/fine_tuning/jobs/{second_id}/queue"
    tenant, other = second.headers["x-tenant"], first.headers["x-tenant"]
    await ask_pool(api, other, first_id, memory_bytes=1)
    await ask_pool(api, tenant, second_id, memory_bytes=1)
    shown = await api.until(second, path, lambda each: each["queue"]["code"] == "no_capacity")
    queue = shown["queue"]
    assert (queue["position"], queue["jobs_ahead"], queue["lane"]) == (1, 0, "premium")
    assert queue["reason"] == "Waiting for 1 slot: every node that fits is busy."
    assert queue["unblocked_by"] == "A running job that ends or is stopped."
    assert shown["at"] <= queue["eta"] <= queue["eta_latest"]
    text = json.dumps(shown)
    assert other not in text
    assert first_id not in text
    job = (await second.get(f"/v1/fine_tuning/jobs/{second_id}")).json()
    assert job["queue"]["code"] == "no_capacity"
    plain = (await second.get(f"/v1/jobs/{second_id}")).json()
    assert plain["reason"] == queue["reason"]
    assert plain["estimated_start"] >= shown["at"]
    refused = await first.get(path)
    assert refused.status_code == 404
    await check_operators_view(api, first, first_id, second_id)


async def check_operators_view(
    api: ControlPlane, client: httpx.AsyncClient, first_id: str, second_id: str
) -> None:
    """Nodes, leases, what waits and what is next, with the names of tenants and jobs."""
    shown = await api.until(
        api.api, "/v1/queue", lambda queue: len(queue["leases"]) == len(queue["waiting"]) == 1
    )
    assert [(each["id"], each["status"], each["free"]) for each in shown["nodes"]] == [
        ("a", "up", 0)
    ]
    (lease,), (waits,) = shown["leases"], shown["waiting"]
    assert (lease["job_id"], lease["tenant"], lease["nodes"]) == (
        first_id,
        client.headers["x-tenant"],
        ["a"],
    )
    assert lease["ends"] >= shown["at"]
    assert (waits["job_id"], waits["lane"]) == (second_id, "premium")
    assert waits["code"] == "no_capacity"
    assert waits["tenant"] != lease["tenant"]
    assert shown["next"]["reservation"]["job_id"] == second_id
    assert (shown["next"]["starts"], shown["next"]["preemptions"]) == ([], [])
    assert (await client.get("/v1/queue")).status_code == 403
    assert (await api.api.get("/v1/queue?pool=none")).json()["nodes"] == []


async def test_jobs_that_wait_for_their_inputs_or_for_their_tenant_say_so(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    file = await api.upload(client)
    job_id = (await submit(client, file["id"])).json()["id"]
    path = f"/v1/fine_tuning/jobs/{job_id}"
    queue = (await client.get(f"{path}/queue")).json()["queue"]
    assert (queue["code"], queue["lane"], queue["position"] > 0) == (
        "file_validation",
        "standard",
        True,
    )
    assert queue["unblocked_by"].startswith("The end of the validation")
    await client.post(f"{path}/pause")
    queue = (await client.get(f"{path}/queue")).json()["queue"]
    assert (queue["code"], queue["eta"], queue["unblocked_by"]) == (
        "paused",
        None,
        "You: resume the job.",
    )
    await client.post(f"{path}/cancel")
    shown = (await client.get(f"{path}/queue")).json()
    assert (shown["status"], shown["queue"]) == ("cancelled", None)


async def test_replicas_of_a_serving_pool_are_in_the_queue_and_no_jobs(
    alone: ControlPlane,
) -> None:
    """Operators see what holds slots; the tenant's list of jobs has trainings alone."""
    api = alone
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    plan = (await api.api.get(f"/v1/tenants/{tenant}")).json()
    replica = ReplicaTerms(
        base=BASE, pool="default", slots=1, memory_bytes=1, term_ms=600_000, device="cpu"
    )
    price = Price(version=plan["price_version"], currency="EUR", gpu_hour_micro=1)
    terms = ServingPoolTerms(serving_pool_id="sp_1", replicas=2, replica=replica, price=price)
    await api.runtime.sender.send(POOL, "default", "", node("a", "a-1", 1))
    await api.runtime.sender.send(JOB, tenant, tenant, SetServingPool(terms=terms))
    shown = await api.until(
        api.api, "/v1/queue", lambda queue: len(queue["leases"]) == len(queue["waiting"]) == 1
    )
    (lease,), (waits,) = shown["leases"], shown["waiting"]
    assert (lease["job_id"], lease["role"], lease["tenant"]) == ("sp_1-1", "serve", tenant)
    assert (waits["job_id"], waits["code"]) == ("sp_1-2", "no_capacity")
    assert (await client.get("/v1/fine_tuning/jobs")).json()["data"] == []
    missing = await client.get("/v1/fine_tuning/jobs/sp_1-1")
    assert missing.status_code == 404
