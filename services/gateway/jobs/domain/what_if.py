"""The queue of a pool with other nodes or other jobs, as an operator asks about it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

from msgspec import structs
from pydantic import Field, StrictInt

from schemas import errors
from schemas.account import Lane
from services.gateway.jobs.domain.queue_view import QueueRows
from services.gateway.views.tables.jobs import PlacementRow
from services.gateway.web.domain.bodies import Body, Id
from services.gateway.web.domain.errors import ApiError, invalid

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
