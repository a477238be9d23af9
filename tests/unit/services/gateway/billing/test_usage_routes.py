"""`GET /v1/usage`: what a tenant used, and who may ask."""

from typing import Any

import httpx
from msgspec.structs import replace

from schemas.training import LeaseHardware
from schemas.units import HOUR_MS
from tests.unit.services.gateway.billing.used import credited, lease, sliced, use
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


def now_hour(api: ControlPlane) -> int:
    return api.deps.clock.now_ms() // HOUR_MS


async def asked(client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await client.get("/v1/usage", params=query)
    assert answer.status_code == 200, answer.text
    usage: dict[str, Any] = answer.json()
    return usage


async def test_use_is_summed_by_day_and_by_what_is_asked_for(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    tenant = client.headers["x-tenant"]
    job_id = (await submit(client, file_id)).json()["id"]
    hour = now_hour(api)
    ref = lease(tenant, job_id)
    await use(api, sliced(ref, hour - 25), sliced(ref, hour), credited(ref, hour, 1_000))
    start = {"start_time": (hour - 48) * 3_600}
    by_day = await asked(client, **start)
    assert by_day["object"] == "page"
    results = [result for bucket in by_day["data"] for result in bucket["results"]]
    assert [(result["billable_gpu_ms"], result["net_gpu_ms"]) for result in results] == [
        (HOUR_MS, HOUR_MS),
        (HOUR_MS, HOUR_MS - 1_000),
    ]
    assert {result["job_id"] for result in results} == {None}
    keys = (await client.get("/v1/keys/current")).json()["id"]
    by_all = await asked(client, group_by="day,job,model,key,lane", **start)
    (_, result) = [result for bucket in by_all["data"] for result in bucket["results"]]
    assert (result["job_id"], result["model"], result["api_key_id"], result["lane"]) == (
        job_id,
        BASE.base_id,
        keys,
        "standard",
    )


async def test_usage_is_grouped_by_role_and_hardware(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    tenant = client.headers["x-tenant"]
    job_id = (await submit(client, file_id)).json()["id"]
    hour = now_hour(api)
    training = replace(
        lease(tenant, job_id), hardware=LeaseHardware(device="cuda", accelerator="h200", spot=True)
    )
    scoring = replace(lease(tenant, job_id, number=2), role="eval", hardware=LeaseHardware())
    await use(
        api, sliced(training, hour), sliced(scoring, hour, 5_000), credited(training, hour, 9)
    )
    usage = await asked(client, group_by="role,device,spot", start_time=(hour - 24) * 3_600)
    assert sorted(
        (result["role"], result["device"], result["spot"], result["net_gpu_ms"])
        for bucket in usage["data"]
        for result in bucket["results"]
    ) == [("eval", "cpu", False, 5_000), ("train", "h200", True, HOUR_MS - 9)]


async def test_first_hour_18_use_and_invoices_are_summed_by_metadata(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    tenant, hour = client.headers["x-tenant"], now_hour(api)
    for number, team in enumerate(("search", "ads", "search"), 1):
        job_id = (await submit(client, file_id, seed=number, metadata={"team": team})).json()["id"]
        await use(api, sliced(lease(tenant, job_id, number), hour, number * 1_000))
    by_team = {"group_by": "metadata[team],key"}
    usage = await asked(client, **by_team, start_time=hour * 3_600)
    results = [result for bucket in usage["data"] for result in bucket["results"]]
    assert [(entry["metadata"]["team"], entry["net_gpu_ms"]) for entry in results] == [
        ("ads", 2_000),
        ("search", 4_000),
    ]
    (invoice,) = (await client.get("/v1/invoices")).json()["data"]
    path = f"/v1/invoices/{invoice['id']}/sums"
    sums = (await client.get(path, params=by_team)).json()["data"]
    assert [entry["metadata"]["team"] for entry in sums if entry["of_jobs"]] == ["search", "ads"]
    assert sum(entry["amount_micro"] for entry in sums) == invoice["total_micro"]
    assert {entry["api_key_id"] for entry in sums if entry["of_jobs"]} == {
        entry["api_key_id"] for entry in results
    }


async def test_buckets_are_paged(api: ControlPlane) -> None:
    client = await api.tenant()
    hour = now_hour(api)
    first = await asked(client, start_time=(hour - 3) * 3_600, bucket_width="1h", limit=2)
    assert first["has_more"]
    second = await asked(
        client,
        start_time=(hour - 3) * 3_600,
        bucket_width="1h",
        limit=2,
        page=first["next_page"],
    )
    starts = [bucket["start_time"] // 3_600 for bucket in first["data"] + second["data"]]
    assert starts == [hour - 3, hour - 2, hour - 1, hour]
    assert (second["has_more"], second["next_page"]) == (False, None)


async def test_wrong_queries_name_the_parameter(api: ControlPlane) -> None:
    client = await api.tenant()
    for query, param in (
        ({"group_by": "colour"}, "group_by"),
        ({"group_by": "day", "bucket_width": "1h"}, "bucket_width"),
        ({"bucket_width": "1m"}, "bucket_width"),
        ({"start_time": 2**33}, "start_time"),
        ({"start_time": -1}, "start_time"),
        ({"page": "page_x"}, "page"),
        ({"limit": 10**30}, "limit"),
    ):
        answer = await client.get("/v1/usage", params=query)
        assert answer.status_code == 400, query
        assert answer.json()["error"]["param"] == param


async def test_a_key_for_bills_reads_nothing_else(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    created = await api.api.post(f"/v1/tenants/{tenant}/keys", json={"scopes": ["billing.read"]})
    finance = api.client(created.json()["key"], tenant)
    assert (await finance.get("/v1/usage")).status_code == 200
    assert (await finance.get("/v1/files")).status_code == 403
