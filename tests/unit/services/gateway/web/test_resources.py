"""Resources that are declared once: their lists, retrievals and documents."""

import httpx

from services.gateway.api import routes
from tests.unit.services.gateway.control_plane import ControlPlane


async def endpoints(api: ControlPlane, count: int) -> tuple[httpx.AsyncClient, list[str]]:
    """A client with `count` endpoints, and their ids, newest first."""
    client = await api.tenant()
    types = (await client.get("/v1/webhook_event_types")).json()["data"]
    body = {"name": "e", "url": "https://example.com/hook", "event_types": types[:1]}
    ids = [
        (await client.post("/v1/webhook_endpoints", json=body)).json()["id"] for _ in range(count)
    ]
    return client, ids[::-1]


async def test_a_list_goes_on_after_an_item(api: ControlPlane) -> None:
    client, ids = await endpoints(api, 3)
    first = (await client.get("/v1/webhook_endpoints", params={"limit": 2})).json()
    assert ([item["id"] for item in first["data"]], first["has_more"]) == (ids[:2], True)
    more = {"limit": 2, "after": first["last_id"]}
    rest = (await client.get("/v1/webhook_endpoints", params=more)).json()
    assert ([item["id"] for item in rest["data"]], rest["has_more"]) == (ids[2:], False)


async def test_an_item_of_another_tenant_does_not_exist(api: ControlPlane) -> None:
    client, (endpoint,) = await endpoints(api, 1)
    assert (await client.get(f"/v1/webhook_endpoints/{endpoint}")).json()["id"] == endpoint
    other = await api.tenant()
    refused = await other.get(f"/v1/webhook_endpoints/{endpoint}")
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "id")
    unknown = await other.get("/v1/webhook_endpoints", params={"after": endpoint})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "after")


def test_declared_routes_are_documented_as_written_ones_are() -> None:
    paths = routes().openapi()["paths"]
    listed = paths["/v1/webhook_endpoints"]["get"]
    assert listed["operationId"] == "list_endpoints"
    assert [each["name"] for each in listed["parameters"]] == ["after", "limit"]
    retrieved = paths["/v1/webhook_endpoints/{endpoint_id}"]["get"]
    assert [each["name"] for each in retrieved["parameters"]] == ["endpoint_id"]
    schema = retrieved["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema["$ref"].endswith("/EndpointResponse")
