"""Facts about the open attempt, as events of the job."""

from schemas.job import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Phase,
    PhaseSet,
    RecordClosed,
    RecordGranted,
    RecordStarted,
    RecordWait,
    WaitNoted,
)
from schemas.pool import Role
from schemas.training import AttemptOutcome, EvalResult, FailureCause, TrainResult
from services.scheduler.domain.job.state import Job


def waits(job: Job, command: RecordWait) -> tuple[Event, ...]:
    noted = WaitNoted(job_id=job.job_id, reason=command.reason, position=command.position)
    return (noted,)


def granted(job: Job, role: Role, command: RecordGranted) -> tuple[Event, ...]:
    phase = PhaseSet(
        job_id=job.job_id,
        phase="provisioning" if role == "train" else "evaluating",
        reason="a node is preparing to run it",
        node_id=command.node_id,
    )
    return (phase,)


def started(job: Job, role: Role, command: RecordStarted) -> tuple[Event, ...]:
    begun = AttemptStarted(
        job_id=job.job_id,
        attempt=command.attempt,
        role=role,
        loaded_step=command.loaded_step,
        skipped=command.skipped,
        total_steps=command.total_steps,
    )
    if role == "eval":
        why = "base model and adapter are being scored"
        return (begun, _here(job, "evaluating", why))
    if job.phase == "checkpointing":  # the drain notice was faster
        return (begun,)
    return (begun, _here(job, "running"))


def draining(job: Job, role: Role) -> tuple[Event, ...]:
    if role == "eval":
        return ()
    why = "it was asked to stop: it finishes its step and writes a checkpoint"
    return (_here(job, "checkpointing", why),)


def _here(job: Job, phase: Phase, reason: str | None = None) -> PhaseSet:
    """A phase of the open placement, on the node it was granted."""
    node_id = job.open.node_id if job.open else None
    return PhaseSet(job_id=job.job_id, phase=phase, reason=reason, node_id=node_id)


def ended(job: Job, command: RecordClosed) -> AttemptEnded:
    """The end of an attempt, with the job's totals. A success without its result is a failure."""
    outcome, cause = _judged(command)
    return AttemptEnded(
        job_id=job.job_id,
        attempt=command.attempt,
        role=command.role,
        outcome=outcome,
        cause=cause,
        message=command.message,
        node_id=command.node_id,
        result=command.result,
        billable_gpu_ms=job.billable_gpu_ms + command.billable_gpu_ms,
        lost_gpu_ms=job.lost_gpu_ms + command.lost_gpu_ms,
    )


def _judged(command: RecordClosed) -> tuple[AttemptOutcome, FailureCause | None]:
    wanted = TrainResult if command.role == "train" else EvalResult
    if command.outcome == "succeeded" and not isinstance(command.result, wanted):
        return "failed", "platform"
    return command.outcome, command.cause
