"""The list of jobs, newest first."""

from typing import Final, get_args

from starlette.responses import Response
from starlette.routing import Route

from services.gateway.console.calls import JOBS, CallRefused, path_to
from services.gateway.console.visits import Visit, form_of, route
from services.gateway.jobs.domain.statuses import JobStatus

LIMIT: Final = 50
STATUSES: Final = get_args(JobStatus)
CANCELLED_MAX: Final = 100  # in one request


@route("")
async def show(visit: Visit) -> Response:
    """List jobs that match; the script replaces the table while a person types."""
    return await _listed(visit)


@route("/cancel", "POST")
async def cancel(visit: Visit) -> Response:
    """Cancel the marked jobs, and show the reason of each refusal."""
    form = await form_of(visit.request)
    refused: list[CallRefused] = []
    for job_id in map(str, form.getlist("job")[:CANCELLED_MAX]):
        try:
            await visit.api.post(f"{path_to(JOBS, job_id)}/cancel")
        except CallRefused as refusal:
            refused.append(refusal)
    return await _listed(visit, refused)


async def _listed(visit: Visit, refused: list[CallRefused] | None = None) -> Response:
    query = visit.request.query_params
    named = {
        name: query.get(name, "") for name in ("status", "search", "suffix", "metadata", "after")
    }
    if named["status"] not in STATUSES:
        named["status"] = ""
    filters = {name: value for name, value in named.items() if name != "metadata"}
    name, _, value = named["metadata"].partition("=")
    if name.strip() and value:
        filters[f"metadata[{name.strip()}]"] = value.strip()
    listed = await visit.api.get(JOBS, limit=LIMIT, **filters)
    values = {
        "jobs": listed["data"],
        "has_more": listed["has_more"],
        "statuses": STATUSES,
        "filters": named,
        "refused": refused or [],
    }
    return visit.page("jobs/table.html" if visit.is_part else "jobs/jobs.html", **values)


ROUTES: Final[tuple[Route, ...]] = (show, cancel)
