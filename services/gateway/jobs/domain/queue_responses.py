"""Why one job waits, for its tenant; and the whole queue of a pool, for operators."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Literal

from schemas.pool import Role
from schemas.training import Device
from schemas.units import DAY_MS, Ms
from services.gateway.jobs.domain.queue_view import QueueRows, QueueView, lease_name, not_before
from services.gateway.jobs.domain.responses import QueueResponse
from services.gateway.jobs.domain.statuses import JobStatus
from services.gateway.views.tables.jobs import AttemptTimeRow, NodeRow, NodeStatus, SeatRow
from services.gateway.web.domain.responses import Response, Seconds, TextOrNone, seconds, seconds_up
from services.gateway.wording import unblock_words, wait_words
from tunery.plan.scheduling.expectations import expected_end
from tunery.plan.scheduling.explanation import Explanation
from tunery.plan.scheduling.requests import LANES, PriceClass, RequestClass, Seats, price_class_of
from tunery.plan.scheduling.reservation import Reservation


class JobQueueResponse(Response):
    """Why a job waits. `queue` is null when it does not."""

    object: Literal["fine_tuning.job.queue"] = "fine_tuning.job.queue"
    job_id: str
    status: JobStatus
    at: int
    queue: QueueResponse | None


class NodeKindResponse(Response):
    """Nodes of one device, model and price class, and how scarce their slots are.

    `nodes`, `slots`: of those that are up, less devices with a fault. `held`: by leases. `asked`:
    by jobs that wait and may have such nodes; a job that may have several kinds counts for each.
    `interrupted`: nodes that were taken away or lost in the last day.
    """

    device: Device
    accelerator: str | None
    price_class: PriceClass
    nodes: int
    slots: int
    free: int
    held: int
    asked: int
    interrupted: int


class CalibrationResponse(Response):
    """How good the expected times of trainings or evaluations are, by the newest of them that
    succeeded and began at the first step: good estimates have 50 % and 85 to 95 %.
    """

    role: Role
    attempts: int
    within_p50_pct: float
    within_p90_pct: float


class QueuedNodeResponse(Response):
    """A node and its slots. Only those of a node that is `up` can be given to jobs, and of these
    only those whose devices have no fault.
    """

    id: str
    status: NodeStatus
    device: Device
    accelerator: TextOrNone
    slots: int
    free: int


class QueuedLeaseResponse(Response):
    """Lease that occupies slots. `ends`: when they are expected to be free. `ends_by`: deadline of
    a lease that is to stop. Both are null for a lease that has ended and has not freed its slots
    yet.
    """

    lease: int
    job_id: str
    tenant: str
    role: str
    lane: str
    nodes: list[str]
    slots: int
    granted_at: Seconds
    started_at: Seconds | None
    ends: int | None
    ends_by: Seconds | None


class QueuedJobResponse(QueueResponse):
    """Waiting job, with the fields of its job's `queue`."""

    job_id: str
    tenant: str
    slots: int
    submitted_at: Seconds


class SeatResponse(Response):
    node: str
    slots: int


class NextStartResponse(Response):
    job_id: str
    seats: list[SeatResponse]


class NextPreemptionResponse(Response):
    """A preemption that comes next. `stops`: jobs that end so that the job gets its slots."""

    job_id: str
    stops: list[str]
    seats: list[SeatResponse]


class NextReservationResponse(Response):
    """The first job that does not fit: where and when it is expected to."""

    job_id: str
    at: int
    seats: list[SeatResponse]


class NextDecisionsResponse(Response):
    """Decisions that the pool would make now. `reservations`: one for each group of nodes that are
    equivalent for the waiting jobs; `reservation`: the first of them.
    """

    starts: list[NextStartResponse]
    preemptions: list[NextPreemptionResponse]
    reservation: NextReservationResponse | None
    reservations: list[NextReservationResponse]


class PoolQueueResponse(Response):
    """A pool's nodes, what holds their slots, what waits in order of service, and what is next.

    `kinds`: its nodes by what jobs choose them by. `calibration`: empty until something has
    succeeded.
    """

    object: Literal["queue"] = "queue"
    pool: str
    at: int
    kinds: list[NodeKindResponse]
    nodes: list[QueuedNodeResponse]
    leases: list[QueuedLeaseResponse]
    waiting: list[QueuedJobResponse]
    next: NextDecisionsResponse
    calibration: list[CalibrationResponse]


def pool_queue_response(pool: str, rows: QueueRows, view: QueueView, now: Ms) -> PoolQueueResponse:
    """The whole queue of a pool. It names tenants and jobs: it is for operators."""
    held = Counter[str]()
    for seat in rows.seats:
        held[seat.node_id] += rows.held_slots(seat)
    return PoolQueueResponse(
        pool=pool,
        at=seconds(now),
        kinds=_kinds(rows, view, held, now),
        nodes=[_node(row, held[row.id]) for row in rows.nodes],
        leases=[_lease(seats, rows, view, now) for seats in rows.leases.values()],
        waiting=[_waiting(each, rows, now) for each in view.explained.explanations.values()],
        next=_next_decisions(rows, view, now),
        calibration=_calibration(rows),
    )


def _kinds(
    rows: QueueRows, view: QueueView, held: Mapping[str, int], now: Ms
) -> list[NodeKindResponse]:
    by_kind: dict[tuple[Device, str, PriceClass], list[NodeRow]] = {}
    for row in rows.nodes:
        price_class = price_class_of(spot=row.spot, reserved=row.reserved)
        by_kind.setdefault((row.device, row.accelerator, price_class), []).append(row)
    asked = Counter[RequestClass]()
    for each in view.explained.explanations.values():
        asked[each.request.needs] += each.request.needs.slots
    planned = view.state.capacity.nodes
    return [
        NodeKindResponse(
            device=device,
            accelerator=accelerator or None,
            price_class=price_class,
            nodes=len(up := [row for row in of_kind if row.id in planned]),
            slots=sum(len(row.devices) for row in up),
            free=sum(max(0, len(row.devices) - held[row.id]) for row in up),
            held=sum(held[row.id] for row in of_kind),
            asked=sum(
                slots
                for needs, slots in asked.items()
                if any(view.state.capacity.suits(planned[row.id].kind, needs) for row in up)
            ),
            interrupted=sum((row.interrupted_at or 0) > now - DAY_MS for row in of_kind),
        )
        for (device, accelerator, price_class), of_kind in sorted(by_kind.items())
    ]


def _calibration(rows: QueueRows) -> list[CalibrationResponse]:
    by_role: dict[Role, list[AttemptTimeRow]] = {}
    for row in rows.ended:
        if row.first_step == 0:
            by_role.setdefault(row.role, []).append(row)
    return [
        CalibrationResponse(
            role=role,
            attempts=len(ended),
            within_p50_pct=_share(row.used_gpu_ms <= row.p50_ms * row.slots for row in ended),
            within_p90_pct=_share(row.used_gpu_ms <= row.p90_ms * row.slots for row in ended),
        )
        for role, ended in sorted(by_role.items())
    ]


def _share(hits: Iterable[bool]) -> float:
    return round(100 * mean(hits), 1)


def _node(row: NodeRow, held: int) -> QueuedNodeResponse:
    return QueuedNodeResponse.of(row, free=max(0, len(row.devices) - held))


def _lease(
    seats: Sequence[SeatRow], rows: QueueRows, view: QueueView, now: Ms
) -> QueuedLeaseResponse:
    first = seats[0]
    is_open = rows.open_placement(first) is not None
    running = view.state.running[lease_name(first.lease)]
    return QueuedLeaseResponse.of(
        first,
        nodes=[seat.node_id for seat in seats],
        slots=running.slots,
        started_at=running.started_at,
        ends=seconds_up(not_before(expected_end(running, view.at), now)) if is_open else None,
        ends_by=running.ends_by if is_open else None,
    )


def _waiting(each: Explanation, rows: QueueRows, now: Ms) -> QueuedJobResponse:
    request = each.request
    job = rows.coming_job(request.job_id)
    reason = each.reason if job is None or job.reason is None else job.reason
    return QueuedJobResponse.of(
        request,
        request.needs,
        position=each.position,
        reason=wait_words(reason),
        code=reason.code,
        eta=seconds_up(not_before(each.earliest, now)),
        lane=LANES[each.lane],
        jobs_ahead=each.ahead,
        unblocked_by=unblock_words(reason),
        eta_latest=seconds_up(not_before(each.latest, now)),
    )


def _next_decisions(rows: QueueRows, view: QueueView, now: Ms) -> NextDecisionsResponse:
    """Only for what is in the pool's queue: a job that prepares its inputs cannot start yet."""
    planned, jobs = view.explained.planned, {str(seat.lease): seat.job_id for seat in rows.seats}
    reservations = [_reservation(each, now) for each in planned.reservations]
    return NextDecisionsResponse(
        starts=[
            NextStartResponse(job_id=start.request.job_id, seats=_seats(start.seats))
            for start in planned.starts
            if rows.coming_job(start.request.job_id) is None
        ],
        preemptions=[
            NextPreemptionResponse(
                job_id=stop.request.job_id,
                stops=[jobs[key] for key in stop.keys],
                seats=_seats(stop.seats),
            )
            for stop in planned.preemptions
            if rows.coming_job(stop.request.job_id) is None
        ],
        reservation=reservations[0] if reservations else None,
        reservations=reservations,
    )


def _reservation(reserved: Reservation, now: Ms) -> NextReservationResponse:
    return NextReservationResponse(
        job_id=reserved.request.job_id,
        at=seconds(max(now, reserved.at)),
        seats=_seats(reserved.seats),
    )


def _seats(seats: Seats) -> list[SeatResponse]:
    return [SeatResponse(node=node_id, slots=slots) for node_id, slots in seats]
