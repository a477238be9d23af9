"""Webhook endpoints, their deliveries, and sending them again."""

from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from services.gateway.console.calls import CallRefused
from services.gateway.console.visits import NO_PAGE, ROOT, Visit, form_of, route

ENDPOINTS: Final = "/v1/webhook_endpoints"
DELIVERIES: Final = 50


@route("/webhooks")
async def show(visit: Visit) -> Response:
    return await _listed(visit)


@route("/webhooks", "POST")
async def create(visit: Visit) -> Response:
    """Create an endpoint; its signing secret is shown once."""
    form = await form_of(visit.request)
    body: dict[str, Any] = {name: str(form.get(name, "")).strip() for name in ("name", "url")}
    if types := [str(each) for each in form.getlist("event_types")]:
        body["event_types"] = types
    return await _listed(visit, await visit.api.post(ENDPOINTS, body))


@route("/webhooks/{endpoint_id}")
async def endpoint(visit: Visit) -> Response:
    """Show an endpoint with its deliveries, newest first."""
    return await _shown(visit)


@route("/webhooks/{endpoint_id}/{change}", "POST")
async def change(visit: Visit) -> Response:
    """Send deliveries again, send a test event, or delete the endpoint."""
    path, form = visit.named(ENDPOINTS), await visit.form()
    match visit.request.path_params["change"]:
        case "redeliver":
            delivery_id = form.get("delivery")
            body = (
                {"after": 0}
                if delivery_id is None
                else {"delivery_ids": [delivery_id], "only_failed": False}
            )
            sent = await visit.api.post(f"{path}/redeliver", body)
            return await _shown(visit, sent=len(sent["data"]))
        case "test":
            return await _shown(visit, tested=await visit.api.post(f"{path}/test", {}))
        case "delete":
            await visit.api.delete(path)
            return visit.go(f"{ROOT}/webhooks")
        case _:
            raise NO_PAGE


async def _listed(visit: Visit, new: dict[str, Any] | None = None) -> Response:
    try:
        endpoints = await visit.api.get(ENDPOINTS, limit=100)
        types = await visit.api.get("/v1/webhook_event_types")
    except CallRefused:
        if new is None:
            raise
        endpoints, types = {"data": [new]}, {"data": []}  # its secret is not lost
    values = {"endpoints": endpoints["data"], "types": types["data"]}
    return visit.page("webhooks/webhooks.html", new=new, **values)


async def _shown(visit: Visit, **done: Any) -> Response:
    path = visit.named(ENDPOINTS)
    shown = await visit.api.get(path)
    after = visit.request.query_params.get("after")
    listed = await visit.api.get(f"{path}/deliveries", limit=DELIVERIES, after=after)
    values = {"deliveries": listed["data"], "has_more": listed["has_more"]}
    values |= {"sent": None, "tested": None, **done}
    return visit.page("webhooks/endpoint.html", endpoint=shown, **values)


ROUTES: Final[tuple[Route, ...]] = (show, create, endpoint, change)
