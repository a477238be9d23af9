"""A job's page: its panels, and a stream of their changes."""

import time
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from services.gateway.console.calls import JOBS, Calls
from services.gateway.console.job.curve import newest_of
from services.gateway.console.job.stream import stream
from services.gateway.console.job.timeline import timeline
from services.gateway.console.visits import NO_PAGE, ROOT, Visit, route

MESSAGES: Final = 500
CHECKPOINTS: Final = 20
STEPS: Final = 100  # newest ones, among which the last validation is
EVENTS_SHOWN: Final = 60
CHANGES: Final = frozenset({"cancel", "pause", "resume"})


async def facts(api: Calls, path: str) -> dict[str, Any]:
    """Return the values of the panels, by five calls. Raises CallRefused."""
    job = await api.get(path)
    messages = await api.get(f"{path}/events", type="message", limit=MESSAGES)
    checkpoints = await api.get(f"{path}/checkpoints", limit=CHECKPOINTS)
    cost = await api.get(f"{path}/cost")
    newest = await api.get(f"{path}/metrics", limit=STEPS)
    oldest_first = messages["data"][::-1]
    return {
        "job": job,
        "events": messages["data"][:EVENTS_SHOWN],
        "checkpoints": checkpoints,
        "cost": cost,
        "step": newest_of(newest["data"][::-1]),
        "timeline": timeline(oldest_first, int(time.time())),
        "intervals": intervals(job["gate"]),
    }


def intervals(gate: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the gate's measurements with their intervals, each on its own axis.

    high: None where only a drop is bounded. limit: the bound that the gate compares with.
    """
    if gate is None:
        return []
    rows: list[dict[str, Any]] = [
        {
            "name": each["benchmark"] or "General questions",
            "against": each["against"],
            "verdict": each["verdict"],
            "value": each["change"],
            "low": -each["drop_ruled_out"],
            "high": None,
            "limit": -each["drop_allowed"],
            "compared": each["items"],
        }
        for each in gate["comparisons"]
    ]
    rows += [
        {
            "name": f"Own rows: {each['measure']}",
            "against": "base model",
            "verdict": each["verdict"],
            "value": each["adapter"] - each["base"],
            "low": each["low"],
            "high": each["high"],
            "limit": each["gain_wanted"],
            "compared": each["rows"],
        }
        for each in gate["measures"]
    ]
    for row in rows:
        bounds = [row[name] for name in ("value", "low", "high", "limit") if row[name] is not None]
        reach = 1.15 * max(0.01, *map(abs, bounds))
        row["at"] = {
            name: f"{50 + 50 * row[name] / reach:.2f}"
            for name in ("value", "low", "high", "limit")
            if row[name] is not None
        }
    return rows


@route("/jobs/{job_id}")
async def show(visit: Visit) -> Response:
    return visit.page("job/job.html", **await facts(visit.api, visit.named(JOBS)))


@route("/jobs/{job_id}/stream")
async def follow(visit: Visit) -> Response:
    """Stream points of the curve, and panels as they change."""
    path = visit.named(JOBS)
    await visit.api.get(path)  # another tenant's job is refused before the stream begins

    async def panels() -> str:
        return visit.part("job/panels.html", **await facts(visit.api, path))

    return stream(visit.api, path, visit.request.headers.get("last-event-id"), panels)


@route("/jobs/{job_id}/starts")
async def starts(visit: Visit) -> Response:
    """Show what would start a job that waits sooner."""
    sooner = await visit.api.get(f"{visit.named(JOBS)}/starts")
    return visit.page("job/starts.html", starts=sooner["data"], job_id=sooner["job_id"])


@route("/jobs/{job_id}/answers")
async def answers(visit: Visit) -> Response:
    """Show the answers of the base model and of the new one, which the gate has compared."""
    listed = (await visit.api.get(f"{visit.named(JOBS)}/answers"))["data"]
    job_id = visit.request.path_params["job_id"]
    return visit.page("job/answers.html", answers=listed, job_id=job_id)


@route("/jobs/{job_id}/{change}", "POST")
async def change(visit: Visit) -> Response:
    """Cancel, pause or resume a job."""
    name = visit.request.path_params["change"]
    if name not in CHANGES:
        raise NO_PAGE
    await visit.api.post(f"{visit.named(JOBS)}/{name}")
    return visit.go(visit.named(f"{ROOT}/jobs"))


ROUTES: Final[tuple[Route, ...]] = (show, follow, starts, answers, change)
