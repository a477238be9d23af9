"""Facts about the open attempt, as events of the job."""

from typing import Final

from msgspec.structs import replace

from schemas.anomaly import AnomalyRecorded, RecordAnomaly
from schemas.job import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Phase,
    PhaseSet,
    RecordClosed,
    RecordGranted,
    RecordStarted,
)
from schemas.pool import AttemptEnd, Role
from schemas.reasons import WaitCode, waiting
from schemas.training import EvalResult, TrainResult
from services.scheduler.domain.job.state import OpenJob

# Records of the journal are kept for ever; what is unusual for longer is usual.
ANOMALIES_MAX: Final = 32


def note_grant(job: OpenJob, role: Role, command: RecordGranted) -> tuple[Event, ...]:
    """The open placement has a lease; its nodes fetch the inputs."""
    phase = PhaseSet(
        job_id=job.job_id,
        phase="provisioning" if role == "train" else "evaluating",
        reason=waiting("node_preparation"),
        node_ids=command.node_ids,
    )
    return (phase,)


def start_attempt(job: OpenJob, role: Role, command: RecordStarted) -> tuple[Event, ...]:
    """The training or evaluation runs. A job that is drained already stays `checkpointing`."""
    started = AttemptStarted(
        job_id=job.job_id, attempt=command.attempt, role=role, start=command.start
    )
    if role == "eval":
        return (started, _phase_on_nodes(job, "evaluating", "scoring"))
    if job.phase == "checkpointing":
        return (started,)
    return (started, _phase_on_nodes(job, "running"))


def note_draining(job: OpenJob, role: Role) -> tuple[Event, ...]:
    """The nodes must be left soon. An evaluation writes no checkpoint, so its phase stays."""
    if role == "eval":
        return ()
    return (_phase_on_nodes(job, "checkpointing", "draining"),)


def record_anomaly(job: OpenJob, command: RecordAnomaly) -> tuple[Event, ...]:
    """Record an anomaly once for each window, up to a limit."""
    recorded = job.anomalies
    if command.anomaly.key in recorded or len(recorded) >= ANOMALIES_MAX:
        return ()
    return (AnomalyRecorded(job_id=job.job_id, anomaly=command.anomaly),)


def end_attempt(job: OpenJob, command: RecordClosed) -> AttemptEnded:
    """The end of an attempt, with the job's totals. A success without its result is a failure."""
    end = _judge(command)
    return AttemptEnded(
        job_id=job.job_id,
        attempt=command.attempt,
        role=command.role,
        end=end,
        job_billable_gpu_ms=job.billable_gpu_ms + end.billable_gpu_ms,
        job_lost_gpu_ms=job.lost_gpu_ms + end.lost_gpu_ms,
        job_micro_gpu_ms=job.counted_micro_gpu_ms if job.spec.price.rates else None,
        job_tokens=job.counted_tokens,
    )


def _phase_on_nodes(job: OpenJob, phase: Phase, code: WaitCode | None = None) -> PhaseSet:
    """A phase of the open placement, on the nodes that it was granted."""
    return PhaseSet(
        job_id=job.job_id,
        phase=phase,
        reason=None if code is None else waiting(code),
        node_ids=job.open.node_ids if job.open else (),
    )


def _judge(command: RecordClosed) -> AttemptEnd:
    expected = TrainResult if command.role == "train" else EvalResult
    if command.end.outcome == "succeeded" and not isinstance(command.end.result, expected):
        return replace(command.end, outcome="failed", cause="platform")
    return command.end
