"""Estimates that learn from jobs that have succeeded."""

from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from schemas.dataset import BaseTokens
from schemas.job import AttemptEnded, JobEnded
from schemas.submission import Estimate, Pace
from schemas.training import AttemptOutcome
from services.gateway.jobs.past_jobs import KEPT_MS, SAME_BASE_MIN, PastJobs, pace_of, past_jobs_of
from services.gateway.views.tables.jobs import JOBS, BudgetHold, JobRow
from tests.unit.services.gateway.jobs.job_events import (
    EVAL,
    HELD,
    JOB,
    LOST,
    SPEC,
    SUBMITTED,
    TOKENS,
    placed,
)
from tests.unit.services.gateway.view_rows import folded, only
from tunery.plan.durations import SAMPLES_MIN
from tunery.plan.estimate import corrected, estimate
from tunery.plan.time import HOLD_FACTOR, HOLD_MS_MIN

ROW = only(folded("job", SUBMITTED, HELD), JOBS)
SEEDS = range(5)


def tokens(count: int) -> BaseTokens:
    return replace(TOKENS, tokens=count, trainable_tokens=count // 2)


def past_job(count: int, train_factor: float, eval_factor: float) -> JobRow:
    """A job with this number of tokens that took longer than its estimate by this factor."""
    needs = estimate(SPEC, tokens(count))
    train_gpu_ms = round(needs.train_gpu_ms * train_factor)
    return replace(
        ROW,
        phase="done",
        outcome="succeeded",
        attempt=2,
        hold=BudgetHold(tokens=tokens(count), estimate=needs),
        train_gpu_ms=train_gpu_ms,
        eval_gpu_ms=round(needs.eval_gpu_ms * eval_factor),
        lost_gpu_ms=0,
    )


def gpu_ms(needs: Estimate) -> int:
    return needs.train_gpu_ms + needs.eval_gpu_ms


def error(row: JobRow, rows: Sequence[JobRow]) -> float:
    """How far off the estimate of a job is, as a factor of 1 or more."""
    assert row.hold is not None
    needs = estimate(row.spec, row.hold.tokens)
    pace = pace_of(past_jobs_of(rows), row.spec, row.hold.tokens)
    expected = gpu_ms(corrected(replace(row.spec, pace=pace), needs))
    actual = (row.train_gpu_ms or 0) + (row.eval_gpu_ms or 0)
    return max(expected / actual, actual / expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("speed", [0.15, 0.5, 1, 2.5])
def test_first_hour_07_nine_of_ten_estimates_are_within_a_factor_of_two(
    speed: float, seed: int
) -> None:
    """Estimates were 1.9 to 8.1 times too high. Here are 20 jobs on a pool of any speed."""
    random = Random(seed)

    def some_job() -> JobRow:
        noise = [random.lognormvariate(0, 0.3) for _ in range(2)]
        return past_job(random.randrange(2_000, 200_000), speed * noise[0], speed * noise[1])

    history = [some_job() for _ in range(30)]
    errors = sorted(error(some_job(), history) for _ in range(20))
    assert errors[17] <= 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("speed", [0.15, 0.5, 1, 2.5, 5])
def test_first_hour_06_holds_follow_from_what_jobs_take(speed: float, seed: int) -> None:
    """Each of 20 different jobs ends within its hold on a pool of any speed; a slow one would stop
    many of them at three times the formula.
    """
    random = Random(seed)

    def some_job() -> JobRow:
        noise = [random.lognormvariate(0, 0.3) for _ in range(2)]
        return past_job(random.randrange(2_000, 200_000), speed * noise[0], speed * noise[1])

    history, generous = past_jobs_of([some_job() for _ in range(30)]), []
    for row in (some_job() for _ in range(20)):
        assert row.hold is not None
        pace = pace_of(history, row.spec, row.hold.tokens)
        hold = estimate(replace(row.spec, pace=pace), row.hold.tokens).hold_gpu_ms
        used_ms = max(row.billable_gpu_ms or 0, 2 * HOLD_MS_MIN * SPEC.slots // HOLD_FACTOR)
        assert used_ms <= hold
        generous.append(hold / used_ms)
    trusted = max(speed, 0.5)  # small jobs teach little about large ones
    assert sorted(generous)[17] <= 2 * HOLD_FACTOR * trusted / speed


def test_first_hour_07_too_few_jobs_teach_nothing() -> None:
    jobs = past_jobs_of([past_job(5_000, 3, 3)] * SAMPLES_MIN)
    for known in (TOKENS, None):
        assert pace_of(jobs, SPEC, known) == Pace(train_ppm=3_000_000, eval_ppm=3_000_000)
        assert pace_of(jobs[1:], SPEC, known) is None


def test_first_hour_07_a_new_base_model_is_estimated_by_jobs_on_others() -> None:
    jobs = past_jobs_of([past_job(5_000, 3, 2)] * SAMPLES_MIN)
    new = replace(SPEC, base=replace(SPEC.base, base_id="other"))
    assert pace_of(jobs, new, TOKENS) == Pace(train_ppm=3_000_000, eval_ppm=2_000_000)
    own = past_jobs_of([replace(past_job(5_000, 5, 5), spec=new)] * SAME_BASE_MIN)
    assert pace_of((*jobs, *own), new, TOKENS) == Pace(train_ppm=5_000_000, eval_ppm=5_000_000)
    assert pace_of((*jobs, *own[1:]), new, TOKENS) == pace_of(jobs, new, TOKENS)
    assert pace_of(own, new, TOKENS) is None


def test_first_hour_07_a_job_is_estimated_by_jobs_of_its_size() -> None:
    """The start is most of a short job: what it teaches would make a long one dearer."""
    short = past_jobs_of([past_job(count, 4, 2) for count in range(100, 900, 100)])
    long = past_jobs_of([past_job(count, 1, 2) for count in range(1_000_000, 1_000_008)])
    expected = {count: pace_of((*short, *long), SPEC, tokens(count)) for count in (500, 2_000_000)}
    ratios = [pace and round(pace.train_ppm / 1_000_000, 1) for pace in expected.values()]
    assert ratios == [4, 1]


@pytest.mark.parametrize(
    "other",
    [
        {"spec": replace(SPEC, device="cuda")},
        {"attempt": 3},
        {"lost_gpu_ms": 1},
        {"train_gpu_ms": None},
    ],
)
def test_first_hour_07_other_jobs_and_stopped_ones_teach_nothing(other: dict[str, object]) -> None:
    rows = [replace(past_job(5_000, 3, 3), **other)] * SAMPLES_MIN
    assert pace_of(past_jobs_of(rows), SPEC, TOKENS) is None


@pytest.mark.parametrize("factor", [0, 1, 1_000_000, 10**9])
def test_first_hour_07_what_is_expected_is_never_above_the_hold(factor: int) -> None:
    spec = replace(SPEC, pace=Pace(train_ppm=factor, eval_ppm=factor))
    needs = estimate(spec, TOKENS)
    shown = corrected(spec, needs)
    assert gpu_ms(shown) <= shown.hold_gpu_ms == needs.hold_gpu_ms
    assert shown.price_micro <= shown.price_max_micro == needs.price_max_micro


def ended(attempt: int, role: str, billable: int, outcome: AttemptOutcome) -> AttemptEnded:
    end = replace(LOST.end, outcome=outcome)
    return replace(
        LOST, attempt=attempt, role=role, end=end, job_billable_gpu_ms=billable, job_lost_gpu_ms=0
    )


def test_first_hour_07_a_job_keeps_what_its_training_took() -> None:
    finished = JobEnded(
        job_id=JOB,
        outcome="succeeded",
        model_id="ft:1",
        failure=None,
        trained_tokens=0,
        billable_gpu_ms=50_000,
        lost_gpu_ms=0,
        released_gpu_ms=0,
        created_at=0,
    )
    trained = ended(1, "train", 20_000, "succeeded")
    scored = ended(2, "eval", 50_000, "succeeded")
    events = (SUBMITTED, HELD, placed(1), trained, placed(2, EVAL), scored, finished)
    row = only(folded("job", *events), JOBS)
    assert (row.train_gpu_ms, row.billable_gpu_ms, row.attempt) == (20_000, 50_000, 2)
    assert row.train_attempt == 1


class Counted:
    """Views that count how often they are read."""

    def __init__(self, rows: Sequence[JobRow]) -> None:
        self.rows, self.reads = rows, 0

    async def page(self, *_: object, **__: object) -> Sequence[JobRow]:
        self.reads += 1
        return self.rows


class Standing:
    now = 0

    def monotonic_ms(self) -> int:
        return self.now


async def test_first_hour_07_past_jobs_are_not_read_for_each_submission() -> None:
    views, clock = Counted([past_job(5_000, 2, 2)] * SAMPLES_MIN), Standing()
    past = PastJobs(views, clock)  # type: ignore[arg-type]  # all that it reads of both
    pace = await past.pace(SPEC, TOKENS)
    assert pace is not None
    assert abs(pace.train_ppm - 2_000_000) <= 200
    assert await past.pace(SPEC, TOKENS) == pace
    assert views.reads == 1
    clock.now = KEPT_MS + 1
    await past.pace(SPEC, TOKENS)
    assert views.reads == 2
