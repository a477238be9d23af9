"""Progress of a job: its evaluation counts like its training."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.job import PhaseSet, RecordClosed
from schemas.pool import AttemptEnd
from schemas.reasons import ending
from schemas.topics import JOB as JOB_STREAM
from services.gateway.jobs.domain.progress import EVEN_SHARE, PERCENT_MAX, progress_of
from services.gateway.jobs.domain.responses import Moment, job_response
from services.gateway.views.tables.jobs import JOBS, JobRow, StepRow
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.job_events import EVAL, HELD, JOB, SUBMITTED, placed, started
from tests.unit.services.gateway.jobs.test_checkpoint_routes import checkpoint_of_tenant
from tests.unit.services.gateway.jobs.test_routes import a_step
from tests.unit.services.gateway.view_rows import folded, only

TRAIN_MS, EVAL_MS = HELD.estimate.train_gpu_ms, HELD.estimate.eval_gpu_ms
EVAL_STARTED = replace(started(2), role="eval")
SCORING = (
    placed(1),
    started(1),
    placed(2, EVAL),
    PhaseSet(job_id=JOB, phase="evaluating"),
    EVAL_STARTED,
)
STEP = StepRow(
    tenant="acme",
    job_id=JOB,
    id="ftevent-1",
    step=10,
    total_steps=20,
    attempt=1,
    elapsed_ms=10_000,
    loss=1.25,
    accuracy=None,
    valid_loss=None,
    valid_accuracy=None,
    learning_rate=None,
    tokens=100,
    at=5_000_000,
)


def row_after(*events: Any) -> JobRow:
    return only(folded("job", SUBMITTED, HELD, *events), JOBS)


def training() -> JobRow:
    return row_after(placed(1), started(1), PhaseSet(job_id=JOB, phase="running"))


def test_first_hour_08_the_end_of_the_training_is_not_the_end_of_the_job() -> None:
    """Progress was "4 seconds remaining, 91.7 %" with half a minute of evaluation to come."""
    last = replace(STEP, step=20)
    shown = progress_of(training(), last, last.at)
    assert shown is not None
    assert shown.percent == round(100 * TRAIN_MS / (TRAIN_MS + EVAL_MS), 1) < 100
    assert shown.seconds_remaining == EVAL_MS // 1_000
    job = job_response(training(), lambda *_: None, Moment(at=last.at, step=last))
    assert job.estimated_finish == (last.at + EVAL_MS) // 1_000


@pytest.mark.parametrize("later_ms", [0, 3_000, 8_000])
def test_first_hour_08_the_time_that_is_left_becomes_less_between_two_steps(later_ms: int) -> None:
    shown = progress_of(training(), STEP, STEP.at + later_ms)
    assert shown is not None
    assert shown.seconds_remaining == (10_000 - later_ms + EVAL_MS) // 1_000


def test_first_hour_08_the_start_of_a_training_is_not_its_pace() -> None:
    """After the first of 72 steps, which came 45 seconds after the start of the process and one
    after that of the training, 53 minutes were left; it took 3.
    """
    row = training()
    assert row.started_at is not None
    first = replace(STEP, step=1, total_steps=72, elapsed_ms=45_000, at=row.started_at + 1_000)
    shown = progress_of(replace(row, total_steps=72), first, first.at)
    assert shown is not None
    assert shown.seconds_remaining == (71 * 1_000 + EVAL_MS) // 1_000


@pytest.mark.parametrize("share", [0, 0.2, 0.5, 0.9, 1, 3])
def test_first_hour_08_an_evaluation_has_progress_and_an_end(share: float) -> None:
    """Progress was 100 %, without an end, for the last 31 of 77 seconds."""
    row = row_after(*SCORING)
    assert row.eval_started_at is not None
    at = row.eval_started_at + int(share * EVAL_MS)
    job = job_response(row, lambda *_: None, Moment(at=at, step=replace(STEP, step=20)))
    assert job.progress is not None
    assert job.progress.step == 20
    trained = 100 * TRAIN_MS / (TRAIN_MS + EVAL_MS)
    assert round(trained, 1) <= job.progress.percent <= PERCENT_MAX
    assert job.estimated_finish is not None
    left_s = job.estimated_finish - at // 1_000
    if share <= EVEN_SHARE:
        assert left_s == (EVAL_MS - int(share * EVAL_MS)) // 1_000
    else:
        assert 0 <= left_s <= (1 - EVEN_SHARE) * EVAL_MS // 1_000


def test_first_hour_08_an_evaluation_takes_what_others_took() -> None:
    row = row_after(*SCORING)
    shown = progress_of(row, None, row.eval_started_at or 0, eval_ms=40_000)
    assert shown is not None
    assert (shown.step, shown.seconds_remaining) == (20, 40)


def test_first_hour_08_an_evaluation_that_waits_has_all_of_its_time_before_it() -> None:
    shown = progress_of(row_after(*SCORING[:-1]), None, 5_000_000)
    assert shown is not None
    assert shown.seconds_remaining == EVAL_MS // 1_000


def test_first_hour_08_a_published_model_is_a_whole_job() -> None:
    row = row_after(*SCORING, PhaseSet(job_id=JOB, phase="registering"))
    shown = progress_of(row, None, 5_000_000)
    assert shown is not None
    assert (shown.percent, shown.seconds_remaining) == (PERCENT_MAX, 0)
    ended = replace(row, phase="done", outcome="succeeded")
    shown = progress_of(ended, None, 5_000_000)
    assert shown is not None
    assert (shown.percent, shown.seconds_remaining) == (100.0, None)


def test_first_hour2_u8_the_percentage_never_stands_still() -> None:
    """Progress stood at 92.8 % for 37 of 100 seconds, while both models wrote their answers."""
    row = row_after(*SCORING)
    assert row.eval_started_at is not None
    began = row.eval_started_at
    shares = [*range(30), *range(30, 100, 20)]  # of 20: up to five times its expected time
    shown = [progress_of(row, None, began + share * EVAL_MS // 20) for share in shares]
    percents = [progress.percent for progress in shown if progress is not None]
    assert percents == sorted(set(percents))
    assert percents[-1] < PERCENT_MAX
    moments_ms = (0, 200, 400, 600, 800, 1_000, 1_500)  # a step took a second
    between = [progress_of(training(), STEP, STEP.at + later) for later in moments_ms]
    steps = [progress.percent for progress in between if progress is not None]
    assert steps == sorted(set(steps))
    following = progress_of(training(), replace(STEP, step=11), STEP.at + 5_000)
    assert following is not None
    assert steps[-1] < following.percent


@pytest.mark.parametrize("scoring", [True, False])
def test_first_hour2_u8_the_time_that_is_left_never_stands_still(scoring: bool) -> None:
    """`seconds_remaining` was a tenth of the evaluation's time for as long as it was late."""
    row = row_after(*SCORING) if scoring else training()
    eval_ms, began = (4_000_000, row.eval_started_at or 0) if scoring else (10_000, STEP.at)
    slow = replace(STEP, elapsed_ms=4_000_000, at=began)
    if not scoring:
        row = replace(row, started_at=began - 4_000_000)
    left = []
    for tenth in range(25):  # up to two and a half times as long as it should take
        step = None if scoring else slow
        shown = progress_of(row, step, began + tenth * 400_000, eval_ms=eval_ms)
        assert shown is not None
        left.append(shown.seconds_remaining)
    assert None not in left
    assert left == sorted({each for each in left if each is not None}, reverse=True)


def test_a_cancelled_training_keeps_its_share() -> None:
    row = replace(training(), phase="done", outcome="cancelled", loaded_step=5)
    shown = progress_of(row, None, 5_000_000)
    assert shown is not None
    assert (shown.step, shown.seconds_remaining) == (5, None)
    assert shown.percent == round(100 * TRAIN_MS / 4 / (TRAIN_MS + EVAL_MS), 1)


async def test_first_hour_a_failed_job_shows_the_step_that_it_reached(api: ControlPlane) -> None:
    """`job show` of a failed job said step 0, and none had a loss."""
    owner = (await checkpoint_of_tenant(api)).owner
    tenant, path = owner.headers["x-tenant"], "/v1/fine_tuning/jobs"
    (job,) = (await owner.get(path)).json()["data"]
    for step in (1, 7):
        await api.telemetry(tenant, job["id"], a_step(tenant, job["id"], step, loss=2.5))
    end = AttemptEnd(
        outcome="failed", ended_by="training", reason=ending("exited"), cause="divergence"
    )
    closed = RecordClosed(job_id=job["id"], attempt=1, role="train", end=end)
    await api.send(JOB_STREAM, tenant, closed)
    ended = await api.until(owner, f"{path}/{job['id']}", lambda shown: shown["phase"] == "done")
    progress = ended["progress"]
    assert ended["status"] == "failed"
    assert (progress["step"], progress["total_steps"], progress["train_loss"]) == (7, 20, 2.5)
