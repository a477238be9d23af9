"""Sessions and their commands; why one waits, what it costs, and its end."""

from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from services.gateway.console.calls import JOBS, CallRefused, path_to
from services.gateway.console.visits import ROOT, Visit, route

SESSIONS: Final = "/v1/sessions"
LIMIT: Final = 50
COMMANDS: Final = 100


@route("/sessions")
async def show(visit: Visit) -> Response:
    after = visit.request.query_params.get("after")
    listed = await visit.api.get(SESSIONS, limit=LIMIT, after=after)
    values = {"listed": listed["data"], "has_more": listed["has_more"]}
    return visit.page("loops/sessions.html", **values)


@route("/sessions/{session_id}")
async def session(visit: Visit) -> Response:
    """Show a session with its newest commands, and its job, which has the wait and the cost."""
    path = visit.named(SESSIONS)
    shown = await visit.api.get(path)
    after = visit.request.query_params.get("after")
    commands = await visit.api.get(f"{path}/commands", limit=COMMANDS, after=after)
    try:
        job = await visit.api.get(path_to(JOBS, shown["id"]))
    except CallRefused as refusal:
        if refusal.status != 404:
            raise
        job = None  # it has not been submitted yet
    values = {"commands": commands["data"], "has_more": commands["has_more"], "job": job}
    return visit.page("loops/session.html", session=shown, **values)


@route("/sessions/{session_id}/end", "POST")
async def end(visit: Visit) -> Response:
    await visit.api.post(f"{visit.named(SESSIONS)}/end")
    return visit.go(visit.named(f"{ROOT}/sessions"))


ROUTES: Final[tuple[Route, ...]] = (show, session, end)
