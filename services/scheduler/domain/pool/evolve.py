"""Fold of the `pool` journal. No event raises, whatever came before it."""

from typing import Final, TypeAlias, TypeVar, assert_never, get_args

from immutables import Map
from msgspec.structs import replace
from typing_extensions import TypeIs

from schemas.enrolment import InvitationRevoked, NodeEnrolled, NodeInvited, NodeKeysSealed
from schemas.envelope import Context, Reason, Rejected, Repeated
from schemas.lease_keys import LeaseKeysRequested, LeaseKeysSealed
from schemas.node import (
    BackOffEnded,
    Beneficiary,
    DeviceFaultsChanged,
    DomainGivenUp,
    LeaseSeen,
    NodeCordoned,
    NodeForgotten,
    NodeJoined,
    NodeKeysWithdrawn,
    NodeLeaving,
    NodeNoticed,
    NodeResized,
    NodeSeen,
    NodeUncordoned,
    NodeWarned,
    ObservationsDeferred,
    PlanningDeferred,
    SpotGivenUp,
    SpotReconsidered,
)
from schemas.pool import (
    CheckpointAccepted,
    Event,
    LeaseAdmitted,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseStarted,
    LeaseWaits,
    MemberFreed,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    PlacementClosed,
    PlacementQueued,
    RendezvousOpened,
    UsageCredited,
    UsageSliced,
    WaitExplained,
)
from schemas.streams import GLOBAL, key_number_of
from schemas.units import Ms
from schemas.works import WorkForgotten, WorkKept
from services.scheduler.domain.pool.admission import wait_ms_max
from services.scheduler.domain.pool.carried import carry
from services.scheduler.domain.pool.enrolment import with_enrolment
from services.scheduler.domain.pool.experience import classes_of, model_of, with_duration
from services.scheduler.domain.pool.faults import (
    with_attempt_end,
    with_back_off_ended,
    with_exclusion_deadline,
    with_progress,
    without_exclusion_deadline,
)
from services.scheduler.domain.pool.locality import (
    with_domain_deadline,
    with_domain_given_up,
    without_domain_deadline,
)
from services.scheduler.domain.pool.price_classes import (
    with_spot_deadlines,
    with_spot_end,
    with_spot_given_up,
    with_spot_lost,
    with_spot_reconsidered,
    without_spot_deadlines,
)
from services.scheduler.domain.pool.state import (
    INCARNATIONS_REMEMBERED_MAX,
    Ending,
    Forecast,
    Handover,
    JobRefund,
    Lease,
    Node,
    Pool,
    Pools,
    Standing,
    Waiting,
    held_members,
    is_run_by,
    keys_by_node,
    lease_key,
    lease_of,
    work_of,
)
from services.scheduler.domain.pool.succession import bound_seats, with_follower
from services.scheduler.domain.pool.usage import charge, take_back, tokens_at

V = TypeVar("V")
LeaseEvent: TypeAlias = (
    LeaseWaits
    | LeaseAdmitted
    | LeaseStarted
    | CheckpointAccepted
    | LeaseDraining
    | LeaseKilled
    | UsageSliced
    | UsageCredited
)
# Looked up by exact type: an `isinstance` of a Struct that is false takes 100 ns.
LEASE_EVENTS: Final = frozenset(get_args(LeaseEvent))


def evolve(state: Pools, event: Event, ctx: Context) -> Pools:
    """Apply an event to the state of its pool."""
    if type(event) is NodeKeysWithdrawn:
        everywhere = state.get(GLOBAL) or Pool()
        withdrawn = everywhere.withdrawn.set(event.node_id, event.number)
        return state.set(GLOBAL, replace(everywhere, withdrawn=withdrawn))
    pool = state.get(ctx.key) or Pool()
    evolved = evolve_pool(pool, event, ctx)
    return state if evolved is pool else state.set(ctx.key, evolved)


def evolve_pool(pool: Pool, event: Event, ctx: Context) -> Pool:
    """Apply an event to a pool. Events about what the pool does not know change nothing."""
    return carry(pool, _evolve(pool, event, ctx), event)


def _is_lease_event(event: Event) -> TypeIs[LeaseEvent]:
    return type(event) in LEASE_EVENTS


def _evolve(pool: Pool, event: Event, ctx: Context) -> Pool:
    if _is_lease_event(event):
        return _with_lease_event(pool, event, ctx)
    match event:
        case Rejected() | Repeated() | WaitExplained() | NodeKeysWithdrawn():  # nothing of one pool
            return pool
        case LeaseKeysRequested():  # for who has the keys
            return pool
        case RendezvousOpened() | LeaseKeysSealed():
            return _with_handover(pool, event)
        case NodeInvited() | InvitationRevoked() | NodeEnrolled() | NodeKeysSealed():
            return with_enrolment(pool, event, ctx)
        case NodeRegistered():
            return _with_node(pool, event, ctx)
        case NodeJoined():
            return _with_node_change(pool, event.node_id, joining=False)
        case NodeLeaving():
            return _with_node_change(pool, event.node_id, leaving=True)
        case NodeNoticed():
            pool = with_spot_lost(pool, event.node_id, ctx.at)
            return _with_node_change(pool, event.node_id, ends_at=event.ends_at)
        case NodeWarned():
            return _with_node_change(pool, event.node_id, warned=True)
        case DeviceFaultsChanged():
            return _with_node_change(pool, event.node_id, faults=event.faults)
        case NodeResized():
            return _with_slots(pool, event)
        case NodeRetired():
            pool = _with_node_change(pool, event.node_id, standing="retired", gone_at=ctx.at)
            return _without_deferred(pool, (event.node_id,))
        case NodesObserved():
            return _with_proof_of_life(pool, event, ctx)
        case ObservationsDeferred():
            later = {seen.node_id for seen in event.seen}
            kept = tuple(seen for seen in pool.deferred if seen.node_id not in later)
            return replace(pool, deferred=(*kept, *event.seen))
        case PlanningDeferred():
            return replace(pool, planning_deferred=event.pending)
        case NodeLost():
            pool = with_spot_lost(pool, event.node_id, ctx.at)
            return _with_node_change(pool, event.node_id, standing="lost", gone_at=ctx.at)
        case NodeCordoned():
            return _with_cordon(pool, event.node_id, event.reason)
        case NodeUncordoned():
            return _with_cordon(pool, event.node_id, None)
        case NodeForgotten():
            forgotten = replace(pool, nodes=_without(pool.nodes, event.node_id))
            return _without_deferred(forgotten, (event.node_id,))
        case BackOffEnded():
            return with_back_off_ended(pool, event)
        case SpotGivenUp():
            return with_spot_given_up(pool, event)
        case SpotReconsidered():
            return with_spot_reconsidered(pool, event)
        case DomainGivenUp():
            return with_domain_given_up(pool, event)
        case WorkKept():
            return _with_work(pool, event)
        case WorkForgotten():
            return _without_job(pool, event.job_id)
        case PlacementQueued():
            return _with_waiting(pool, event, ctx)
        case LeaseGranted():
            return _with_lease(pool, event, ctx)
        case PlacementClosed():
            return _with_closed(pool, event, ctx)
        case MemberFreed():
            return _with_freed(pool, event, ctx)
        case _:
            assert_never(event)


def _without_job(pool: Pool, job_id: str) -> Pool:
    return replace(
        pool,
        works=_without(pool.works, job_id),
        attempts=_without(pool.attempts, job_id),
        charged=_without(pool.charged, job_id),
        failures=_without(pool.failures, job_id),
        spot_losses=_without(pool.spot_losses, job_id),
        refunds=_without(pool.refunds, job_id),
        kept=_without(pool.kept, job_id),
    )


# --- nodes ----------------------------------------------------------------------------------------


def _with_node(pool: Pool, event: NodeRegistered, ctx: Context) -> Pool:
    before = pool.nodes.get(event.node.node_id)
    node = Node(
        description=event.node,
        last_seen=ctx.at,
        joining=event.joining,
        key_number=key_number_of(ctx.sender or ""),
        slots_max=event.node.slots if event.node.elastic else 0,
    )
    if before is not None:
        former = (before.description.incarnation, *before.former)
        node = replace(
            node,
            former=former[:INCARNATIONS_REMEMBERED_MAX],
            cordon=before.cordon,
            failed_jobs=before.failed_jobs,
            slots_max=max(node.slots_max, before.slots_max) if event.node.elastic else 0,
        )
    pool = replace(pool, nodes=pool.nodes.set(event.node.node_id, node))
    return _without_deferred(pool, (event.node.node_id,))


def _with_node_change(pool: Pool, node_id: str, **changes: object) -> Pool:
    node = pool.nodes.get(node_id)
    if node is None:
        return pool
    return replace(pool, nodes=pool.nodes.set(node_id, replace(node, **changes)))


def _with_slots(pool: Pool, event: NodeResized) -> Pool:
    node = pool.nodes.get(event.node_id)
    if node is None:
        return pool
    described = replace(node.description, slots=event.slots)
    most = max(node.slots_max, event.slots)
    return _with_node_change(pool, event.node_id, description=described, slots_max=most)


def _with_cordon(pool: Pool, node_id: str, reason: Reason | None) -> Pool:
    """A node that is uncordoned has a clean record."""
    if reason is None:
        return _with_node_change(pool, node_id, cordon=None, failed_jobs=())
    return _with_node_change(pool, node_id, cordon=reason)


def _with_proof_of_life(pool: Pool, event: NodesObserved, ctx: Context) -> Pool:
    """Mark a lost node as up: it may get leases again."""
    nodes, leases = pool.nodes, pool.leases
    for seen in event.seen:
        node = nodes.get(seen.node_id)
        if node is None or node.description.incarnation != seen.incarnation:
            continue
        last_seen = max(node.last_seen, min(seen.last_seen, ctx.at))
        is_back = node.standing == "lost" and not seen.silent
        standing: Standing = "up" if is_back else node.standing
        leases_seen = _leases_seen(node, seen)
        observed = replace(node, last_seen=last_seen, leases=leases_seen, standing=standing)
        nodes = nodes.set(seen.node_id, observed)
    on_nodes = {key for seen in event.seen for key in pool.leases_of_nodes.get(seen.node_id, ())}
    for key in on_nodes:
        lease = leases[key]
        alive_at = _last_proof_of_all(lease, nodes)
        prepared_bytes = _prepared_bytes(lease, event)
        if lease.started_at is not None and alive_at > lease.alive_at:
            leases = leases.set(key, replace(lease, alive_at=alive_at))
        elif lease.started_at is None and prepared_bytes > lease.prepared_bytes:
            prepared = replace(lease, prepared_bytes=prepared_bytes, prepared_at=ctx.at)
            leases = leases.set(key, prepared)
    seen_now = tuple(seen.node_id for seen in event.seen)
    pool = _without_deferred(replace(pool, nodes=nodes, leases=leases), seen_now)
    over = [job_id for job_id, kept in pool.kept.items() if kept.until <= ctx.at]
    for job_id in over:  # a job that was paused just then asks for nothing
        pool = replace(pool, kept=pool.kept.delete(job_id))
    return pool


def _without_deferred(pool: Pool, node_ids: tuple[str, ...]) -> Pool:
    if not pool.deferred:
        return pool
    kept = tuple(seen for seen in pool.deferred if seen.node_id not in node_ids)
    return replace(pool, deferred=kept)


def _leases_seen(node: Node, seen: NodeSeen) -> tuple[LeaseSeen, ...] | None:
    """Return the leases that the agent listed last. A restarted watcher may have read nothing
    yet.
    """
    has_no_heartbeat = seen.leases is None and seen.last_seen <= node.last_seen
    return node.leases if has_no_heartbeat else seen.leases


def _prepared_bytes(lease: Lease, event: NodesObserved) -> int:
    """Return the bytes that the agents of a lease have fetched and read for its start."""
    listed = (
        entry.prepared_bytes
        for seen in event.seen
        if is_run_by(lease, seen.incarnation)
        for entry in seen.leases or ()
        if entry.lease == lease.number
    )
    return max(listed, default=0)


def _last_proof_of_all(lease: Lease, nodes: Map[str, Node]) -> Ms:
    """A lease lives as long as every member that still holds its slots."""
    proofs = []
    for member in held_members(lease):
        node = nodes.get(member.node_id)
        current = node is not None and node.description.incarnation == member.incarnation
        proofs.append(_proof(lease, node) if node is not None and current else 0)
    return min(proofs, default=0)


def _proof(lease: Lease, node: Node) -> Ms:
    """Time until which a member has run: by its agent's clock, bounded by the broker's."""
    if node.leases is None or lease.started_at is None:
        return node.last_seen
    elapsed = (seen.elapsed_ms for seen in node.leases if seen.lease == lease.number)
    return min(node.last_seen, lease.started_at + next(elapsed, 0))


# --- placements -----------------------------------------------------------------------------------


def _with_work(pool: Pool, event: WorkKept) -> Pool:
    job_id = event.description.job_id
    works = (*pool.works.get(job_id, ()), event.description)
    return replace(pool, works=pool.works.set(job_id, works))


def _with_waiting(pool: Pool, event: PlacementQueued, ctx: Context) -> Pool:
    placement, arrival = event.placement, pool.arrivals + 1
    kept = pool.kept.get(placement.job_id)
    waiting = Waiting(
        placement=placement,
        expected=event.expected,
        spot=event.spot,
        arrival=arrival,
        queued_at=ctx.at,
        bound=() if kept is None else bound_seats(placement, kept.seat),
    )
    return replace(
        with_exclusion_deadline(
            with_domain_deadline(with_spot_deadlines(pool, event), event), event
        ),
        waiting=pool.waiting.set(placement.job_id, waiting),
        kept=_without(pool.kept, placement.job_id),
        attempts=pool.attempts.set(placement.job_id, placement.attempt),
        arrivals=arrival,
    )


def _with_bound(pool: Pool, beneficiary: Beneficiary) -> Pool:
    """Keep slots that are being freed for a placement."""
    waiting = pool.waiting.get(beneficiary.job_id)
    if waiting is None or waiting.placement.attempt != beneficiary.attempt:
        return pool
    bound = replace(waiting, bound=beneficiary.seats)
    return replace(pool, waiting=pool.waiting.set(beneficiary.job_id, bound))


def _without_deadlines(pool: Pool, job_id: str) -> Pool:
    """Drop what a pool remembers for a placement that no longer waits."""
    pool = without_domain_deadline(without_spot_deadlines(pool, job_id), job_id)
    return without_exclusion_deadline(pool, job_id)


def _with_lease(pool: Pool, event: LeaseGranted, ctx: Context) -> Pool:
    """Remove the granted placement from the queue."""
    waiting = pool.waiting.get(event.lease.job_id)
    if waiting is None or waiting.placement.attempt != event.lease.attempt:
        return pool
    number, placement = event.lease.token.lease, waiting.placement
    work = work_of(pool, event.lease.job_id, placement.work_id)
    lease = Lease(
        ref=event.lease,
        members=event.members,
        max_gpu_ms=placement.max_gpu_ms,
        billed_gpu_ms_max=placement.billed_gpu_ms_max,
        max_tokens=placement.max_tokens,
        forecast=Forecast(
            memory_bytes=placement.memory_bytes,
            preemptions=placement.preemptions,
            submitted_at=placement.first_submitted_at,
            expected=waiting.expected_time,
            estimate_ms=placement.p50_ms,
            limit_ms=placement.p90_ms,
            classes=classes_of(pool, placement, model_of(pool, event.members)),
        ),
        granted_at=ctx.at,
        start_ms_max=placement.start_ms_max,
        wait_ms_max=wait_ms_max(pool, event.members),
        work_id=placement.work_id,
        handover=None if work is None else Handover(placement=placement, work=work),
        named=placement.checkpoints,
        charged=pool.charged.get(event.lease.job_id, ()),
    )
    return replace(
        _without_deadlines(pool, event.lease.job_id),
        charged=_without(pool.charged, event.lease.job_id),
        waiting=pool.waiting.delete(event.lease.job_id),
        leases=pool.leases.set(lease_key(number), lease),
        leases_of_nodes=keys_by_node([lease], pool.leases_of_nodes),
        open=pool.open.set(event.lease.job_id, lease_key(number)),
        next_lease=max(pool.next_lease, number + 1),
    )


def _with_closed(pool: Pool, event: PlacementClosed, ctx: Context) -> Pool:
    waiting = pool.waiting.get(event.job_id)
    if waiting is not None and waiting.placement.attempt == event.attempt:
        left = _without_deadlines(pool, event.job_id)
        return replace(left, waiting=pool.waiting.delete(event.job_id))
    lease = lease_of(pool, event.job_id, event.attempt)
    if lease is None:
        return pool
    pool = with_attempt_end(pool, lease, event, ctx)
    pool = with_duration(pool, lease, event, ctx)
    pool = with_spot_end(pool, lease, event, ctx)
    pool = replace(pool, open=_without(pool.open, event.job_id))
    if lease.charged:
        pool = replace(pool, charged=pool.charged.set(event.job_id, lease.charged))
    followed = event.role == "train" and event.end.outcome == "succeeded" and lease.ending is None
    closed = replace(lease, closed=True, followed=followed, named=(), charged=())
    return _put(pool, closed) if held_members(closed) else _drop(pool, closed)


def _with_freed(pool: Pool, event: MemberFreed, ctx: Context) -> Pool:
    """Remove a lease once it is closed and its last member is free."""
    lease = pool.leases.get(lease_key(event.lease.token.lease))
    if lease is None or event.node_id in lease.freed:
        return pool
    freed = replace(lease, freed=(*lease.freed, event.node_id))
    gone = freed.closed and not held_members(freed)
    pool = _drop(pool, freed) if gone else _put(pool, freed)
    return with_follower(pool, lease, event.node_id, ctx.at)


def _without(entries: Map[str, V], key: str) -> Map[str, V]:
    return entries.delete(key) if key in entries else entries


def _with_refund(pool: Pool, event: UsageCredited) -> Pool:
    """A credit after the end of its lease is a part of its job's refund."""
    job_id = event.lease.job_id
    if job_id not in pool.charged:
        return pool
    charged = take_back(pool.charged[job_id], event)
    return replace(
        pool,
        charged=pool.charged.set(job_id, charged),
        refunds=pool.refunds.set(
            job_id, JobRefund(cause=event.cause, kept_gpu_ms=event.kept_gpu_ms)
        ),
    )


# --- leases ---------------------------------------------------------------------------------------


def _with_lease_event(pool: Pool, event: LeaseEvent, ctx: Context) -> Pool:
    if isinstance(event, LeaseDraining) and event.beneficiary is not None:
        pool = _with_bound(pool, event.beneficiary)
    lease = pool.leases.get(lease_key(event.lease.token.lease))
    if isinstance(event, UsageCredited) and (lease is None or lease.closed):
        return _with_refund(pool, event)
    if lease is None:
        return pool
    if isinstance(event, CheckpointAccepted):
        pool = with_progress(pool, lease)
    return _put(pool, _evolve_lease(lease, event, ctx))


def _with_handover(pool: Pool, event: RendezvousOpened | LeaseKeysSealed) -> Pool:
    """Keep what agents of a lease have to know before it starts."""
    number = event.holder.lease if isinstance(event, LeaseKeysSealed) else event.lease.token.lease
    lease = pool.leases.get(lease_key(number))
    if lease is None or lease.handover is None:
        return pool
    if isinstance(event, RendezvousOpened):
        handover = replace(lease.handover, rendezvous=event.rendezvous)
    else:
        keys = lease.handover.sealed_keys.set(event.holder.incarnation, event.sealed_keys)
        handover = replace(lease.handover, sealed_keys=keys)
    return _put(pool, replace(lease, handover=handover))


def _put(pool: Pool, lease: Lease) -> Pool:
    return replace(pool, leases=pool.leases.set(lease_key(lease.number), lease))


def _drop(pool: Pool, lease: Lease) -> Pool:
    key, of_nodes = lease_key(lease.number), pool.leases_of_nodes
    for node_id in {*lease.node_ids}:
        left = tuple(other for other in of_nodes.get(node_id, ()) if other != key)
        of_nodes = of_nodes.set(node_id, left) if left else _without(of_nodes, node_id)
    return replace(pool, leases=_without(pool.leases, key), leases_of_nodes=of_nodes)


def _evolve_lease(lease: Lease, event: LeaseEvent, ctx: Context) -> Lease:
    match event:
        case LeaseWaits():
            return replace(lease, wait=event.reason, waits_since=event.since)
        case LeaseAdmitted():
            return replace(lease, wait=None, admitted_at=ctx.at)
        case LeaseStarted():
            steps = max(0, event.start.total_steps - event.start.loaded_step)
            tokens = tokens_at(lease.named, event.start.loaded)
            return replace(
                lease,
                started_at=ctx.at,
                wait=None,
                alive_at=ctx.at,
                handover=None,
                named=(),
                first_step=event.start.loaded_step,
                steps=steps,
                trained_tokens=tokens,
                sliced_tokens=tokens,
            )
        case CheckpointAccepted():
            captured_ms = event.checkpoint.captured_ms
            captured_at = ctx.at if lease.started_at is None else lease.started_at + captured_ms
            return replace(
                lease,
                alive_at=max(lease.alive_at, captured_at),
                captured_ms=captured_ms,
                done_steps=max(0, event.checkpoint.step - lease.first_step),
                last_manifest=event.checkpoint.manifest_sha256,
                trained_tokens=max(lease.trained_tokens, event.checkpoint.tokens),
            )
        case LeaseDraining():
            ending = Ending(ended_by=event.ended_by, reason=event.reason, deadline=event.deadline)
            return replace(lease, ending=lease.ending or ending)
        case LeaseKilled():
            ending = Ending(ended_by=event.ended_by, reason=event.reason)
            return replace(lease, killed_at=ctx.at, ending=lease.ending or ending)
        case UsageSliced():
            return replace(
                lease,
                charged=charge(lease.charged, event),
                used_gpu_ms=lease.used_gpu_ms + event.used_gpu_ms,
                billable_gpu_ms=lease.billable_gpu_ms + event.billable_gpu_ms,
                sliced_tokens=lease.sliced_tokens + event.tokens,
            )
        case UsageCredited():
            return replace(
                lease,
                lost_gpu_ms=lease.lost_gpu_ms + event.lost_gpu_ms,
                charged=take_back(lease.charged, event),
            )
        case _:
            assert_never(event)
