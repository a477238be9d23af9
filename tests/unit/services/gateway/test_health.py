"""Health and readiness of the gateway."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest import mock

import httpx
import pytest

from schemas.topics import JOB
from services.gateway import health
from services.gateway.health import Readiness
from tests.unit.services.gateway.control_plane import ControlPlane
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.journal import alarm
from tunery.runtime.journal.acceptance import Unreadable
from tunery.runtime.store.abstract import StoreUnavailable

pytestmark = pytest.mark.usefixtures("nothing_has_stopped")


async def test_health_routes_need_no_key(api: ControlPlane) -> None:
    async with httpx.AsyncClient(transport=api.api._transport, base_url="http://api") as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json()["status"] == "ready"
        assert (await client.get("/openapi.json")).json()["info"]["title"] == "Tunery"


async def test_security_h3_metrics_are_for_operators(api: ControlPlane) -> None:
    """Whoever asked for them in a loop, without a key, kept the event loop busy."""
    async with httpx.AsyncClient(transport=api.api._transport, base_url="http://api") as client:
        assert (await client.get("/metrics")).status_code == 401
    assert (await (await api.tenant()).get("/metrics")).status_code == 403
    assert "tunery_http_requests_total" in (await api.api.get("/metrics")).text


async def test_security_l2_servers_are_asked_once_a_second(api: ControlPlane) -> None:
    exists = mock.AsyncMock(return_value=True)
    with mock.patch.object(api.runtime.blobs, "exists", exists):
        readiness = Readiness(api.deps)
        await asyncio.gather(*(readiness.reachable() for _ in range(50)))
    assert exists.await_count == 1


async def test_readiness_asks_the_database_one_question(api: ControlPlane) -> None:
    store = api.runtime.store
    with (
        mock.patch.object(store, "rows", wraps=store.rows) as rows,
        mock.patch.object(store, "positions", wraps=store.positions) as positions,
    ):
        assert all((await Readiness(api.deps).reachable()).values())
    assert rows.await_count + positions.await_count == 1


async def test_readiness_names_a_database_that_is_down(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECKED_MS", 0)
    readiness, error = Readiness(api.deps), StoreUnavailable("gone")
    with mock.patch.object(api.runtime.store, "positions", side_effect=error):
        answered = await readiness.reachable()
    assert answered == {"database": False, "log": True, "storage": True, "views": False}
    assert all((await readiness.reachable()).values())


async def test_readiness_names_servers_that_are_down(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECKED_MS", 0)
    error = BlobsUnavailable("gone")
    with mock.patch.object(api.runtime.blobs, "exists", side_effect=error):
        answer = await api.api.get("/readyz")
    assert answer.status_code == 503
    assert (await api.api.get("/readyz")).status_code == 200
    answered = answer.json()
    assert (answered["storage"], answered["database"], answered["log"]) == ("away", "ok", "ok")


async def test_readiness_names_hosts_that_do_not_run(api: ControlPlane) -> None:
    api.runtime.health.mark_failing("projector views", "hung")
    answer = await api.api.get("/readyz")
    assert (answer.status_code, answer.json()["hosts"]) == (503, {"projector views": "hung"})
    api.runtime.health.mark_running("projector views")
    assert (await api.api.get("/readyz")).status_code == 200


async def test_security_c2_readiness_names_partitions_that_stopped(api: ControlPlane) -> None:
    """Readiness was `ready` while each command of a tenant was answered with 503."""
    alarm.sound("views", "account", Unreadable("account", 7, 12, "it is no JSON"))
    answer = await api.api.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["partitions"] == {"views": ["account/7"]}
    alarm.silence("views", "account", 7)
    assert (await api.api.get("/readyz")).json()["status"] == "ready"
    api.runtime.health.mark_failing("projector views", "hung")
    alarm.sound("views", "account", Unreadable("account", 7, 12, "it is no JSON"))
    assert (await api.api.get("/readyz")).status_code == 503
    api.runtime.health.mark_running("projector views")


@asynccontextmanager
async def behind(api: ControlPlane, why: str | None = None) -> AsyncIterator[Readiness]:
    """A gateway that starts while the rows of one partition are not complete."""
    store, partition = api.runtime.store, (JOB.name, 3)
    async with asyncio.timeout(60):
        while not all(row.caught_up for row in (await store.positions("views")).values()):  # noqa: ASYNC110  # it asks a store
            await asyncio.sleep(0.01)
    await store.set_caught_up("views", partition, False, why)
    try:
        yield Readiness(api.deps)
    finally:
        await store.set_caught_up("views", partition, True)


async def test_a_gateway_is_ready_once_its_rows_were_made_of_the_whole_log(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECKED_MS", 0)
    async with behind(api) as readiness:
        assert not (await readiness.reachable())["views"]
    assert (await readiness.reachable())["views"]
    async with behind(api):  # who makes the rows has begun again
        assert (await readiness.reachable())["views"]


async def test_a_partition_without_rows_keeps_no_gateway_from_the_other_tenants(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECKED_MS", 0)
    async with behind(api, "entry 7 is no JSON") as readiness:
        assert (await readiness.reachable())["views"]
        assert readiness.stopped() == ["job/3"]
        answer = await api.api.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["partitions"] == {"projector views": ["job/3"]}
