"""The queue of a pool as its rows show it: given to the planner, and explained by it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from schemas.account import Lane
from schemas.envelope import Reason
from schemas.reasons import waiting
from schemas.submission import Estimate, JobSpec
from schemas.training import ExpectedTime
from schemas.units import HOUR_MS, Ms
from services.gateway.views.tables.jobs import (
    AttemptTimeRow,
    JobRow,
    NodeRow,
    PlacementRow,
    SeatRow,
)
from tunery.plan.durations import follow
from tunery.plan.scheduling.expectations import expected_end
from tunery.plan.scheduling.explanation import (
    ExplainedQueue,
    Explanation,
    explain,
    start_of_later,
)
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.requests import (
    LANES,
    PlanNode,
    Request,
    RequestClass,
    Running,
    Seats,
    avoids_spot,
    demands,
    is_on_one_node,
    price_class_of,
)

# A job whose file is being validated has no estimate yet.
UNKNOWN_MS: Final[Ms] = HOUR_MS
NEW: Final = ""  # a job that is not submitted
COMING: Final = ("validating", "queued")  # phases before the pool's queue


@dataclass(frozen=True)
class QueueRows:
    """Rows of one pool."""

    nodes: Sequence[NodeRow]  # all nodes
    placements: Sequence[PlacementRow]  # waiting and running ones
    seats: Sequence[SeatRow]  # slots of leases
    coming: Sequence[JobRow] = ()  # jobs that have not asked the pool for slots yet
    ended: Sequence[AttemptTimeRow] = ()  # the newest attempts that succeeded

    def placement(self, job_id: str) -> PlacementRow | None:
        """Return the request of a job to the pool; None if there is none."""
        return self._by_job.get(job_id)

    def coming_job(self, job_id: str) -> JobRow | None:
        """A job that is not in the pool's queue yet."""
        return None if job_id in self._by_job else self._coming_by_id.get(job_id)

    def without(self, job_id: str) -> "QueueRows":
        """Return the rows as if a job that waits had left the queue."""
        return replace(
            self,
            placements=[row for row in self.placements if row.id != job_id],
            coming=[row for row in self.coming if row.id != job_id],
        )

    @cached_property
    def leases(self) -> Mapping[int, Sequence[SeatRow]]:
        """The seats of each lease, by its number."""
        leases: dict[int, list[SeatRow]] = {}
        for seat in sorted(self.seats, key=lambda row: row.lease):
            leases.setdefault(seat.lease, []).append(seat)
        return leases

    def held_slots(self, seat: SeatRow) -> int:
        """Slots that a lease holds of a node, less those whose devices have a fault."""
        return seat.slots_of(self._node_by_id.get(seat.node_id))

    def open_placement(self, seat: SeatRow) -> PlacementRow | None:
        """Return the request that a lease was granted for; None if it ended and its slots are not
        free yet.
        """
        row = self.placement(seat.job_id)
        return row if row is not None and row.granted_at == seat.granted_at else None

    @cached_property
    def _node_by_id(self) -> Mapping[str, NodeRow]:
        return {row.id: row for row in self.nodes}

    @cached_property
    def _coming_by_id(self) -> Mapping[str, JobRow]:
        return {row.id: row for row in self.coming}

    @cached_property
    def _by_job(self) -> Mapping[str, PlacementRow]:
        return {row.id: row for row in self.placements}


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Forecast for a waiting job, as shown to its tenant."""

    # lane, position, ahead: see its `Explanation`; None: it has its slots, and prepares
    lane: Lane | None = None
    position: int | None = None
    ahead: int | None = None
    reason: Reason | None = None  # why it waits for the pool; None: its row has the reason
    # earliest, latest: bounds of its expected start; None: a person has to act first
    earliest: Ms | None = None
    latest: Ms | None = None
    since: Ms | None = None  # since when the cluster of its lease has not admitted it


@dataclass(frozen=True)
class QueueView:
    """A pool's queue at one moment: the planning state, and the explanations from it."""

    at: Ms
    state: PlanningState
    explained: ExplainedQueue

    def explanation(self, job_id: str) -> Explanation | None:
        """Why a job waits; None: it does not wait for this pool."""
        return self.explained.explanations.get(job_id)


def view_queue(rows: QueueRows, at: Ms, *more: Request) -> QueueView:
    """The queue with `more` requests behind those of the rows, explained as of `at`."""
    nodes = [
        PlanNode(
            row.id,
            len(row.devices),
            row.device,
            row.memory_bytes,
            accelerator=row.accelerator,
            price_class=price_class_of(spot=row.spot, reserved=row.reserved),
            warned=bool(row.warned),
            taints=tuple(sorted(row.taints)),
            domain=row.domain,
            fabric=row.fabric,
        )
        for row in sorted(rows.nodes, key=_by_id)
        if row.status == "up" and row.devices
    ]
    state = PlanningState(nodes, PRODUCT)
    for lease in _running(rows):
        state.start(lease)
    waiting = [row for row in rows.placements if row.granted_at is None]
    for row in waiting:
        if row.bound:
            state.bind(row.id, tuple((seat.node_id, seat.slots) for seat in row.bound))
    coming = (request_of_job(row) for row in rows.coming if rows.placement(row.id) is None)
    requests = [*(_request(row) for row in waiting), *coming, *more]
    return QueueView(at, state, explain(state, requests, at))


def look_out(row: JobRow, rows: QueueRows, view: QueueView, now: Ms) -> Outlook | None:
    """Return the outlook of a job, with no start before `now`; None: it does not wait."""
    placement = rows.placement(row.id)
    if placement is not None and placement.granted_at is not None:
        if placement.started_at is not None:
            return None
        if placement.wait is not None:  # how long the cluster takes is not known here
            return Outlook(reason=placement.wait, since=placement.waits_since)
        since = placement.admitted_at or placement.granted_at
        return Outlook(earliest=now, latest=max(now, since + placement.start_ms_max))
    explanation = view.explanation(row.id)
    if explanation is None:
        return _look_out_last(row, view, now) if row.phase in COMING else None
    outlook = outlook_of(explanation, now)
    return replace(outlook, reason=None) if placement is None else outlook


def outlook_of(explanation: Explanation, now: Ms) -> Outlook:
    """Convert the explanation of a queue position to the outlook shown to the tenant."""
    return Outlook(
        lane=LANES[explanation.lane],
        position=explanation.position,
        ahead=explanation.ahead,
        reason=explanation.reason,
        earliest=not_before(explanation.earliest, now),
        latest=not_before(explanation.latest, now),
    )


def _look_out_last(row: JobRow, view: QueueView, now: Ms) -> Outlook:
    """Return the outlook of a job that is newer than the view: it is last in its lane until the
    next view. So a burst of submissions does not read the queue once for each.
    """
    request = request_of_job(row)
    before = [each for each in view.explained.explanations.values() if each.lane <= request.lane]
    fits = request.needs.slots <= view.state.capacity.most(request.needs)
    starts = [each.latest for each in before if each.latest is not None]
    return Outlook(
        lane=row.lane,
        position=1 + sum(each.lane == request.lane for each in before),
        ahead=len(before),
        earliest=now if fits else None,
        latest=max((now, *starts)) if fits else None,
    )


def look_out_full(tenant: str, limit: int, rows: QueueRows, view: QueueView, now: Ms) -> Outlook:
    """Outlook of a paused job whose tenant already runs `limit` jobs: it can resume when the first
    of them ends.
    """
    names = {lease_name(seat.lease) for seat in rows.seats if seat.tenant == tenant}
    leases = [view.state.running[name] for name in names if name in view.state.running]
    expected = [replace(lease, p90_ms=lease.p50_ms) for lease in leases]
    earliest = min((expected_end(lease, view.at) for lease in expected), default=None)
    latest = min((expected_end(lease, view.at) for lease in leases), default=None)
    return Outlook(
        reason=waiting("quota", limit=limit),
        earliest=not_before(earliest, now),
        latest=not_before(latest, now),
    )


def look_out_later(rows: QueueRows, request: Request, now: Ms) -> Outlook:
    """Outlook of a job that is submitted later than now; its position then is not known."""
    view = view_queue(rows, now)
    starts = start_of_later(view.state, view.explained, request, now)
    earliest, latest = (None, None) if starts is None else starts
    return Outlook(lane=LANES[request.lane], earliest=earliest, latest=latest)


def not_before(at: Ms | None, now: Ms) -> Ms | None:
    """Return a moment of a slightly outdated view, but not before now."""
    return None if at is None else max(at, now)


def lease_name(lease: int) -> str:
    """Return the planner's key of a lease."""
    return str(lease)


def request_of_job(row: JobRow) -> Request:
    """Build the pool request of a job that waits for its inputs."""
    needed = None if row.hold is None else row.hold.estimate
    return _request_of(row.id, row.tenant, row.lane, row.spec, needed, row.created_at)


def request_of_new(tenant: str, spec: JobSpec, needed: Estimate, at: Ms) -> Request:
    """Build the pool request of a job that is only estimated so far."""
    return _request_of(NEW, tenant, spec.price.lane or "standard", spec, needed, at)


def _request_of(
    job_id: str, tenant: str, lane: Lane, spec: JobSpec, needed: Estimate | None, at: Ms
) -> Request:
    at_most_ms = UNKNOWN_MS if needed is None else needed.hold_gpu_ms // spec.slots
    expected_ms = UNKNOWN_MS if needed is None else needed.train_gpu_ms // spec.slots
    return Request(
        job_id=job_id,
        tenant=tenant,
        lane=LANES.index(lane),
        needs=RequestClass(
            slots=spec.slots,
            device=spec.device,
            memory_bytes=0 if needed is None else needed.memory_bytes,
            constraints=demands(spec.constraints),
            on_one_node=is_on_one_node("train"),
        ),
        submitted_at=at,
        p50_ms=min(expected_ms, at_most_ms),
        p90_ms=at_most_ms,
    )


def _request(row: PlacementRow) -> Request:
    return Request(
        job_id=row.id,
        tenant=row.tenant,
        lane=LANES.index(row.lane),
        needs=RequestClass(
            slots=row.slots,
            device=row.device,
            memory_bytes=row.memory_bytes,
            excluded=tuple(sorted(row.excluded_nodes)),
            barred=tuple(sorted(row.barred or ())),
            constraints=demands(row.constraints, any_domain=bool(row.any_domain)),
            avoids_spot=avoids_spot(row.constraints, row.spot),
            on_one_node=is_on_one_node(row.role),
        ),
        submitted_at=row.submitted_at,
        queued_at=row.queued_at,
        p50_ms=row.p50_ms,
        p90_ms=row.p90_ms,
        estimate_ms=row.estimate_ms,
        preemptions=row.preemptions,
        domain_until=row.domain_until,
    )


def _running(rows: QueueRows) -> Iterable[Running]:
    """Leases that hold slots. What has ended and is not free yet is expected to be free at once."""
    for held in rows.leases.values():
        first = held[0]
        row = rows.open_placement(first)
        where = tuple((seat.node_id, rows.held_slots(seat)) for seat in sorted(held, key=_by_id))
        yield _ending(first, where) if row is None else _open_lease(row, first, where)


def _open_lease(row: PlacementRow, seat: SeatRow, seats: Seats) -> Running:
    first_step = row.first_step or 0
    expected = follow(
        ExpectedTime(p50_ms=row.p50_ms, p90_ms=row.p90_ms),
        row.limit_ms,
        row.captured_ms or 0,
        first_step,
        row.steps or 0,
        max(0, (row.saved_step or 0) - first_step),
    )
    return Running(
        key=lease_name(seat.lease),
        tenant=row.tenant,
        lane=LANES.index(row.lane),
        memory_bytes=row.memory_bytes,
        p50_ms=expected.p50_ms,
        p90_ms=expected.p90_ms,
        estimate_ms=row.estimate_ms,
        preemptions=row.preemptions,
        seats=seats,
        granted_at=seat.granted_at,
        started_at=row.started_at,
        saved_at=0 if row.started_at is None else row.started_at + (row.captured_ms or 0),
        ends_by=row.ends_by,
        submitted_at=row.submitted_at,
    )


def _ending(seat: SeatRow, seats: Seats) -> Running:
    return Running(
        key=lease_name(seat.lease),
        tenant=seat.tenant,
        lane=LANES.index(seat.lane),
        memory_bytes=0,
        p50_ms=0,
        p90_ms=0,
        preemptions=0,
        seats=seats,
        granted_at=seat.granted_at,
        ends_by=seat.granted_at,
    )


def _by_id(row: NodeRow | SeatRow) -> str:
    return row.id
