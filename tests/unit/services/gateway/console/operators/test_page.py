"""The operators' pages: nodes in and out of service; nobody else sees them."""

from schemas.topics import POOL
from simulator.control_plane.samples import node
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane


async def test_a_node_is_taken_out_of_service_and_back(api: ControlPlane) -> None:
    await api.runtime.sender.send(POOL, "default", "", node("console-1", "c-1", 1))
    await api.until(api.api, "/v1/nodes", lambda page: "console-1" in str(page))
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(api.api)) as browser:
        page = await browser.get("/console/operators")
        assert "console-1" in page.text
        tenants = await browser.get("/console/operators/tenants")
        assert client.headers["x-tenant"] in tenants.text
        path = "/console/operators/nodes/console-1/"
        for change, status in (("cordon", "cordoned"), ("uncordon", "up")):
            answer = await browser.post(path + change, headers=OWN_SITE)
            assert answer.status_code == 303
            changed = await api.api.get("/v1/nodes/console-1")
            assert changed.json()["status"] == status
        assert (await browser.post(path + "forget", headers=OWN_SITE)).status_code == 404
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert "Operators" not in (await browser.get("/console")).text
        for path in ("/console/operators", "/console/operators/tenants"):
            assert (await browser.get(path)).status_code == 403
        path = "/console/operators/nodes/console-1/cordon"
        assert (await browser.post(path, headers=OWN_SITE)).status_code == 403
