"""A tenant is erased over HTTP, with the real deciders, reactions, projections and effects."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from schemas.sealed import REDACTED, Sealed
from services.billing.app import TENANTS as BILLING_ROWS
from services.billing.effect import destroy_key
from services.gateway.views.projections.journals import ROWS
from services.gateway.views.tables.accounts import TENANTS
from services.ingest.app import TODOS as INGEST_ROWS
from services.ingest.effect import erase_tenant
from tests.unit.services.gateway.control_plane import ControlPlane, control_plane, running
from tests.unit.services.gateway.jobs.test_routes import submit
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector

DONE_S_MAX = 180
TEXT = "Zanzibar"


@asynccontextmanager
async def effects(plane: ControlPlane, *names: str) -> AsyncIterator[None]:
    """The effects of these services run inside the block, over stores that begin empty."""
    hosts: list[Host] = []
    if "ingest" in names:
        runtime = plane.world.runtime("ingest")
        erasing = erase_tenant(runtime.blobs, runtime.sender)
        hosts += [Projector(runtime, INGEST_ROWS), EffectHost(runtime, (erasing,))]
    if "billing" in names:
        runtime = plane.world.runtime("billing")
        hosts += [
            Projector(runtime, BILLING_ROWS),
            EffectHost(runtime, (destroy_key(runtime.seal),)),
        ]
    async with running(hosts):
        yield


async def planted(plane: ControlPlane) -> str:
    """A tenant with a file, a waiting job, a key, a webhook endpoint and an export of its bill."""
    client = await plane.tenant(name=f"{TEXT} Ltd")
    tenant = client.headers["x-tenant"]
    file = await plane.upload(client, json.dumps({"messages": TEXT}).encode())
    await plane.validated(client, file["id"])
    job = await submit(client, file["id"], suffix=TEXT, metadata={"who": TEXT})
    assert job.status_code == 200, job.text
    hook = {"url": f"https://{TEXT}.example.com/", "name": TEXT}
    assert (await client.post("/v1/webhook_endpoints", json=hook)).is_success
    await plane.world.blobs.put(f"t/{tenant}/exports/focus.csv", b"1")
    return tenant


async def erased(plane: ControlPlane, tenant: str) -> dict[str, Any]:
    async with asyncio.timeout(DONE_S_MAX):
        while True:
            state: dict[str, Any] = (await plane.api.get(f"/v1/tenants/{tenant}/erasure")).json()
            if state["status"] == "done":
                return state
            await asyncio.sleep(0.05)


async def rows_of(plane: ControlPlane, tenant: str) -> dict[str, int]:
    """How many rows the read models have of a tenant, where there are any."""
    names = sorted({table.name for tables in ROWS.values() for table in tables})
    counts = {name: len(await plane.runtime.store.rows(name, {"tenant": tenant})) for name in names}
    return {name: count for name, count in counts.items() if count}


async def test_security_h4_a_tenant_is_erased_and_says_so() -> None:
    async with control_plane() as plane:
        tenant = await planted(plane)
        client = plane.clients[-1]
        (sealed,) = [row["name"] for row in await plane.runtime.store.rows(TENANTS.name)]
        wrong = await plane.api.post(f"/v1/tenants/{tenant}/erase", json={"confirm": "other"})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "confirm")
        assert (await client.post(f"/v1/tenants/{tenant}/erase", json={})).status_code == 403
        begun = await plane.api.post(f"/v1/tenants/{tenant}/erase", json={"confirm": tenant})
        assert (begun.status_code, begun.json()["status"]) == (202, "running")
        assert (await client.get("/v1/files")).status_code == 401
        async with effects(plane, "ingest", "billing"):
            state = await erased(plane, tenant)
        assert [done["part"] for done in state["parts"] if done["erased_at"]] == [
            *("jobs", "models", "files", "key")
        ]
        assert len(state["sha256"]) == 64
        assert await rows_of(plane, tenant) == {}
        kept = [key for key in plane.world.blobs.bodies if key.startswith(f"t/{tenant}/")]
        assert kept == [f"t/{tenant}/exports/focus.csv"]
        assert plane.world.keys.find(tenant) is None
        assert plane.runtime.seal.open(msgspec.convert(sealed, Sealed), "name") == REDACTED
        shown = (await plane.api.get(f"/v1/tenants/{tenant}")).json()
        assert TEXT not in json.dumps(shown)
        again = await plane.api.post(f"/v1/tenants/{tenant}/erase", json={"confirm": tenant})
        assert again.json() == state
        refused = await plane.api.post(f"/v1/tenants/{tenant}/keys", json={})
        assert refused.status_code == 409
        assert "was erased" in refused.json()["error"]["message"]


async def test_security_h4_effects_that_run_again_and_read_models_made_anew_change_nothing() -> (
    None
):
    async with control_plane() as plane:
        tenant = await planted(plane)
        await plane.api.post(f"/v1/tenants/{tenant}/erase", json={"confirm": tenant})
        async with effects(plane, "ingest"):
            async with asyncio.timeout(DONE_S_MAX):
                while await rows_of(plane, tenant):
                    left = await rows_of(plane, tenant)
                    if not {"jobs", "files", "models"} & left.keys():
                        break
                    await asyncio.sleep(0.05)
        async with effects(
            plane, "ingest", "billing"
        ):  # to-do lists that begin at the first record
            state = await erased(plane, tenant)
        async with effects(plane, "ingest", "billing"):
            await asyncio.sleep(0.5)
        assert (await plane.api.get(f"/v1/tenants/{tenant}/erasure")).json() == state


async def test_security_h4_there_is_no_erasure_of_who_is_not_erased(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    assert (await api.api.get(f"/v1/tenants/{tenant}/erasure")).status_code == 404
    missing = await api.api.post("/v1/tenants/nobody/erase", json={"confirm": "nobody"})
    assert missing.status_code == 404
