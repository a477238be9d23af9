"""Decider of `pool`: facts of nodes and attempts first, then grants and notices."""

from functools import partial
from typing import Final, assert_never

from immutables import Map
from msgspec.structs import replace

from schemas import errors
from schemas.enrolment import EnrolNode, InviteNode, RecordNodeKeys, RevokeInvitation
from schemas.envelope import Context, Rejected, Tick
from schemas.lease_keys import RecordLeaseKeys, RequestLeaseKeys
from schemas.node import (
    Beneficiary,
    CordonNode,
    DrainNode,
    ForgetNode,
    JoinNode,
    LeaveNode,
    NoticeNode,
    PlanningDeferred,
    ReportDeviceFaults,
    ResizeNode,
    Seat,
    UncordonNode,
    WarnNode,
    WithdrawNodeKeys,
)
from schemas.pool import (
    AttemptEnd,
    ClosePlacement,
    Command,
    ConfirmFreed,
    EndRequest,
    Event,
    ForgetWork,
    LeaseDraining,
    LeaseGranted,
    LeaseRef,
    ObserveNodes,
    Placement,
    PlacementQueued,
    RegisterNode,
    ReportCheckpoint,
    ReportExit,
    ReportRendezvous,
    ReportStarted,
    ReportWait,
    RequestPlacement,
    RetireNode,
    Token,
)
from schemas.reasons import ending, refusing
from schemas.records import build_from
from schemas.training import LeaseHardware, NodeConstraints, work_id_of
from schemas.works import DescribeWork, WorkKept
from services.scheduler.domain.pool import (
    admission,
    closing,
    deadlines,
    enrolment,
    lease_keys,
    nodes,
    reports,
)
from services.scheduler.domain.pool.carried import planned_pool
from services.scheduler.domain.pool.experience import expected_time
from services.scheduler.domain.pool.faults import cordon_failing
from services.scheduler.domain.pool.locality import domain_until_of
from services.scheduler.domain.pool.nodes import fold
from services.scheduler.domain.pool.placement import PlannedGrant, PlannedPreemption, plan_pool
from services.scheduler.domain.pool.price_classes import may_have_spot, spot_from_of, spot_until_of
from services.scheduler.domain.pool.speakers import refuse_other_node
from services.scheduler.domain.pool.state import (
    JobRefund,
    Lease,
    Pool,
    Pools,
    lease_of,
    withdrawn_keys,
    work_of,
)
from services.scheduler.domain.pool.usage import notice_ms
from tunery.plan.scheduling.capacity import most_slots
from tunery.plan.scheduling.requests import is_on_one_node, whole_gib
from tunery.runtime.journal.senders import refuse_withdrawn

# Grants of one record, beside facts and notices; the next tick continues with the others.
GRANTS_BYTES_MAX: Final = 200_000
GRANT_BYTES: Final = 500
MEMBER_BYTES: Final = 200


def decide(state: Pools, command: Command, ctx: Context) -> tuple[Event, ...]:
    """Facts, grants and notices that follow from one command."""
    pool = state.get(ctx.key) or Pool()
    withdrawn = withdrawn_keys(state)
    refused = refuse_withdrawn(withdrawn, ctx.sender)
    refused = refused or refuse_other_node(pool, command, ctx.sender)
    if refused is not None:
        return (refused,)
    # 1. The fact itself. A stale or refused one changes nothing, so nothing can follow from it.
    facts = _decide_fact(pool, command, ctx, withdrawn)
    if not facts or isinstance(facts[0], Rejected):
        return facts
    return (*facts, *decide_following(pool, facts, ctx))


def decide_following(pool: Pool, facts: tuple[Event, ...], ctx: Context) -> tuple[Event, ...]:
    """Decide what follows from these facts, which are not in the pool yet.

    The result is a function of state and facts alone, so that a journal can be decided again.
    """
    # Pools that follow from this one carry its planned pool on, also the one that its owner folds.
    planned_pool(pool)
    # 2. Nodes that have failed too often are cordoned before their slots can be granted again.
    pool = fold(pool, facts, ctx)
    cordons = cordon_failing(pool, facts)
    # 3. Grants, on the pool as it is after the fact: a freed slot is given away in the same
    #    record, so that no reader ever sees it idle beside a job that fits. Then notices to
    #    leases that have to make room.
    pool = fold(pool, cordons, ctx)
    planned = plan_pool(pool, ctx.at)
    fitting = _first_grants(planned.grants)
    grants = _grant(pool, fitting, ctx)
    notices = _preempt(planned.preemptions, ctx)
    more = planned.more or len(fitting) < len(planned.grants)
    deferral = () if more is pool.planning_deferred else (PlanningDeferred(pending=more),)
    return (*cordons, *grants, *notices, *deferral)


def _decide_fact(
    pool: Pool, command: Command, ctx: Context, withdrawn: Map[str, int]
) -> tuple[Event, ...]:
    match command:
        case RegisterNode():
            return nodes.decide_registered(pool, command, ctx)
        case JoinNode():
            return nodes.decide_joined(pool, command)
        case LeaveNode():
            return nodes.decide_leaving(pool, command)
        case NoticeNode():
            return nodes.decide_noticed(pool, command, ctx)
        case WarnNode():
            return nodes.decide_warned(pool, command)
        case ReportDeviceFaults():
            return nodes.decide_faults(pool, command, ctx)
        case ResizeNode():
            return nodes.decide_resized(pool, command)
        case RetireNode():
            return nodes.decide_retired(pool, command, ctx)
        case CordonNode() | UncordonNode() | DrainNode() | ForgetNode():
            return nodes.decide_order(pool, command, ctx)
        case WithdrawNodeKeys():
            return nodes.decide_withdrawn(pool, withdrawn, command, ctx)
        case InviteNode() | RevokeInvitation() | EnrolNode() | RecordNodeKeys():
            return enrolment.decide_enrolment(pool, withdrawn, command, ctx)
        case RequestLeaseKeys() | RecordLeaseKeys():
            return lease_keys.decide_lease_keys(pool, command)
        case ObserveNodes():
            return nodes.decide_observed(pool, command, ctx)
        case DescribeWork():
            return _describe(pool, command)
        case ForgetWork():
            return _forget(pool, command)
        case RequestPlacement():
            return _request(pool, command, ctx)
        case ClosePlacement():
            return _close(pool, command, ctx)
        case ReportRendezvous():
            return reports.decide_report(pool, command, ctx, reports.decide_rendezvous)
        case ReportWait():
            decide_wait = partial(admission.decide_wait, pool)
            return reports.decide_report(pool, command, ctx, decide_wait)
        case ReportStarted():
            return reports.decide_report(pool, command, ctx, reports.decide_started)
        case ReportCheckpoint():
            return reports.decide_report(pool, command, ctx, reports.decide_checkpoint)
        case ReportExit():
            return reports.decide_report(pool, command, ctx, reports.decide_exit)
        case ConfirmFreed():
            return reports.decide_freed(pool, command, ctx)
        case Tick():
            due = deadlines.tick(pool, ctx) or nodes.decide_deferred(pool, ctx)
            if not due and pool.planning_deferred:
                return (PlanningDeferred(pending=False),)
            return due or nodes.forget_old(pool, ctx)
        case _:
            assert_never(command)


# --- placements -----------------------------------------------------------------------------------


def _describe(pool: Pool, command: DescribeWork) -> tuple[Event, ...]:
    described = command.description
    if work_id_of(described.work) != described.work_id:
        other = refusing("work_hash", work_id=described.work_id, job_id=described.job_id)
        return (Rejected(code=errors.MALFORMED, reason=other, param="work_id"),)
    if work_of(pool, described.job_id, described.work_id) is not None:
        return ()
    return (WorkKept(tenant=command.tenant, description=described),)


def _forget(pool: Pool, command: ForgetWork) -> tuple[Event, ...]:
    if command.job_id not in pool.works:
        return ()
    refund = command.refund
    due = None if refund is None else JobRefund(cause=refund, kept_gpu_ms=command.kept_gpu_ms)
    return closing.settle(pool, command.job_id, due)


def _request(pool: Pool, command: RequestPlacement, ctx: Context) -> tuple[Event, ...]:
    placement = command.placement
    if placement.attempt <= pool.attempts.get(placement.job_id, 0):
        return ()
    if placement.slots < 1:
        below = refusing("slots_below_one")
        return (Rejected(code=errors.MALFORMED, reason=below, param="slots"),)
    queued = PlacementQueued(
        placement=placement,
        expected=expected_time(pool, placement),
        spot=may_have_spot(pool, placement, ctx.at),
        spot_until=spot_until_of(pool, placement),
        spot_from=spot_from_of(pool, placement, ctx.at),
        domain_until=domain_until_of(placement, ctx.at),
    )
    most = _most_slots(pool, placement)
    if 0 < most < placement.slots:
        above = ending("slots_above_largest", slots=placement.slots, largest=most)
        end = AttemptEnd(outcome="failed", ended_by="platform", reason=above, cause="user")
        return (queued, closing.close_waiting(placement, end))
    if work_of(pool, placement.job_id, placement.work_id) is not None:
        return (queued,)
    end = AttemptEnd(
        outcome="failed", ended_by="platform", reason=ending("work_unknown"), cause="platform"
    )
    return (queued, closing.close_waiting(placement, end))


def _most_slots(pool: Pool, placement: Placement) -> int:
    """Most slots of one such node, in service or not; 0: none has ever joined."""
    asked = placement.constraints or NodeConstraints()
    domain = asked.domain if asked.domain_wait_ms is None else ""
    described = (
        replace(node.description, slots=max(node.description.slots, node.slots_max))
        for node in pool.nodes.values()
    )
    suited = (
        node
        for node in described
        if node.device == placement.device
        and asked.accelerator in ("", node.accelerator)
        and domain in ("", node.domain)
    )
    if is_on_one_node(placement.role):
        return max((node.slots for node in suited), default=0)
    return most_slots(
        (
            (whole_gib(node.memory_bytes), node.accelerator, node.spot, node.reserved, node.taints),
            node.fabric,
            node.slots,
        )
        for node in suited
    )


def _close(pool: Pool, command: ClosePlacement, ctx: Context) -> tuple[Event, ...]:
    """Close a placement: remove it from the queue, never start it, drain it, or kill it.

    Repeats only harden. Attempts that have ended are left alone.
    """
    job_id, request = command.job_id, command.request
    ended_by, reason = request.ended_by, request.reason
    waiting = pool.waiting.get(job_id)
    if waiting is not None and waiting.placement.attempt == request.attempt:
        end = AttemptEnd(outcome="not_started", ended_by=ended_by, reason=reason)
        return (closing.close_waiting(waiting.placement, end),)
    lease = lease_of(pool, job_id, request.attempt)
    if lease is None or lease.killed_at is not None:
        return ()
    if lease.started_at is None:
        unstarted = closing.LeaseEnd(0, "not_started", ended_by, reason)
        return (closing.kill(lease, ended_by, reason), *closing.close(lease, unstarted))
    if request.mode == "kill":
        return (closing.kill(lease, ended_by, reason),)
    return () if lease.draining else (_drain(lease, request, ctx),)


def _drain(lease: Lease, request: EndRequest, ctx: Context) -> Event:
    deadline = deadlines.drain_deadline(lease, ctx.at)
    return closing.drain(lease, deadline, request.ended_by, request.reason)


def _first_grants(grants: tuple[PlannedGrant, ...]) -> tuple[PlannedGrant, ...]:
    """Return as many grants as one record can hold with its facts."""
    bytes_left, fitting = GRANTS_BYTES_MAX, list[PlannedGrant]()
    for grant in grants:
        bytes_left -= GRANT_BYTES + MEMBER_BYTES * len(grant.members)
        if bytes_left < 0:
            break
        fitting.append(grant)
    return tuple(fitting)


def _grant(pool: Pool, grants: tuple[PlannedGrant, ...], ctx: Context) -> tuple[LeaseGranted, ...]:
    """Grant a lease with its own fencing token: (pool, sequence)."""
    return tuple(
        LeaseGranted(
            lease=build_from(
                LeaseRef,
                grant.placement,
                token=Token(pool=ctx.key, lease=number),
                hardware=_hardware(pool, grant),
            ),
            members=grant.members,
            notice_ms=notice_ms(grant.placement.max_gpu_ms, grant.placement.slots),
        )
        for number, grant in enumerate(grants, start=pool.next_lease)
    )


def _preempt(preemptions: tuple[PlannedPreemption, ...], ctx: Context) -> tuple[LeaseDraining, ...]:
    """Notices to leases of later lanes, in favour of placements of earlier ones."""
    return tuple(
        closing.drain(
            lease,
            deadlines.drain_deadline(lease, ctx.at),
            "scheduler",
            ending("preempted"),
            Beneficiary(
                job_id=preemption.placement.job_id,
                attempt=preemption.placement.attempt,
                seats=tuple(Seat(node_id=node, slots=slots) for node, slots in preemption.seats),
            ),
        )
        for preemption in preemptions
        for lease in preemption.leases
    )


def _hardware(pool: Pool, grant: PlannedGrant) -> LeaseHardware | None:
    """Return the hardware that a lease's price may depend on; all members are of one `Kind`."""
    node = pool.nodes[grant.members[0].node_id].description
    hardware = LeaseHardware(
        device=grant.placement.device, accelerator=node.accelerator, spot=node.spot
    )
    return None if hardware == LeaseHardware() else hardware
