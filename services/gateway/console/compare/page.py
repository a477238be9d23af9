"""Jobs side by side: what differs between them and what came of it."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from services.gateway.console.calls import JOBS, CallRefused, path_to
from services.gateway.console.job.curve import Step, columns, decimated, newest_of, steps_of
from services.gateway.console.job.page import intervals
from services.gateway.console.visits import Visit, route

JOBS_MAX: Final = 6
POINTS_MAX: Final = 300  # of each curve
NAMING: Final = frozenset({"version", "suffix", "metadata"})  # of a recipe: they train nothing


@route("/compare")
async def show(visit: Visit) -> Response:
    """Compare the jobs of the address, each once."""
    named = [*dict.fromkeys(visit.request.query_params.getlist("job"))]
    if not 2 <= len(named) <= JOBS_MAX:
        message = f"Mark two to {JOBS_MAX} jobs in the list, then press Compare."
        raise CallRefused(400, "invalid_request", message)
    paths = [path_to(JOBS, job_id) for job_id in named]
    jobs = await asyncio.gather(*map(visit.api.get, paths))
    recipes = await asyncio.gather(*(visit.api.get(f"{path}/recipe") for path in paths))
    curves, newest = list[dict[str, Any]](), list[Step | None]()
    # One job after the other: each may have 200 pages of steps, of which a few points are kept.
    for job, path in zip(jobs, paths, strict=True):
        steps = await steps_of(visit.api, path)
        name = job["user_provided_suffix"] or job["id"]
        curves.append({"name": name, **columns(decimated(steps, POINTS_MAX))})
        newest.append(newest_of(steps))
    values: dict[str, Any] = {
        "jobs": jobs,
        "curves": json.dumps(curves) if any(each["step"] for each in curves) else None,
        "settings": differences([each["recipe"] for each in recipes]),
        "gates": [intervals(job["gate"]) for job in jobs],
        "newest": newest,
    }
    return visit.page("compare/compare.html", **values)


def differences(recipes: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the settings that are not the same in all recipes, by their paths."""
    flat = [dict(_flat(recipe)) for recipe in recipes]
    named = dict.fromkeys(name for each in flat for name in each)
    rows = {name: [each.get(name) for each in flat] for name in named}
    return {name: row for name, row in rows.items() if any(each != row[0] for each in row)}


def _flat(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        if not path and name in NAMING:
            continue
        if isinstance(each, Mapping) and each:
            yield from _flat(each, f"{path}{name}.")
        else:
            yield path + name, each


ROUTES: Final[tuple[Route, ...]] = (show,)
