"""Progress and end of a job: its training by steps, its evaluation by time.

Both count: a job has not ended before its adapter was compared with the base model. The percentage
moves between two steps, too, and what takes longer than expected comes ever closer to its end.
"""

from typing import Final

from schemas.units import Ms
from services.gateway.views.tables.jobs import JobRow, StepRow
from services.gateway.web.domain.responses import Response
from tunery.plan.estimate import EVAL_SLOTS

PERCENT_MAX: Final = 99.9  # of a job that has not succeeded
EVEN_SHARE: Final = 0.8  # of its expected time, in which an evaluation advances evenly


class ProgressResponse(Response):
    """Progress of a job. `percent`: share of the whole job, by the expected times of training and
    evaluation. `seconds_remaining`: time until the job ends; null: not known yet.
    """

    step: int
    resumed_from_step: int | None
    total_steps: int
    percent: float
    train_loss: float | None
    seconds_remaining: int | None


def progress_of(
    row: JobRow, step: StepRow | None, at: Ms, eval_ms: Ms | None = None
) -> ProgressResponse | None:
    """A job's progress; None before its first start.

    step: the newest one. at: now. eval_ms: what its evaluation is expected to take, None: as its
    estimate says.
    """
    total = row.total_steps
    if total is None:
        return None
    train_ms, eval_ms = _weights(row, eval_ms)
    trained = row.role == "eval" or row.outcome == "succeeded"
    done = total if trained else row.loaded_step or 0
    if step is not None:
        done = step.step
    begun = 0.0 if trained else _begun(row, step, at)
    left_ms = None
    if row.phase != "done":
        left_ms = _eval_left_ms(row, at, eval_ms) if trained else _left_ms(row, step, at, eval_ms)
    return ProgressResponse(
        step=done,
        resumed_from_step=row.loaded_step,
        total_steps=total,
        percent=_percent(row, (done + begun) / total if total else 1.0, train_ms, eval_ms, at),
        train_loss=None if step is None else step.loss,
        seconds_remaining=None if left_ms is None else left_ms // 1_000,
    )


def _weights(row: JobRow, eval_ms: Ms | None) -> tuple[Ms, Ms]:
    """Expected times of training and evaluation; those of the estimate where nothing is known."""
    estimate = None if row.hold is None else row.hold.estimate
    if estimate is None:
        return 1, eval_ms or 0
    expected_ms = estimate.eval_gpu_ms // EVAL_SLOTS if eval_ms is None else eval_ms
    return max(1, estimate.train_gpu_ms // row.spec.slots), expected_ms


def _percent(row: JobRow, trained: float, train_ms: Ms, eval_ms: Ms, at: Ms) -> float:
    if row.outcome == "succeeded":
        return 100.0
    scored_ms = 0.0
    if row.phase == "registering":
        scored_ms = eval_ms
    elif row.role == "eval" and row.phase != "done":
        spent_ms = 0 if row.eval_started_at is None else max(0, at - row.eval_started_at)
        scored_ms = eval_ms * _advanced(spent_ms / eval_ms if eval_ms else 0.0)
    share = (train_ms * min(1.0, trained) + scored_ms) / (train_ms + eval_ms)
    return min(PERCENT_MAX, round(100 * share, 1))


def _left_ms(row: JobRow, step: StepRow | None, at: Ms, eval_ms: Ms) -> Ms | None:
    """Time of a training at the pace of this attempt, and of the evaluation after it.

    The pace is that of its steps: what came before the first one is not done again.
    """
    if step is None or step.attempt != row.attempt or row.total_steps is None:
        return None
    paced = step.step - (row.loaded_step or 0)
    if paced < 1:
        return None
    train_ms = (row.total_steps - step.step) * _spent_ms(row, step) // paced
    return _remaining_ms(train_ms, at - step.at) + eval_ms


def _spent_ms(row: JobRow, step: StepRow) -> Ms:
    """Return the time of this attempt's steps."""
    spent_ms = step.elapsed_ms
    if row.started_at is not None:
        spent_ms = min(spent_ms, max(1, step.at - row.started_at))
    return spent_ms


def _begun(row: JobRow, step: StepRow | None, at: Ms) -> float:
    """Return the share of the step in progress that is done, by the pace of those before."""
    if step is None or step.attempt != row.attempt or row.phase == "done":
        return 0.0
    paced = step.step - (row.loaded_step or 0)
    if paced < 1:
        return 0.0
    return _advanced(max(0, at - step.at) * paced / max(1, _spent_ms(row, step)))


def _advanced(spent: float) -> float:
    """Return the share that is done after this share of the expected time; always below 1."""
    if spent <= EVEN_SHARE:
        return spent
    late = (spent - EVEN_SHARE) / (1 - EVEN_SHARE)
    return 1 - (1 - EVEN_SHARE) / (1 + late)


def _eval_left_ms(row: JobRow, at: Ms, eval_ms: Ms) -> Ms:
    if row.phase == "registering":
        return 0
    if row.eval_started_at is None:
        return eval_ms
    return _remaining_ms(eval_ms, at - row.eval_started_at)


def _remaining_ms(expected_ms: Ms, spent_ms: Ms) -> Ms:
    """Return how much is left of what takes this long: ever less, also where it takes longer."""
    if expected_ms <= 0:
        return 0
    spent_ms = max(0, spent_ms)
    done = _advanced(spent_ms / expected_ms)
    if spent_ms <= EVEN_SHARE * expected_ms:
        return expected_ms - spent_ms
    return round(spent_ms * (1 - done) / done)
