"""Jobs in every phase, each reached through commands alone."""

from typing import Any

from msgspec.structs import replace

from schemas.job import (
    Phase,
    RecordBase,
    RecordClosed,
    RecordDataset,
    RecordDraining,
    RecordGranted,
    RecordRegistered,
    RecordStarted,
    RecordVerdict,
)
from schemas.pool import AttemptEnd, EndAuthor, Role
from schemas.reasons import ending
from schemas.training import AttemptOutcome, AttemptStart, FailureCause, Result
from services.scheduler.app import JOBS
from services.scheduler.domain.job.state import OpenJob
from simulator.control_plane.samples import (
    BASE,
    MINUTE,
    PASSED,
    PREPARED,
    SCORED,
    T0,
    TRAINED,
    limits,
    submit,
)
from tests.unit.services.scheduler.fold import Decider

JOB_ID = "ftjob-1"
TENANT = "acme"


def prepared(**changes: Any) -> RecordDataset:
    return replace(RecordDataset(job_id=JOB_ID, prepared=PREPARED), **changes)


def pinned(**changes: Any) -> RecordBase:
    return replace(RecordBase(job_id=JOB_ID, base=BASE), **changes)


def granted(attempt: int = 1) -> RecordGranted:
    return RecordGranted(job_id=JOB_ID, attempt=attempt, node_ids=("a",))


def started(attempt: int = 1, **changes: Any) -> RecordStarted:
    start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=40)
    return RecordStarted(job_id=JOB_ID, attempt=attempt, start=replace(start, **changes))


def closed(
    attempt: int = 1,
    outcome: AttemptOutcome = "succeeded",
    cause: FailureCause | None = None,
    role: Role = "train",
    billable: int = MINUTE,
    lost: int = 0,
    result: Result | None = None,
    ended_by: EndAuthor = "training",
) -> RecordClosed:
    done = result or (TRAINED if role == "train" else SCORED)
    return RecordClosed(
        job_id=JOB_ID,
        attempt=attempt,
        role=role,
        end=AttemptEnd(
            outcome=outcome,
            ended_by=ended_by,
            reason=ending("exited"),
            cause=cause,
            result=done if outcome == "succeeded" else None,
            node_ids=("a",),
            used_gpu_ms=billable,
            billable_gpu_ms=billable,
            lost_gpu_ms=lost,
        ),
    )


VERDICT = RecordVerdict(job_id=JOB_ID, summary=PASSED)
REGISTERED = RecordRegistered(job_id=JOB_ID, model_id="ft:smol")
_START: tuple[Any, ...] = (limits(), submit(JOB_ID))
_QUEUED = (*_START, prepared(), pinned())
_RUNNING = (*_QUEUED, granted(), started())
_EVALUATING = (*_RUNNING, closed())
_SCORED = (*_EVALUATING, closed(2, role="eval"))
_REGISTERING = (*_SCORED, VERDICT)
LIVES: dict[Phase, tuple[Any, ...]] = {
    "validating": _START,
    "queued": _QUEUED,
    "provisioning": (*_QUEUED, granted()),
    "running": _RUNNING,
    "checkpointing": (*_RUNNING, RecordDraining(job_id=JOB_ID, attempt=1)),
    "evaluating": _EVALUATING,
    "registering": _REGISTERING,
    "done": (*_REGISTERING, REGISTERED),
}
SCORED_LIFE = _SCORED


def new_tenant() -> Decider:
    return Decider(JOBS, TENANT, T0)


def lived(phase: Phase) -> Decider:
    return new_tenant().accept(*LIVES[phase])


def job_of(decider: Decider) -> OpenJob | None:
    job: OpenJob | None = decider.state[TENANT].jobs.get(JOB_ID)
    return job
