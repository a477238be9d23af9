"""Next step after the end of an attempt: one policy per cause."""

from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from schemas import errors
from schemas.envelope import Reason
from schemas.job import AttemptEnded
from schemas.reasons import failing
from schemas.training import FailureCause, HyperParameters
from services.scheduler.domain.job.quota import attempt_gpu_ms_max, slots_of
from services.scheduler.domain.job.state import OpenJob
from services.scheduler.domain.pool.usage import BUDGET_NOTICE_MS
from tunery.plan.micro_batches import halvings, with_smaller_micro_batches

OOM_RETRIES_MAX: Final = 1  # with micro-batches that cannot get smaller
BAD_NODE_RETRIES_MAX: Final = 3
PLATFORM_RETRIES_MAX: Final = 3
# All are counted since the job last got further: a day on many machines meets many faults.
# Preempted and lost are never failed; but a job that takes down every machine before a checkpoint
# is put aside for a person to look at.
FRUITLESS_MAX: Final = 20
# Over the whole training: a process that writes a checkpoint and then fails, each time, has a fault
# of its own.
FAILED_MAX: Final = 20


@dataclass(frozen=True)
class Again:
    """Try again with these hyper-parameters, from the kept checkpoints."""

    hyper: HyperParameters


@dataclass(frozen=True)
class GiveUp:
    """Fail the job."""

    code: str  # one of `schemas.errors`
    reason: Reason


Step: TypeAlias = Again | GiveUp


def next_step(job: OpenJob, ended: AttemptEnded) -> Step:
    """The next step of a job that still wants to run; `job` has the attempt counted already.

    Raises ValueError for a success: there is nothing to retry.
    """
    match ended.end.outcome:
        case "succeeded":
            raise ValueError("a success advances the job; there is nothing to retry")
        case "not_started":
            return Again(job.hyper)
        case "preempted" | "lost":
            if job.retries.fruitless <= FRUITLESS_MAX:
                return Again(job.hyper)
            return _exhausted(failing("attempts_lost", attempts=FRUITLESS_MAX))
        case "failed":
            return _after_failure(job, ended, ended.end.cause or "platform")
        case _:
            assert_never(ended.end.outcome)


def _after_failure(job: OpenJob, ended: AttemptEnded, cause: FailureCause) -> Step:
    if job.retries.failed > FAILED_MAX:
        return _exhausted(failing("attempts_failed", attempts=FAILED_MAX + 1))
    match cause:
        case "oom":
            return _after_oom(job, ended)
        case "bad_node":
            if job.retries.bad_node <= BAD_NODE_RETRIES_MAX:
                return Again(job.hyper)
            return _exhausted(failing("nodes_failed", attempts=BAD_NODE_RETRIES_MAX + 1))
        case "platform":
            if job.retries.platform <= PLATFORM_RETRIES_MAX:
                return Again(job.hyper)
            return _exhausted(failing("platform_errors", attempts=PLATFORM_RETRIES_MAX + 1))
        case "divergence":
            return GiveUp(errors.DIVERGED, failing("loss_diverged"))
        case "nothing_learnt":
            return GiveUp(errors.NOTHING_LEARNT, failing("nothing_learnt"))
        case "bad_data":
            return GiveUp(errors.BAD_DATA, failing("row_untrainable"))
        case "user":
            return GiveUp(errors.USER_ERROR, _wrong_request(ended.end.reason))
        case "budget":
            # Time lost to the platform and credited meanwhile is the job's to use again. What a
            # drained attempt left of its cap is less than one notice, so this cannot go round.
            # So is time that was used above what an evaluation is billed.
            unbilled_gpu_ms = ended.end.used_gpu_ms - ended.end.billable_gpu_ms
            left = attempt_gpu_ms_max(job, ended.role) - unbilled_gpu_ms
            if left > slots_of(job, ended.role) * BUDGET_NOTICE_MS:
                return Again(job.hyper)
            return budget_exhausted()
        case _:
            assert_never(cause)


def _after_oom(job: OpenJob, ended: AttemptEnded) -> Step:
    """Retry the same steps in smaller micro-batches, from the checkpoint.

    Micro-batches of one row are retried unchanged: another process may have used the memory.
    """
    smaller = with_smaller_micro_batches(job.hyper) if ended.role == "train" else None
    if smaller is not None:
        return Again(smaller)
    divided = halvings(job.spec.hyper) if ended.role == "train" else 0
    if job.retries.oom <= divided + OOM_RETRIES_MAX:
        return Again(job.hyper)
    return GiveUp(errors.OUT_OF_MEMORY, failing("memory_exceeded"))


def _wrong_request(reason: Reason) -> Reason:
    """Return why the request was wrong, if the pool gives a reason."""
    if reason.code == "slots_above_largest":
        return failing("slots_above_largest", **reason.params)
    return failing("request_wrong")


def budget_exhausted() -> GiveUp:
    return GiveUp(errors.BUDGET_EXHAUSTED, failing("hold_used_up"))


def _exhausted(reason: Reason) -> GiveUp:
    return GiveUp(errors.ATTEMPTS_EXHAUSTED, reason)
