"""`pool` → what waits in its queue, and what its leases hold."""

from typing import TypeAlias, assert_never

from schemas.envelope import Header
from schemas.node import BackOffEnded, DomainGivenUp, SpotGivenUp, SpotReconsidered
from schemas.pool import (
    CheckpointAccepted,
    LeaseAdmitted,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseMember,
    LeaseRef,
    LeaseStarted,
    LeaseWaits,
    MemberFreed,
    PlacementClosed,
    PlacementQueued,
)
from schemas.training import FailureCause
from schemas.works import WorkForgotten
from services.gateway.views.tables.jobs import (
    ATTEMPT_NODES,
    ATTEMPT_TIMES,
    PLACEMENTS,
    SEATS,
    AttemptNodeRow,
    SeatRow,
)
from tunery.runtime.verbs import Change

PlacementEvent: TypeAlias = (
    BackOffEnded
    | SpotGivenUp
    | SpotReconsidered
    | DomainGivenUp
    | PlacementQueued
    | LeaseGranted
    | LeaseWaits
    | LeaseAdmitted
    | LeaseStarted
    | CheckpointAccepted
    | LeaseDraining
    | LeaseKilled
    | PlacementClosed
    | MemberFreed
    | WorkForgotten
)
# After an attempt that failed for one of these, the job avoids its nodes for a while.
FAULTS_OF_NODES: tuple[FailureCause | None, ...] = ("bad_node", "platform", None)


def project_placement(header: Header, event: PlacementEvent) -> tuple[Change, ...]:
    """Changes to the rows of the queue and of leases that follow from one event of `pool`."""
    match event:
        case PlacementQueued():
            return (_queued(header, event), _expected(header, event))
        case LeaseGranted():
            granted = _set(header, event.lease.job_id, granted_at=header.at, bound=None)
            seats = (_seat(header, event.lease, member) for member in event.members)
            nodes = (_node(header, event.lease, member) for member in event.members)
            return (granted, *seats, *nodes)
        case LeaseWaits():
            waits = {"wait": event.reason, "waits_since": event.since}
            return (_set(header, event.lease.job_id, **waits),)
        case LeaseAdmitted():
            admitted = {"wait": None, "admitted_at": header.at}
            return (_set(header, event.lease.job_id, **admitted),)
        case LeaseStarted():
            first_step = event.start.loaded_step
            began = _set_time(
                header, event.lease.job_id, event.lease.attempt, first_step=first_step
            )
            return (_started(header, event), began)
        case CheckpointAccepted():
            captured_ms, step = event.checkpoint.captured_ms, event.checkpoint.step
            return (_set(header, event.lease.job_id, captured_ms=captured_ms, saved_step=step),)
        case LeaseDraining():
            return _draining(header, event)
        case LeaseKilled():
            return (_set(header, event.lease.job_id, ends_by=header.at),)
        case PlacementClosed():
            return (_closed(header, event), _took(header, event))
        case MemberFreed():
            seat = seat_id(event.lease.token.lease, event.node_id)
            return (SEATS.delete({"pool": header.key, "id": seat}),)
        case SpotGivenUp():
            return (_set(header, event.job_id, spot=False),)
        case SpotReconsidered():
            return (_set(header, event.job_id, spot=event.spot),)
        case DomainGivenUp():
            return (_set(header, event.job_id, domain_until=None, any_domain=True),)
        case BackOffEnded():
            return (_set(header, event.job_id, barred=None),)
        case WorkForgotten():
            return (PLACEMENTS.delete({"pool": header.key, "id": event.job_id}),)
        case _:
            assert_never(event)


def seat_id(lease: int, node_id: str) -> str:
    """The id of the row of a lease's slots on one node."""
    return f"{lease:012d}/{node_id}"


def _set(header: Header, job_id: str, **values: object) -> Change:
    return PLACEMENTS.update({"pool": header.key, "id": job_id}, **values)


def _set_time(header: Header, job_id: str, attempt: int, **values: object) -> Change:
    key = {"pool": header.key, "id": f"{job_id}/{attempt}"}
    return ATTEMPT_TIMES.update(key, **values) if values else ATTEMPT_TIMES.delete(key)


def _queued(header: Header, event: PlacementQueued) -> Change:
    """A new attempt. The nodes that the job avoids since the last one (`barred`) stay."""
    placement = event.placement
    expected = event.expected or placement.estimated_time
    return _set(
        header,
        placement.job_id,
        **PLACEMENTS.shared(expected, event, placement),
        sequence=header.seq,
        submitted_at=placement.first_submitted_at,
        queued_at=header.at,
        estimate_ms=placement.p50_ms,
        limit_ms=placement.p90_ms,
        any_domain=False,
        bound=None,
        granted_at=None,
        wait=None,
        waits_since=None,
        admitted_at=None,
        started_at=None,
        first_step=None,
        steps=None,
        captured_ms=None,
        saved_step=None,
        ends_by=None,
    )


def _expected(header: Header, event: PlacementQueued) -> Change:
    placement = event.placement
    expected = event.expected or placement.estimated_time
    return _set_time(
        header,
        placement.job_id,
        placement.attempt,
        role=placement.role,
        slots=placement.slots,
        p50_ms=expected.p50_ms,
        p90_ms=expected.p90_ms,
    )


def _took(header: Header, event: PlacementClosed) -> Change:
    """Keep the time of a successful attempt; that of any other says nothing, and is deleted."""
    if event.end.outcome != "succeeded":
        return _set_time(header, event.job_id, event.attempt)
    used_gpu_ms = event.end.used_gpu_ms
    return _set_time(
        header, event.job_id, event.attempt, sequence=header.seq, used_gpu_ms=used_gpu_ms
    )


def _started(header: Header, event: LeaseStarted) -> Change:
    first_step = event.start.loaded_step
    steps = max(0, event.start.total_steps - first_step)
    job_id = event.lease.job_id
    return _set(header, job_id, started_at=header.at, first_step=first_step, steps=steps)


def _seat(header: Header, lease: LeaseRef, member: LeaseMember) -> Change:
    return SEATS.insert(
        SeatRow.of(
            lease,
            member,
            pool=header.key,
            id=seat_id(lease.token.lease, member.node_id),
            lease=lease.token.lease,
            granted_at=header.at,
        )
    )


def _node(header: Header, lease: LeaseRef, member: LeaseMember) -> Change:
    return ATTEMPT_NODES.insert(
        AttemptNodeRow.of(
            lease,
            member,
            pool=header.key,
            id=f"{lease.job_id}/{lease.attempt}/{member.node_id}",
        )
    )


def _draining(header: Header, event: LeaseDraining) -> tuple[Change, ...]:
    """The lease must end soon. If that is for another job, the freed slots are reserved for it."""
    notified = _set(header, event.lease.job_id, ends_by=event.deadline)
    if event.beneficiary is None:
        return (notified,)
    return (notified, _set(header, event.beneficiary.job_id, bound=event.beneficiary.seats))


def _closed(header: Header, event: PlacementClosed) -> Change:
    """The attempt has ended. Nodes that it failed on are remembered until its back-off is over."""
    end = event.end
    if end.outcome == "failed" and end.cause in FAULTS_OF_NODES and end.node_ids:
        return _set(header, event.job_id, attempt=None, barred=end.nodes_at_fault)
    return PLACEMENTS.delete({"pool": header.key, "id": event.job_id})
