"""The end of a lease for money: last slices, what the platform lost, one PlacementClosed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from schemas.pool import (
    Event,
    LeaseKilled,
    PlacementClosed,
    PlacementQueued,
    ReportExit,
    Token,
    UsageCredited,
    UsageSliced,
)
from schemas.sealed import Sealed
from schemas.training import AttemptOutcome, FailureCause, Result
from schemas.units import GpuMs, Ms
from services.scheduler.domain.pool.state import Lease
from services.scheduler.domain.pool.usage import clamp, last_hour, lost_gpu_ms, slices

Loss: TypeAlias = Literal["lost", "preempted", "bad_node", "platform"]
# Exits that a kill or a drain notice by itself leads to; other causes stay what they are.
CAUSES_OF_ENDING: Final[frozenset[FailureCause | None]] = frozenset({None, "platform"})
LOSSES: Final[Mapping[FailureCause, Loss]] = {"bad_node": "bad_node", "platform": "platform"}


@dataclass(frozen=True)
class End:
    """How and when (in elapsed time) an attempt ended."""

    elapsed_ms: Ms
    outcome: AttemptOutcome
    cause: FailureCause | None = None
    message: Sealed | None = None
    result: Result | None = None


def elapsed_ms(lease: Lease, reported_ms: Ms, at: Ms) -> Ms:
    """Clamped to the lease: not before what is sliced already, not after now."""
    if lease.started_at is None:
        return 0
    return clamp(reported_ms, sliced_ms(lease), at - lease.started_at)


def sliced_ms(lease: Lease) -> Ms:
    return lease.used_gpu_ms // lease.slots


def exit_of(lease: Lease, report: ReportExit, at: Ms) -> End:
    """A report, judged by what the lease was told before it came."""
    outcome, cause = _judged(lease, report)
    return End(
        elapsed_ms=elapsed_ms(lease, report.elapsed_ms, at),
        outcome=outcome,
        cause=cause,
        message=report.message,
        result=report.result if outcome == "succeeded" else None,
    )


def stopped(lease: Lease, at: Ms) -> End:
    """Killed, and never reported by a node that lives: the kill is the end."""
    started_at = lease.started_at if lease.started_at is not None else at
    end = elapsed_ms(lease, (lease.killed_at or at) - started_at, at)
    if lease.drain is not None and lease.drain.reason == "budget":
        return End(end, "failed", "budget")
    return End(end, "preempted")


def stuck(lease: Lease, at: Ms) -> End:
    """Its process lives and does nothing; whatever it has, the job is better off elsewhere."""
    started_at = lease.started_at if lease.started_at is not None else at
    return End(elapsed_ms(lease, lease.alive_at - started_at, at), "failed", "bad_node")


def forgotten(lease: Lease, at: Ms) -> End:
    """Its slots came back without a word about its end."""
    if lease.killed_at is not None:
        return stopped(lease, at)
    started_at = lease.started_at if lease.started_at is not None else at
    return End(elapsed_ms(lease, lease.alive_at - started_at, at), "failed", "platform")


def vanished(lease: Lease, last_seen: Ms, at: Ms) -> End:
    """Its node is gone: the last proof of life is the end, or the kill that came before it."""
    started_at = lease.started_at if lease.started_at is not None else at
    alive_at = max(lease.alive_at, last_seen)
    if lease.killed_at is not None and alive_at >= lease.killed_at:
        return stopped(lease, at)
    return End(elapsed_ms(lease, alive_at - started_at, at), "lost")


def close(pool: str, lease: Lease, end: End) -> tuple[Event, ...]:
    """The events that end a lease for money; its slots are another matter."""
    last = sliced(pool, lease, end.elapsed_ms)
    billable = lease.billable_gpu_ms + sum(line.billable_gpu_ms for line in last)
    credit = _credit(pool, lease, end, billable)
    closed = PlacementClosed(
        tenant=lease.tenant,
        job_id=lease.job_id,
        attempt=lease.attempt,
        role=lease.role,
        outcome=end.outcome,
        cause=end.cause,
        message=end.message,
        result=end.result,
        node_id=lease.node_id,
        used_gpu_ms=lease.slots * end.elapsed_ms,
        billable_gpu_ms=billable,
        lost_gpu_ms=lease.lost_gpu_ms + sum(line.lost_gpu_ms for line in credit),
    )
    return (*last, *credit, closed)


def withdrawn(placement: PlacementQueued) -> PlacementClosed:
    """A placement that never got a lease."""
    return PlacementClosed(
        tenant=placement.tenant,
        job_id=placement.job_id,
        attempt=placement.attempt,
        role=placement.role,
        outcome="not_started",
        cause=None,
        message=None,
        result=None,
        node_id=None,
        used_gpu_ms=0,
        billable_gpu_ms=0,
        lost_gpu_ms=0,
    )


def sliced(pool: str, lease: Lease, until_ms: Ms) -> tuple[UsageSliced, ...]:
    """Slices of a lease from what is sliced already up to an elapsed time."""
    if lease.started_at is None:
        return ()
    found = slices(lease.started_at, sliced_ms(lease), until_ms, lease.slots, lease.max_gpu_ms)
    return tuple(
        UsageSliced(
            token=token(pool, lease),
            tenant=lease.tenant,
            job_id=lease.job_id,
            attempt=lease.attempt,
            role=lease.role,
            lane=lease.lane,
            price_version=lease.price_version,
            hour=line.hour,
            used_gpu_ms=line.used_gpu_ms,
            billable_gpu_ms=line.billable_gpu_ms,
        )
        for line in found
    )


def credited(
    pool: str,
    lease: Lease,
    hour: int,
    lost: GpuMs,
    cause: Loss | Literal["skipped_checkpoint"],
) -> UsageCredited:
    return UsageCredited(
        token=token(pool, lease),
        tenant=lease.tenant,
        job_id=lease.job_id,
        attempt=lease.attempt,
        role=lease.role,
        lane=lease.lane,
        price_version=lease.price_version,
        hour=hour,
        lost_gpu_ms=lost,
        cause=cause,
    )


def killed(pool: str, lease: Lease) -> LeaseKilled:
    return LeaseKilled(
        token=token(pool, lease),
        tenant=lease.tenant,
        job_id=lease.job_id,
        attempt=lease.attempt,
        node_id=lease.node_id,
    )


def token(pool: str, lease: Lease) -> Token:
    return Token(pool=pool, lease=lease.number)


def _credit(pool: str, lease: Lease, end: End, billable: GpuMs) -> tuple[UsageCredited, ...]:
    loss = _loss(lease, end)
    if loss is None or lease.started_at is None:
        return ()
    lost = lost_gpu_ms(billable, lease.slots, lease.captured_ms)
    if lost == 0:
        return ()
    return (credited(pool, lease, last_hour(lease.started_at, end.elapsed_ms), lost, loss),)


def _loss(lease: Lease, end: End) -> Loss | None:
    """The platform's part: a tenant who pauses or cancels pays for what ran."""
    match end.outcome:
        case "lost":
            return "lost"
        case "preempted":
            return None if lease.asked else "preempted"
        case "failed":
            return LOSSES.get(end.cause or "platform")
        case _:
            return None


def _judged(lease: Lease, report: ReportExit) -> tuple[AttemptOutcome, FailureCause | None]:
    outcome, cause = report.outcome, report.cause
    if outcome == "succeeded" and lease.started_at is not None and report.result is not None:
        return "succeeded", None
    if outcome == "lost":
        return "lost", None
    if outcome == "not_started" and lease.started_at is None:
        return "not_started", None  # its agent was told to leave while it fetched the inputs
    ends = outcome != "failed" or cause in CAUSES_OF_ENDING
    if ends and lease.drain is not None and lease.drain.reason == "budget":
        return "failed", "budget"
    if ends and lease.asked:
        return "preempted", None
    if outcome == "preempted":
        return "preempted", None
    return "failed", cause or "platform"
