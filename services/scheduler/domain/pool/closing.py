"""Closes a lease for billing: last usage slices, credits, one `PlacementClosed`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from schemas.envelope import Reason
from schemas.node import Beneficiary, DeviceFault
from schemas.pool import (
    AttemptEnd,
    CreditCause,
    EndAuthor,
    Event,
    LeaseDraining,
    LeaseKilled,
    LeaseRef,
    Placement,
    PlacementClosed,
    ReportExit,
    UsageCredited,
    UsageSliced,
)
from schemas.reasons import EndCode, ending
from schemas.records import build_from
from schemas.sealed import Sealed
from schemas.training import AttemptOutcome, FailureCause, Result, TrainResult
from schemas.units import HOUR_MS, GpuMs, Ms, Tokens, hour_of
from schemas.works import WorkForgotten
from services.scheduler.domain.pool.state import JobRefund, Lease, Pool
from services.scheduler.domain.pool.usage import (
    ChargedHour,
    Slice,
    charge,
    clamp,
    lost_gpu_ms,
    newest_hours,
    slices,
    take_back,
)
from tunery.plan.refunds import attempt_refund

# Exits that a kill or a drain notice by itself leads to; other causes stay what they are.
CAUSES_OF_ENDING: Final[frozenset[FailureCause | None]] = frozenset({None, "platform"})
# Facts of one record, by estimate; grants, explanations and the envelope need room as well.
FACTS_BYTES_MAX: Final = 700_000
END_BYTES: Final = 2_600  # of the notice, the kill and the end of a lease, at most
LINE_BYTES: Final = 650  # of a slice or a credit, at most
REFUNDS_MAX: Final = 1_000  # credits in one record; ticks go on
# Who ended a process that failed by itself; what is not here is its own doing.
AUTHORS: Final[Mapping[FailureCause, EndAuthor]] = {"bad_node": "node", "platform": "platform"}


@dataclass(frozen=True)
class LeaseEnd:
    """How and when an attempt ended."""

    elapsed_ms: Ms  # elapsed time of its lease
    outcome: AttemptOutcome
    # ended_by, reason: who ended it, and why
    ended_by: EndAuthor
    reason: Reason
    cause: FailureCause | None = None  # cause of a failure
    detail: Sealed | None = None  # sealed message of its agent
    result: Result | None = None  # result of a success
    faulty_node: str | None = None  # the node of several on which it failed, where that is known


def end_of_report(lease: Lease, report: ReportExit, at: Ms) -> LeaseEnd:
    """The end that follows from a reported exit and from orders to end the lease before it."""
    outcome, cause = _judge(lease, report)
    ended_by, reason = _author(lease, outcome, cause)
    if report.keyless and outcome == "failed":
        reason = ending("keys_missing")
    return LeaseEnd(
        elapsed_ms=elapsed_ms(lease, report.elapsed_ms, at),
        outcome=outcome,
        ended_by=ended_by,
        reason=reason,
        cause=cause,
        detail=report.detail,
        result=report.result if outcome == "succeeded" else None,
        faulty_node=report.faulty_node if report.faulty_node in lease.node_ids else None,
    )


def end_of_killed(lease: Lease, at: Ms) -> LeaseEnd:
    """End of a killed lease without a report: it ran until its last proof or the kill."""
    killed_ms = (lease.killed_at or at) - (at if lease.started_at is None else lease.started_at)
    end_ms = elapsed_ms(lease, min(lease.proven_ms, killed_ms), at)
    if lease.ending is None:
        return LeaseEnd(end_ms, "preempted", "platform", ending("exit_unreported"))
    if lease.ending.ended_by == "budget":
        return LeaseEnd(end_ms, "failed", "budget", lease.ending.reason, "budget")
    return LeaseEnd(end_ms, "preempted", lease.ending.ended_by, lease.ending.reason)


def end_of_stuck(lease: Lease, at: Ms) -> LeaseEnd:
    """End a lease whose process makes no progress, so that the job can resume elsewhere."""
    end_ms = elapsed_ms(lease, lease.proven_ms, at)
    return LeaseEnd(end_ms, "failed", "node", ending("no_progress"), "bad_node")


def end_of_broken(lease: Lease, node_id: str, fault: DeviceFault, at: Ms) -> LeaseEnd:
    """End a lease with a broken device; its job continues from its last checkpoint elsewhere."""
    end_ms = elapsed_ms(lease, lease.proven_ms, at)
    failed = ending("device_failed", device=fault.device, fault=fault.reason.code)
    faulty_node = _of_several(lease, node_id)
    return LeaseEnd(end_ms, "failed", "node", failed, "bad_node", faulty_node=faulty_node)


def end_of_unlisted(lease: Lease, at: Ms, node_id: str | None = None) -> LeaseEnd:
    """End of a lease that its living agent no longer lists."""
    end_ms = elapsed_ms(lease, lease.proven_ms, at)
    end = LeaseEnd(end_ms, "failed", "node", ending("exit_missing"), "platform")
    return replace(end, faulty_node=_of_several(lease, node_id))


def _of_several(lease: Lease, node_id: str | None) -> str | None:
    """The only node at fault, if the lease has several nodes."""
    return node_id if len(lease.members) > 1 else None


def end_of_unstarted() -> LeaseEnd:
    """End of a lease that did not start in time: unused, and the platform is at fault."""
    return LeaseEnd(0, "failed", "platform", ending("start_timeout"), "platform")


def end_of_unadmitted() -> LeaseEnd:
    """End of a lease that its cluster did not admit in time; not counted as a failure."""
    return LeaseEnd(0, "not_started", "platform", ending("not_admitted"))


def end_of_unreported(lease: Lease, at: Ms) -> LeaseEnd:
    """End of a lease one of whose members was freed before an exit was reported."""
    if lease.killed_at is not None:
        return end_of_killed(lease, at)
    return end_of_unlisted(lease, at)


def end_of_lost(lease: Lease, last_seen: Ms, at: Ms, code: EndCode) -> LeaseEnd:
    """End of a lease whose node is gone: it ran until its last proof or the kill."""
    if lease.killed_at is not None and max(lease.alive_at, last_seen) >= lease.killed_at:
        return end_of_killed(lease, at)
    return LeaseEnd(elapsed_ms(lease, lease.proven_ms, at), "lost", "node", ending(code))


def elapsed_ms(lease: Lease, reported_ms: Ms, at: Ms) -> Ms:
    """Clamped to the lease: not before what is captured already, not after now.

    It may be less than what is sliced: a process can end before its agent stops counting.
    """
    if lease.started_at is None:
        return 0
    return clamp(reported_ms, lease.captured_ms, at - lease.started_at)


def facts_bytes(lease: Lease) -> int:
    """Return the largest size in a record of the end of a lease and its last slices, in bytes."""
    unsliced_hours = 2 + max(0, lease.proven_ms - sliced_ms(lease)) // HOUR_MS
    return END_BYTES + LINE_BYTES * (len(lease.charged) + 2 * unsliced_hours)


def sliced_ms(lease: Lease) -> Ms:
    """Elapsed time up to which the lease is sliced."""
    return lease.used_gpu_ms // lease.slots


def close(lease: Lease, end: LeaseEnd) -> tuple[Event, ...]:
    """The events that close a lease for billing; its slots are freed separately."""
    last = slice_usage(lease, end.elapsed_ms, _trained_tokens(lease, end))
    billable = lease.billable_gpu_ms + sum(usage.billable_gpu_ms for usage in last)
    credits_given = _credit_end(lease, end, last)
    closed = build_from(
        PlacementClosed,
        lease.ref,
        end=build_from(
            AttemptEnd,
            end,
            node_ids=lease.node_ids,
            used_gpu_ms=lease.slots * end.elapsed_ms,
            billable_gpu_ms=billable,
            lost_gpu_ms=lease.lost_gpu_ms + sum(credit.lost_gpu_ms for credit in credits_given),
        ),
    )
    return (*last, *credits_given, closed)


def close_waiting(placement: Placement, end: AttemptEnd) -> PlacementClosed:
    """The end of a placement that never got a lease."""
    return build_from(PlacementClosed, placement, end=end)


def slice_usage(
    lease: Lease, until_ms: Ms, trained_tokens: Tokens | None = None
) -> tuple[UsageSliced, ...]:
    """Return slices of a lease from its last slice to an elapsed time.

    trained_tokens: tokens of the job at its end; None: the lease continues, and tokens of its last
        checkpoint count once the slices have passed its capture.
    """
    if lease.started_at is None:
        return ()
    if trained_tokens is None:
        is_passed = lease.captured_ms <= until_ms
        trained_tokens = lease.trained_tokens if is_passed else lease.sliced_tokens
    # the trained tokens in no slice yet, within what the job's hold allows
    left = lease.max_tokens - sum(hour.tokens for hour in lease.charged)
    tokens = clamp(trained_tokens - lease.sliced_tokens, 0, max(0, left))
    billed_max = lease.max_gpu_ms
    if lease.billed_gpu_ms_max is not None:
        billed_max = min(billed_max, lease.billed_gpu_ms_max)
    parts = slices(lease.started_at, sliced_ms(lease), until_ms, lease.slots, billed_max)
    if tokens and not parts:
        parts = (Slice(hour_of(lease.started_at + until_ms), 0, 0),)
    return tuple(
        UsageSliced(
            lease=lease.ref,
            hour_utc=part.hour_utc,
            used_gpu_ms=part.used_gpu_ms,
            billable_gpu_ms=part.billable_gpu_ms,
            tokens=tokens if part is parts[-1] else 0,
        )
        for part in parts
    )


def _trained_tokens(lease: Lease, end: LeaseEnd) -> Tokens:
    """Return the tokens of the whole job: from its result, or else from the last checkpoint."""
    result = end.result.tokens if isinstance(end.result, TrainResult) else 0
    return max(lease.trained_tokens, result)


def credit(
    lease: LeaseRef,
    charged: tuple[ChargedHour, ...],
    gpu_ms: GpuMs,
    cause: CreditCause,
    tokens: Tokens = 0,
) -> tuple[UsageCredited, ...]:
    """Gives back the newest of what the job of a lease is charged, each part in its own hour."""
    return tuple(
        UsageCredited(
            lease=lease,
            hour_utc=hour.hour_utc,
            lost_gpu_ms=hour.gpu_ms,
            cause=cause,
            used_by=None if hour.lease.token == lease.token else hour.lease,
            lost_tokens=hour.tokens,
        )
        for hour in newest_hours(charged, gpu_ms, tokens)
    )


def settle(pool: Pool, job_id: str, refund: JobRefund | None) -> tuple[Event, ...]:
    """Forgets a job that has ended, after what it is charged is given back where it is.

    One credit for each lease and hour, the newest first: the ledger has one row for each. What is
    trained stays charged where a part of its time does.
    """
    known = () if refund is None else pool.charged.get(job_id, ())
    kept_gpu_ms = 0 if refund is None else refund.kept_gpu_ms
    gpu_ms = max(0, sum(hour.gpu_ms for hour in known) - kept_gpu_ms)
    tokens = 0 if kept_gpu_ms else sum(hour.tokens for hour in known)
    charged = tuple(reversed(newest_hours(known, gpu_ms, tokens)))
    credits_given = tuple(
        UsageCredited(
            lease=hour.lease,
            hour_utc=hour.hour_utc,
            lost_gpu_ms=hour.gpu_ms,
            cause=refund.cause,
            lost_tokens=hour.tokens,
            kept_gpu_ms=kept_gpu_ms,
        )
        for hour in charged[:REFUNDS_MAX]
        if refund is not None
    )
    if len(charged) > REFUNDS_MAX:
        return credits_given
    return (*credits_given, WorkForgotten(job_id=job_id))


def kill(lease: Lease, ended_by: EndAuthor, reason: Reason) -> LeaseKilled:
    """Order the kill of a lease. An earlier order to drain keeps its author."""
    first = lease.ending
    return LeaseKilled(
        lease=lease.ref,
        ended_by=first.ended_by if first else ended_by,
        reason=first.reason if first else reason,
    )


def drain(
    lease: Lease,
    deadline: Ms,
    ended_by: EndAuthor,
    reason: Reason,
    beneficiary: Beneficiary | None = None,
) -> LeaseDraining:
    """Order the drain of a lease: checkpoint and exit before the deadline."""
    return LeaseDraining(
        lease=lease.ref,
        deadline=deadline,
        ended_by=ended_by,
        reason=reason,
        beneficiary=beneficiary,
    )


def _credit_end(
    lease: Lease, end: LeaseEnd, last: tuple[UsageSliced, ...]
) -> tuple[UsageCredited, ...]:
    """Credit time that was sliced and did not run, and the refund for this class of end."""
    charged, sliced = lease.charged, lease.billable_gpu_ms
    for usage in last:
        charged, sliced = charge(charged, usage), sliced + usage.billable_gpu_ms
    billable = min(sliced, lease.slots * end.elapsed_ms)
    corrections = credit(lease.ref, charged, sliced - billable, "correction")
    for correction in corrections:
        charged = take_back(charged, correction)
    refund = attempt_refund(end.outcome, end.ended_by, end.cause, lease.ref.role)
    if refund.cause is None:
        return corrections
    kept_ms, tokens = lease.captured_ms, 0  # no tokens are billed before a checkpoint has them
    if refund.scope == "attempt":
        own = [hour for hour in charged if hour.lease.token == lease.ref.token]
        kept_ms, tokens = 0, sum(hour.tokens for hour in own)
    lost = lost_gpu_ms(billable, lease.slots, kept_ms)
    return (*corrections, *credit(lease.ref, charged, lost, refund.cause, tokens))


def _judge(lease: Lease, report: ReportExit) -> tuple[AttemptOutcome, FailureCause | None]:
    outcome, cause = report.outcome, report.cause
    if outcome == "succeeded" and lease.started_at is not None and report.result is not None:
        return "succeeded", None
    if outcome == "lost":
        return "lost", None
    if outcome == "not_started" and lease.started_at is None:
        return "not_started", None  # it was ordered to end while its agent fetched the inputs
    if lease.ending is not None and (outcome != "failed" or cause in CAUSES_OF_ENDING):
        by_budget = lease.ending.ended_by == "budget"
        return ("failed", "budget") if by_budget else ("preempted", None)
    if outcome == "preempted":
        return "preempted", None
    return "failed", cause or "platform"


def _author(
    lease: Lease, outcome: AttemptOutcome, cause: FailureCause | None
) -> tuple[EndAuthor, Reason]:
    """Return who ended an attempt that its agent reported, and why."""
    if outcome == "succeeded":
        return "training", ending("exited")
    if outcome == "lost":
        return "node", ending("exited")
    if outcome == "failed" and cause != "budget":
        return AUTHORS.get(cause or "platform", "training"), ending("exited")
    if lease.ending is not None:
        return lease.ending.ended_by, lease.ending.reason
    if lease.wait is not None and outcome == "not_started":
        return "platform", ending("not_admitted")
    return "node", ending("node_left")
