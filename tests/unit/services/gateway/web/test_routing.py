"""Common documentation of all routes of a router."""

from typing import Any

import pytest
from fastapi import FastAPI

from services.gateway.web.routing import new_router


def document(*, needs_key: bool) -> dict[str, Any]:
    """The document of a route of such a router, added as the application adds it."""
    router = new_router("nodes", "/v1/nodes", needs_key=needs_key)

    @router.get("/{node_id}")
    def read_node(node_id: str) -> str:
        return node_id

    app = FastAPI()
    app.router.routes.extend(router.routes)
    described: dict[str, Any] = app.openapi()["paths"]["/v1/nodes/{node_id}"]["get"]
    return described


@pytest.mark.parametrize(("needs_key", "keys"), [(True, [{"API key": []}]), (False, None)])
def test_a_route_is_documented_with_its_tag_errors_and_key(
    needs_key: bool, keys: list[Any] | None
) -> None:
    described = document(needs_key=needs_key)
    assert described["tags"] == ["nodes"]
    assert described["operationId"] == "read_node"
    assert {"200", "4XX", "5XX"} <= set(described["responses"])
    assert described.get("security") == keys
