"""The queue of a pool with other nodes or other jobs, as an operator asks about it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from msgspec import structs
from pydantic import Field, StrictInt

from schemas import errors
from schemas.account import Lane
from schemas.units import HOUR_MS, Ms
from services.gateway.jobs.domain.plan_responses import RefusalResponse
from services.gateway.jobs.domain.queue_view import QueueRows
from services.gateway.jobs.domain.responses import QueueResponse
from services.gateway.views.tables.jobs import PlacementRow
from services.gateway.web.domain.bodies import Body, Id
from services.gateway.web.domain.errors import ApiError, invalid
from services.gateway.web.domain.responses import Response
from tunery.plan.scheduling.requests import LANES

CHANGES_MAX: Final = 100
NODES_MAX: Final = 1_000
SLOTS_MAX: Final = 4_096


class MoreNodes(Body):
    """Further nodes of a kind that the pool has."""

    like: Id = Field(description="a node of the pool: the new ones are as it is")
    nodes: Annotated[StrictInt, Field(ge=1, le=NODES_MAX)] = 1


class OtherJob(Body):
    """A job that waits or runs, changed."""

    job_id: Id
    left_out: bool = Field(default=False, description="as if it were cancelled")
    slots: Annotated[StrictInt, Field(ge=1, le=SLOTS_MAX)] | None = None
    lane: Lane | None = None


class QueuePlanRequest(Body):
    """Changes of a pool, all at once."""

    pool: Id = "default"
    add: tuple[MoreNodes, ...] = Field(default=(), max_length=CHANGES_MAX)
    remove: tuple[Id, ...] = Field(
        default=(), max_length=CHANGES_MAX, description="nodes; what runs there goes back to wait"
    )
    jobs: tuple[OtherJob, ...] = Field(default=(), max_length=CHANGES_MAX)


def changed_rows(rows: QueueRows, asked: QueuePlanRequest) -> QueueRows:
    """Return the rows of a pool with the changes. Raises ApiError 400, 404."""
    rows = _with_nodes(_without_nodes(rows, asked.remove), rows, asked.add)
    for number, other in enumerate(asked.jobs):
        rows = _with_job(rows, other, f"jobs.{number}")
    return rows


def _without_nodes(rows: QueueRows, removed: Sequence[str]) -> QueueRows:
    """Remove nodes. What runs there loses its other seats, too, and asks anew for all its work."""
    known = {row.id for row in rows.nodes}
    for number, node_id in enumerate(removed):
        if node_id not in known:
            raise _unknown("node", node_id, f"remove.{number}")
    lost = {seat.lease for seat in rows.seats if seat.node_id in removed}
    stopped = {seat.job_id for seat in rows.seats if seat.lease in lost}
    return replace(
        rows,
        nodes=[row for row in rows.nodes if row.id not in removed],
        placements=[_waiting(row) if row.id in stopped else row for row in rows.placements],
        seats=[seat for seat in rows.seats if seat.lease not in lost],
    )


def _waiting(row: PlacementRow) -> PlacementRow:
    return structs.replace(
        row, bound=None, granted_at=None, started_at=None, captured_ms=None, ends_by=None
    )


def _with_nodes(rows: QueueRows, known: QueueRows, added: Sequence[MoreNodes]) -> QueueRows:
    by_id, nodes = {row.id: row for row in known.nodes}, [*rows.nodes]
    for number, more in enumerate(added):
        like = by_id.get(more.like)
        if like is None:
            raise _unknown("node", more.like, f"add.{number}.like")
        nodes += [
            structs.replace(
                like,
                id=f"{like.id}+{number}.{each}",
                state="alive",
                joining=None,
                leaving=None,
                ends_at=None,
                warned=None,
                cordon=None,
                faults=(),
            )
            for each in range(1, more.nodes + 1)
        ]
    return replace(rows, nodes=nodes)


def _with_job(rows: QueueRows, other: OtherJob, param: str) -> QueueRows:
    row, coming = rows.placement(other.job_id), rows.coming_job(other.job_id)
    if row is None and coming is None:
        raise _unknown("job in the pool", other.job_id, f"{param}.job_id")
    rest = rows.without(other.job_id)
    if other.left_out:
        seats = [seat for seat in rest.seats if seat.job_id != other.job_id]
        return replace(rest, seats=seats)
    if row is None or row.granted_at is not None:
        why = "runs" if coming is None else "prepares its inputs"
        message = f"Job {other.job_id} {why}: it can only be left out (left_out)."
        raise invalid(message, param)
    slots = other.slots or row.slots
    changed = structs.replace(
        row,
        lane=other.lane or row.lane,
        slots=slots,
        bound=row.bound if slots == row.slots else None,
        # the same work, shared by so many
        p50_ms=row.p50_ms * row.slots // slots,
        p90_ms=row.p90_ms * row.slots // slots,
    )
    placements = [changed if each.id == row.id else each for each in rows.placements]
    return replace(rows, placements=placements)


def _unknown(noun: str, name: str, param: str) -> ApiError:
    return ApiError(404, errors.NOT_FOUND, f"There is no {noun} {name!r}.", param)


Change = Literal["none", "slots", "epochs", "accelerator", "domain", "spot", "later", "lane"]
LATER_MS: Final[Ms] = 8 * HOUR_MS  # tonight, seen from a working day in any zone
#: settings that keep a job from nodes which it could have otherwise
BOUNDS: Final[dict[Change, str]] = {
    "accelerator": "On any model of device",
    "domain": "In any domain",
}


class ChangedStartResponse(Response):
    """A change, and when the job would start with it. `body`: the submission that makes it, with
    `later` in eight hours; null: none does. `queue`: null: not known. `refusals`: why it would be
    refused, and how much more of a budget would admit it.
    """

    change: Change
    text: str
    body: dict[str, Any] | None
    queue: QueueResponse | None
    refusals: list[RefusalResponse]
    currency: str | None = None
    amount_micro: int | None = None
    amount_max_micro: int | None = None


class StartsResponse(Response):
    """What would start a job sooner, as the scheduler's planner answers. The first row is the job
    as it is; each other one is a plan for a job in its place, submitted at `at`, or later.
    """

    object: Literal["fine_tuning.job.starts"] = "fine_tuning.job.starts"
    job_id: str
    at: int
    data: list[ChangedStartResponse]


def changed_bodies(body: dict[str, Any]) -> Iterator[tuple[Change, str, dict[str, Any]]]:
    """Yield submissions that differ from one in one thing, each with its change in words."""
    training, placement = body.get("training", {}), body.get("placement", {})

    def changed(group: str, **values: Any) -> dict[str, Any]:
        return {**body, group: {**body.get(group, {}), **values}}

    slots = training.get("slots", 1)
    for fewer in sorted({slots // 2, 1} - {0, slots}, reverse=True):
        yield "slots", f"With {fewer} of {slots} slots", changed("training", slots=fewer)
    epochs = training.get("n_epochs", 1)
    if isinstance(epochs, int) and epochs > 1:  # a shorter job may fit before a reservation
        half = epochs // 2
        yield "epochs", f"With {half} of {epochs} epochs", changed("training", n_epochs=half)
    for name, text in BOUNDS.items():
        if placement.get(name) is not None:
            # a time to wait for a domain means nothing without one
            wait = {"domain_wait_minutes": None} if name == "domain" else {}
            yield name, text, changed("placement", **{name: None}, **wait)
    if placement.get("spot") is not True:
        yield "spot", "On spot machines too", changed("placement", spot=True)


def higher_lanes(lane: Lane) -> tuple[Lane, ...]:
    """Return the lanes that are served before one, the next one first."""
    return LANES[: LANES.index(lane)][::-1]
