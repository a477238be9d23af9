"""The queue with its next decisions and what would change them, nodes and devices, tenants."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from schemas.account import LANES
from services.gateway.console.calls import CallRefused
from services.gateway.console.visits import NO_PAGE, ROOT, Visit, route
from services.gateway.console.words import number

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


@route("/operators/plan")
async def plan(visit: Visit) -> Response:
    """Show the pool with other nodes or a changed job beside how it is, as the planner answers."""
    query = visit.request.query_params
    asked = {name: query[name].strip() for name in query if query[name].strip()}
    pool = asked.get("pool", "default")
    queue = await visit.api.get("/v1/queue", pool=pool)
    values: dict[str, Any] = {"queue": queue, "asked": asked, "plan": None, "refusal": None}
    body = body_of(pool, asked)
    if len(body) > 1:
        try:
            values["plan"] = await visit.api.post("/v1/queue/plan", body)
        except CallRefused as refusal:
            if refusal.status in (401, 403):
                raise
            values["refusal"] = refusal.message
    before = {each["job_id"]: each for each in queue["waiting"]}
    return visit.page("operators/plan.html", before=before, lanes=LANES, **values)


def body_of(pool: str, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of a question about a pool, without what its form leaves empty."""
    body: dict[str, Any] = {"pool": pool}
    if "like" in asked:
        body["add"] = [{"like": asked["like"], "nodes": number(asked.get("nodes", "1"), int)}]
    if "remove" in asked:
        body["remove"] = [asked["remove"]]
    if "job" in asked:
        job: dict[str, Any] = {"job_id": asked["job"]}
        if "slots" in asked:
            job["slots"] = number(asked["slots"], int)
        if "lane" in asked:
            job["lane"] = asked["lane"]
        # nothing else is said of it: as if it were not there
        body["jobs"] = [job if len(job) > 1 else {**job, "left_out": True}]
    return body


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


ROUTES: Final[tuple[Route, ...]] = (show, plan, tenants, change)
