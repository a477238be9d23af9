"""What operators and probes are told."""

from unittest import mock

import httpx

from tests.unit.services.gateway.control_plane import ControlPlane
from tunery.runtime.blobs.abstract import BlobsUnavailable


async def test_health_routes_need_no_key(api: ControlPlane) -> None:
    async with httpx.AsyncClient(transport=api.api._transport, base_url="http://api") as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json()["status"] == "ready"
        metrics = (await client.get("/metrics")).text
        assert "tunery_http_requests_total" in metrics
        assert (await client.get("/openapi.json")).json()["info"]["title"] == "Tunery"


async def test_readiness_names_servers_that_are_down(api: ControlPlane) -> None:
    error = BlobsUnavailable("gone")
    with mock.patch.object(api.runtime.blobs, "exists", side_effect=error):
        answer = await api.api.get("/readyz")
    assert answer.status_code == 503
    answered = answer.json()
    assert (answered["storage"], answered["database"], answered["log"]) == ("away", "ok", "ok")


async def test_readiness_names_hosts_that_do_not_run(api: ControlPlane) -> None:
    api.runtime.health.mark_failing("projector views", "hung")
    answer = await api.api.get("/readyz")
    assert (answer.status_code, answer.json()["hosts"]) == (503, {"projector views": "hung"})
    api.runtime.health.mark_running("projector views")
    assert (await api.api.get("/readyz")).status_code == 200
