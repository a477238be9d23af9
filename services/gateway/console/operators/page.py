"""The queue with its next decisions, nodes and devices, and tenants."""

from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from services.gateway.console.visits import NO_PAGE, ROOT, Visit, route

NODES: Final = "/v1/nodes"
TENANTS: Final = "/v1/tenants"
LIMIT: Final = 200
NODE_CHANGES: Final = frozenset({"cordon", "uncordon", "drain"})


@route("/operators")
async def show(visit: Visit) -> Response:
    """Show a pool: what is decided next, what runs, what waits, and its nodes."""
    pool = visit.request.query_params.get("pool") or "default"
    queue = await visit.api.get("/v1/queue", pool=pool)
    nodes = await visit.api.get(NODES, limit=LIMIT)
    pools = sorted({pool, *(node["pool"] for node in nodes["data"])})
    here = [node for node in nodes["data"] if node["pool"] == pool]
    free = {node["id"]: node["free"] for node in queue["nodes"]}
    return visit.page("operators/queue.html", queue=queue, nodes=here, pools=pools, free=free)


@route("/operators/tenants")
async def tenants(visit: Visit) -> Response:
    after = visit.request.query_params.get("after")
    listed = await visit.api.get(TENANTS, limit=LIMIT, after=after)
    values = {"tenants": listed["data"], "has_more": listed["has_more"]}
    return visit.page("operators/tenants.html", **values)


@route("/operators/nodes/{node_id}/{change}", "POST")
async def change(visit: Visit) -> Response:
    """Take a node out of service, or back."""
    name = visit.request.path_params["change"]
    if name not in NODE_CHANGES:
        raise NO_PAGE
    node = await visit.api.post(f"{visit.named(NODES)}/{name}")
    return visit.go(f"{ROOT}/operators?pool={node['pool']}#nodes")


ROUTES: Final[tuple[Route, ...]] = (show, tenants, change)
