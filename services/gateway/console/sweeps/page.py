"""Sweeps and their trials; the best of them go to the comparison."""

from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from services.gateway.console.compare.page import JOBS_MAX
from services.gateway.console.visits import ROOT, Visit, route

SWEEPS: Final = "/v1/sweeps"
LIMIT: Final = 50


@route("/sweeps")
async def show(visit: Visit) -> Response:
    after = visit.request.query_params.get("after")
    listed = await visit.api.get(SWEEPS, limit=LIMIT, after=after)
    return visit.page("sweeps/sweeps.html", sweeps=listed["data"], has_more=listed["has_more"])


@route("/sweeps/{sweep_id}")
async def sweep(visit: Visit) -> Response:
    """Show the trials, the lowest validation loss first, and which of them to compare."""
    shown = await visit.api.get(visit.named(SWEEPS))
    rows = [
        {**job, "trial": trial["trial"], "values": trial["values"]}
        for trial in shown["trials"]
        for job in trial["jobs"]
    ]
    rows.sort(key=lambda row: (row["validation_loss"] is None, row["validation_loss"] or 0.0))
    begun = [("job", row["job_id"]) for row in rows if row["status"] is not None][:JOBS_MAX]
    names = [*dict.fromkeys(name for row in rows for name in row["values"])]
    return visit.page("sweeps/sweep.html", sweep=shown, rows=rows, names=names, begun=begun)


@route("/sweeps/{sweep_id}/cancel", "POST")
async def cancel(visit: Visit) -> Response:
    await visit.api.post(f"{visit.named(SWEEPS)}/cancel")
    return visit.go(visit.named(f"{ROOT}/sweeps"))


ROUTES: Final[tuple[Route, ...]] = (show, sweep, cancel)
