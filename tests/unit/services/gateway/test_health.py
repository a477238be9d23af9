"""What operators and probes are told."""

import asyncio
from unittest import mock

import httpx
import pytest

from services.gateway import health
from services.gateway.health import Readiness
from tests.unit.services.gateway.control_plane import ControlPlane
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.journal import alarm
from tunery.runtime.journal.acceptance import Unreadable


@pytest.fixture(autouse=True)
def nothing_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alarms belong to a process, and other tests of it have sounded some."""
    monkeypatch.setattr(alarm, "_stopped", {})


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
    """It said `ready` while each command of a tenant's was answered with 503."""
    alarm.sound("views", "account", Unreadable("account", 7, 12, "it is no JSON"))
    answer = await api.api.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["partitions"] == {"views": ["account/7"]}
    alarm.silence("views", "account", 7)
    assert (await api.api.get("/readyz")).json()["status"] == "ready"
    api.runtime.health.mark_failing("projector views", "hung")
    alarm.sound("views", "account", Unreadable("account", 7, 12, "it is no JSON"))
    assert (await api.api.get("/readyz")).status_code == 503
