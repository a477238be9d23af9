"""Nodes that fail under jobs: which ones a job keeps away from, and which ones are cordoned.

A node is at fault when an attempt on it ends as `bad_node`, or as `platform` before any checkpoint.
From one whose cluster has not admitted it a job keeps away as well, which is nobody's fault.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from schemas.envelope import Context
from schemas.node import BackOffEnded, DeviceFault, NodeCordoned
from schemas.pool import Event, PlacementClosed, PlacementQueued
from schemas.reasons import DeviceFaultCode, cordoning
from schemas.training import FailureCause
from schemas.units import Ms
from services.scheduler.domain.pool.state import Lease, Node, NodeFailure, Pool

FAILED_JOBS_MAX: Final = 3  # different jobs that fail on a node in a row; then it is cordoned
# Failures cordon at most one in so many nodes that are up: where more fail, it is not them.
CORDONED_SHARE: Final = 2
# From a failure until the same job may meet the same node, by the number of its failures there.
BACK_OFF_MS: Final[tuple[Ms, ...]] = (60_000, 300_000, 900_000)
# For so long a replica keeps away from a node that failed under its serving pool while another node
# is large enough: that one may never become free, for the pool's other replicas have no end.
EXCLUDED_MS: Final[Ms] = BACK_OFF_MS[-1]
# Faults of devices that end what runs on them; with the others it continues.
BROKEN_CODES: Final[frozenset[DeviceFaultCode]] = frozenset({"ecc", "xid", "unreachable"})
FAULTS_OF_NODES: Final[frozenset[FailureCause | None]] = frozenset({"bad_node", "platform", None})


def is_node_fault(outcome: str, cause: FailureCause | None, has_checkpoint: bool) -> bool:
    """Return whether the end of an attempt counts as a fault of its node."""
    if outcome != "failed" or cause not in FAULTS_OF_NODES:
        return False
    return cause == "bad_node" or not has_checkpoint


def broken_device(lease: Lease, node_id: str, faults: Iterable[DeviceFault]) -> DeviceFault | None:
    """The first of these faults by which a device of the lease on a node is broken."""
    held = {d for member in lease.members if member.node_id == node_id for d in member.devices}
    broken = (
        fault for fault in faults if fault.device in held and fault.reason.code in BROKEN_CODES
    )
    return next(broken, None)


def barred_nodes(pool: Pool, job_id: str) -> tuple[str, ...]:
    """Nodes that the job may not use before its back-off ends."""
    return tuple(
        sorted(
            failure.node_id
            for failure in pool.failures.get(job_id, ())
            if failure.back_off_until is not None
        )
    )


def with_attempt_end(pool: Pool, lease: Lease, event: PlacementClosed, ctx: Context) -> Pool:
    """The pool after an attempt: what its end says about the job, and about its nodes.

    Where a device of the lease is broken it speaks against that alone, and not against its node.
    """
    end = event.end
    if end.reason.code == "not_admitted":
        failures = pool.failures.get(event.job_id, ())
        for node_id in end.node_ids:
            failures = _count(failures, node_id, ctx.at)
        return replace(pool, failures=pool.failures.set(event.job_id, failures))
    if not is_node_fault(end.outcome, end.cause, lease.last_manifest is not None):
        return with_progress(pool, lease) if end.outcome == "succeeded" else pool
    failures = pool.failures.get(event.job_id, ())
    for node_id in end.nodes_at_fault:
        failures = _count(failures, node_id, ctx.at)
        node = pool.nodes.get(node_id)
        if node is None or broken_device(lease, node_id, node.faults) is not None:
            continue
        if event.job_id not in node.failed_jobs:
            failed_jobs = (*node.failed_jobs, event.job_id)[-FAILED_JOBS_MAX:]
            failed = replace(node, failed_jobs=failed_jobs)
            pool = replace(pool, nodes=pool.nodes.set(node_id, failed))
    return replace(pool, failures=pool.failures.set(event.job_id, failures))


def with_progress(pool: Pool, lease: Lease) -> Pool:
    """Clear faults of a lease's nodes after a checkpoint or a success."""
    for node_id in lease.node_ids:
        node = pool.nodes.get(node_id)
        if node is not None and node.failed_jobs:
            pool = replace(pool, nodes=pool.nodes.set(node_id, replace(node, failed_jobs=())))
    return pool


def with_back_off_ended(pool: Pool, event: BackOffEnded) -> Pool:
    """Let a job use these nodes again."""
    if event.job_id in pool.excluded_until:
        waiting = pool.waiting[event.job_id]
        asked = replace(waiting.placement, excluded_nodes=())
        queue = pool.waiting.set(event.job_id, replace(waiting, placement=asked))
        pool = replace(without_exclusion_deadline(pool, event.job_id), waiting=queue)
    failures = tuple(
        replace(failure, back_off_until=None) if failure.node_id in event.node_ids else failure
        for failure in pool.failures.get(event.job_id, ())
    )
    return replace(pool, failures=pool.failures.set(event.job_id, failures)) if failures else pool


def with_exclusion_deadline(pool: Pool, event: PlacementQueued) -> Pool:
    """Remember how long a replica keeps away from nodes that failed under it."""
    placement = event.placement
    if placement.role != "serve" or not placement.excluded_nodes:
        return pool
    until = placement.first_submitted_at + EXCLUDED_MS
    return replace(pool, excluded_until=pool.excluded_until.set(placement.job_id, until))


def without_exclusion_deadline(pool: Pool, job_id: str) -> Pool:
    """Forget nodes that a replica of this term keeps away from."""
    if job_id not in pool.excluded_until:
        return pool
    return replace(pool, excluded_until=pool.excluded_until.delete(job_id))


def cordon_failing(pool: Pool, facts: Iterable[Event]) -> tuple[NodeCordoned, ...]:
    """Nodes of attempts that these facts end, on which too many different jobs failed in a row."""
    ended = {node_id for fact in facts for node_id in _ended_on(fact)}
    failing = [node_id for node_id in sorted(ended) if _is_failing(pool.nodes.get(node_id))]
    if not failing:
        return ()
    up = [node for node in pool.nodes.values() if node.standing == "up"]
    cordoned = sum(node.cordon is not None for node in up)
    left = max(0, len(up) // CORDONED_SHARE - cordoned)
    reason = cordoning("jobs_failed", jobs=FAILED_JOBS_MAX)
    return tuple(NodeCordoned(node_id=node_id, reason=reason) for node_id in failing[:left])


def end_back_offs(pool: Pool, at: Ms) -> tuple[BackOffEnded, ...]:
    """Back-offs that have ended."""
    events: list[BackOffEnded] = []
    for job_id, failures in sorted(pool.failures.items()):
        over = tuple(
            failure.node_id
            for failure in failures
            if failure.back_off_until is not None and failure.back_off_until <= at
        )
        if over:
            events.append(BackOffEnded(job_id=job_id, node_ids=over))
    for job_id, until in sorted(pool.excluded_until.items()):
        if until <= at:
            excluded = pool.waiting[job_id].placement.excluded_nodes
            events.append(BackOffEnded(job_id=job_id, node_ids=excluded))
    return tuple(events)


def next_back_off_end(pool: Pool, job_id: str) -> Ms | None:
    """End of the earliest back-off of a job, or of its exclusion of nodes."""
    failures = pool.failures.get(job_id, ())
    ends = (pool.excluded_until.get(job_id), *(failure.back_off_until for failure in failures))
    return min((end for end in ends if end is not None), default=None)


def _count(failures: tuple[NodeFailure, ...], node_id: str, at: Ms) -> tuple[NodeFailure, ...]:
    before = next((failure.times for failure in failures if failure.node_id == node_id), 0)
    back_off_ms = BACK_OFF_MS[min(before, len(BACK_OFF_MS) - 1)]
    others = tuple(failure for failure in failures if failure.node_id != node_id)
    failure = NodeFailure(node_id=node_id, times=before + 1, back_off_until=at + back_off_ms)
    return (*others, failure)


def _ended_on(fact: Event) -> tuple[str, ...]:
    return fact.end.node_ids if isinstance(fact, PlacementClosed) else ()


def _is_failing(node: Node | None) -> bool:
    return node is not None and node.is_grantable and len(node.failed_jobs) >= FAILED_JOBS_MAX
