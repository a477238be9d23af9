"""`job`: a job that is paused, loses its machine and succeeds; and jobs that do not."""

from typing import Any

from msgspec.structs import replace

from schemas.account import Limits, PlanTerms
from schemas.admission import (
    TENANT_BUDGET,
    BudgetTerms,
    RecordAnswers,
    RemoveBudget,
    SetBudget,
    SetSuspension,
)
from schemas.anomaly import Anomaly, AnomalyKind, RecordAnomaly
from schemas.answers import AnswerCost
from schemas.benchmark import Benchmark
from schemas.envelope import Source, Tick
from schemas.erasure import CloseJobs
from schemas.gate import GateComparison
from schemas.integrations import Integration, MirrorReport, RecordMirror
from schemas.job import (
    CancelJob,
    PauseJob,
    RecordBase,
    RecordCheckpoint,
    RecordClosed,
    RecordDataset,
    RecordDraining,
    RecordFile,
    RecordGranted,
    RecordLook,
    RecordRegistered,
    RecordStarted,
    RecordUsage,
    RecordVerdict,
    RecordWait,
    ResumeJob,
    SetLimits,
    SubmitJob,
)
from schemas.model import ScoreSummary
from schemas.pool import AttemptEnd, EndAuthor, Role
from schemas.reasons import Failure, ending, failing, judging, rejecting, skipping, waiting
from schemas.serving import RemoveServingPool, ReplicaTerms, ServingPoolTerms, SetServingPool
from schemas.submission import Budget, EvaluationTerms, JobSpec, Price
from schemas.sweep import CancelSweep, SubmitSweep, SweepRun, SweepTerms
from schemas.training import (
    AdapterStart,
    AttemptOutcome,
    AttemptStart,
    Checkpoint,
    EvalResult,
    FailureCause,
    HyperParameters,
    SkippedCheckpoint,
    TrainResult,
)
from schemas.units import DAY_MS, HOUR_MS, hour_of
from tests.histories.recorder import BEGAN, Recorder
from tests.histories.stories.dataset import PREPARED, TOKENS
from tests.histories.stories.model import BASE, FILE

MINUTE_MS = 60_000
AUTHORS: dict[AttemptOutcome, EndAuthor] = {
    "succeeded": "training",
    "failed": "training",
    "lost": "node",
    "preempted": "tenant",
    "not_started": "tenant",
}
HYPER = HyperParameters(
    n_epochs=2,
    batch_size=4,
    learning_rate_ppb=200_000,
    rank=16,
    alpha=32,
    dropout_ppm=0,
    warmup_ppm=30_000,
    weight_decay_ppm=0,
    max_length=512,
    seed=1,
)
TRAINED = TrainResult(
    adapter=(FILE,), config_sha256="5" * 64, steps=40, tokens=36_000, final_loss_ppm=800_000
)
SCORED = EvalResult(scores=FILE)
PASSED = ScoreSummary(
    verdict="pass",
    reasons=(judging("drop_excluded", change_ppm=25_000, items=200, p_ppm=400_000),),
    items=200,
    base_correct=80,
    adapter_correct=85,
    p_value_ppm=400_000,
    base_loss_ppm=2_000_000,
    adapter_loss_ppm=1_000_000,
    base_exact_match_ppm=0,
    adapter_exact_match_ppm=250_000,
)
COMPARED = GateComparison(
    verdict="inconclusive",
    items=1_000,
    worse=30,
    better=20,
    p_ppm=101_319,
    adjusted_p_ppm=101_319,
    bound_ppm=22_000,
    drop_max_ppm=20_000,
    alpha_ppm=50_000,
    smallest_ppm=20_000,
    benchmark="mmlu",
)
WRONG_ROWS = Failure(
    code="invalid_training_file",
    reason=rejecting("row_invalid", row=7, finding="invalid_json", errors=3, file_id="file-1"),
)


def limits(story: Recorder) -> None:
    month = Limits(soft_gpu_ms=HOUR_MS, hard_gpu_ms=1_000 * HOUR_MS, concurrency=3)
    story.when(SetLimits(terms=PlanTerms(lane="standard", limits=month, price_version="2026-11")))


def submit(
    story: Recorder, number: int, *, counted: bool = True, training_file: str = "file-1"
) -> SubmitJob:
    spec = JobSpec(
        base=BASE,
        training_file=training_file,
        validation_file=None,
        hyper=HYPER,
        auto=("rank",),
        length_policy="reject",
        validation_fraction_ppm=100_000,
        slots=1,
        pool="default",
        suffix=story.seal("annes-bot"),
        metadata=story.seal('{"owner": "night shift"}'),
        series="smol/acme",
        model_id=f"ft:smol:{number}",
        price=Price(version="2026-11", currency="EUR", gpu_hour_micro=2_000_000),
    )
    return SubmitJob(job_id=f"ftjob-{number}", spec=spec, tokens=TOKENS if counted else None)


def bound(story: Recorder, job_id: str) -> None:
    """Facts from reactions, one of them sent twice."""
    offset = story.fold.position.offset
    prepared = RecordDataset(job_id=job_id, prepared=PREPARED)
    for _ in range(2):
        story.when(prepared, source=Source("dataset", 1, 0, offset, 0))
    story.when(RecordBase(job_id=job_id, base=BASE), source=Source("model", 1, 0, offset, 0))


def started(
    story: Recorder, attempt: int, step: int = 0, skipped: tuple[SkippedCheckpoint, ...] = ()
) -> None:
    story.when(RecordGranted(job_id="ftjob-1", attempt=attempt, node_ids=("n1",)))
    start = AttemptStart(loaded=None, loaded_step=step, skipped=skipped, total_steps=40)
    story.when(RecordStarted(job_id="ftjob-1", attempt=attempt, start=start))


def checkpoint(attempt: int, step: int) -> RecordCheckpoint:
    recorded = Checkpoint(
        attempt=attempt,
        step=step,
        epoch_ppm=step * 50_000,
        tokens=900 * step,
        manifest_sha256=f"{step:064x}",
        files=(FILE,),
        captured_ms=step * 10_000,
    )
    return RecordCheckpoint(job_id="ftjob-1", checkpoint=recorded)


def closed(
    story: Recorder,
    attempt: int,
    outcome: AttemptOutcome,
    *,
    job_id: str = "ftjob-1",
    role: Role = "train",
    cause: FailureCause | None = None,
    lost: int = 0,
    result: TrainResult = TRAINED,
) -> tuple[Any, ...]:
    left = result if role == "train" else SCORED
    return story.when(
        RecordClosed(
            job_id=job_id,
            attempt=attempt,
            role=role,
            end=AttemptEnd(
                outcome=outcome,
                ended_by=AUTHORS[outcome],
                reason=ending("exited"),
                cause=cause,
                detail=story.seal("row 7 says: 12 High Street") if cause else None,
                result=left if outcome == "succeeded" else None,
                node_ids=("n1",),
                used_gpu_ms=MINUTE_MS,
                billable_gpu_ms=MINUTE_MS,
                lost_gpu_ms=lost,
            ),
        )
    )


def used(story: Recorder, gpu_ms: int) -> None:
    line = RecordUsage(job_id="ftjob-1", attempt=1, hour_utc=hour_of(BEGAN), gpu_ms=gpu_ms)
    story.when(line, source=Source("pool", 5, 0, 100 + story.fold.position.offset, 0))


def plans_and_suspension(story: Recorder) -> None:
    """Limits of the next month, and a tenant that may not start jobs for a while."""
    limits(story)
    month = Limits(soft_gpu_ms=HOUR_MS, hard_gpu_ms=10 * HOUR_MS, concurrency=1)
    premium = PlanTerms(lane="premium", limits=month, price_version="2026-11")
    story.when(SetLimits(terms=premium, effective_at=BEGAN + 30 * DAY_MS))
    story.when(SetSuspension(suspended=True))
    story.when(submit(story, 1))
    story.when(SetSuspension(suspended=False))
    story.when(submit(story, 2))
    story.when(submit(story, 3), after_ms=31 * DAY_MS)


def budgets_of_a_month(story: Recorder) -> None:
    """Budgets of a tenant and of a key: set, used, reached, removed."""
    limits(story)
    story.when(replace(submit(story, 1), key_id="key_1"))
    of_all = BudgetTerms(budget_id=TENANT_BUDGET, currency="EUR", max_amount_micro=5_000_000)
    of_key = BudgetTerms(budget_id="key_1", currency="EUR", max_gpu_ms=HOUR_MS)
    story.when(SetBudget(terms=of_all))
    story.when(SetBudget(terms=of_key))
    used(story, MINUTE_MS)
    story.when(replace(submit(story, 2), key_id="key_1"))
    story.when(CancelJob(job_id="ftjob-1"))
    used(story, -MINUTE_MS)
    story.when(RemoveBudget(budget_id="key_1"))


def budgets_that_answers_reach(story: Recorder) -> None:
    """Answers to two keys, in two currencies; some turn out to be from memory; the month turns."""
    limits(story)
    story.when(
        SetBudget(terms=BudgetTerms(budget_id="key_1", currency="EUR", max_amount_micro=100))
    )
    cost = AnswerCost(key_id="key_1", currency="EUR", micro=60, millionths=700_000)
    others = replace(cost, key_id="key_2", currency="USD")
    for costs in ((cost, others), (cost,), (replace(cost, micro=-2),)):
        story.when(RecordAnswers(hour_utc=hour_of(story.at), costs=costs))
    story.when(replace(submit(story, 1), key_id="key_1"))
    late = RecordAnswers(hour_utc=hour_of(story.at), costs=(cost,))
    story.when(late, after_ms=31 * DAY_MS)


def sweep_run(trial: int, rung: int) -> SweepRun:
    job_id = f"ftjob-{trial}{rung}"
    hyper = replace(HYPER, rank=8 * (trial + 1), max_steps=10 * (rung + 1))
    return SweepRun(job_id=job_id, model_id=f"ft:smol:{trial}{rung}", hyper=hyper)


def scored(
    story: Recorder, job_id: str, loss_ppm: int, trained: TrainResult = TRAINED, attempt: int = 1
) -> None:
    """A job of a sweep from its inputs, or from a later attempt, to its end."""
    if attempt == 1:
        bound(story, job_id)
    story.when(RecordGranted(job_id=job_id, attempt=attempt, node_ids=("n1",)))
    closed(story, attempt, "succeeded", job_id=job_id, result=trained)
    closed(story, attempt + 1, "succeeded", job_id=job_id, role="eval")
    summary = replace(PASSED, adapter_loss_ppm=loss_ppm)
    story.when(RecordVerdict(job_id=job_id, summary=summary))
    story.when(RecordRegistered(job_id=job_id, model_id=f"ft:smol:{job_id[-2:]}"))


def a_sweep_in_two_rungs(story: Recorder) -> None:
    """The better of two configurations would go on, but the budget is used up; another sweep is
    cancelled.
    """
    limits(story)
    terms = SweepTerms(
        sweep_id="sweep-1",
        method="halving",
        spec=submit(story, 1).spec,
        trials=tuple((sweep_run(trial, 0), sweep_run(trial, 1)) for trial in range(2)),
        tokens=TOKENS,
        survivors=(1,),
        budget=Budget(max_gpu_ms=33 * MINUTE_MS),
        key_id="key_1",
    )
    story.when(SubmitSweep(terms=terms))
    scored(story, "ftjob-00", 900_000)
    scored(story, "ftjob-10", 700_000)
    other = replace(
        terms, sweep_id="sweep-2", trials=((sweep_run(5, 0),),), survivors=(), budget=None
    )
    story.when(SubmitSweep(terms=other))
    story.when(CancelSweep(sweep_id="sweep-2"))
    story.when(CancelSweep(sweep_id="sweep-2"))  # it has ended


def configurations_that_take_turns(story: Recorder) -> None:
    """Three in two jobs, one of which runs out of memory; the best two go on in one."""
    limits(story)
    terms = SweepTerms(
        sweep_id="sweep-1",
        method="halving",
        spec=submit(story, 1).spec,
        trials=tuple((sweep_run(trial, 0), sweep_run(trial, 1)) for trial in range(3)),
        tokens=TOKENS,
        survivors=(2,),
        at_once=2,
        colocate=2,
    )
    story.when(SubmitSweep(terms=terms))
    scored(story, "ftjob-00", 900_000, replace(TRAINED, variant=0, losses_ppm=(910_000,)))
    bound(story, "ftjob-10")
    story.when(RecordGranted(job_id="ftjob-10", attempt=1, node_ids=("n1",)))
    closed(story, 1, "failed", cause="oom", job_id="ftjob-10")
    second = replace(TRAINED, variant=1, losses_ppm=(None, 700_000))
    scored(story, "ftjob-10", 690_000, second, attempt=2)
    both = replace(TRAINED, variant=0, losses_ppm=(600_000, 650_000))
    scored(story, "ftjob-21", 610_000, both)


def a_serving_pool_that_is_renewed(story: Recorder) -> None:
    """Two replicas: one reaches its cap, one is lost; the month ends them, and it is removed."""
    limits(story)
    replica = ReplicaTerms(
        base=BASE, pool="default", slots=1, memory_bytes=2_000_000_000, term_ms=10 * MINUTE_MS
    )
    price = submit(story, 1).spec.price
    terms = ServingPoolTerms(
        serving_pool_id="sp_1", replicas=2, replica=replica, price=price, key_id="key_1"
    )
    story.when(SetServingPool(terms=terms))
    story.when(RecordDraining(job_id="sp_1-1", attempt=1))
    story.when(served("sp_1-1", "failed", "budget"))
    story.when(served("sp_1-2", "lost"))
    story.when(SetServingPool(terms=replace(terms, replicas=1)))
    story.when(served("sp_1-4", "preempted"))
    story.when(SetSuspension(suspended=True))
    story.when(served("sp_1-3", "failed", "platform"))
    story.when(SetSuspension(suspended=False))
    story.when(RemoveServingPool(serving_pool_id="sp_1"))


def what_waits_for_another_month(story: Recorder) -> None:
    """A month is used up: a serving pool and a sweep go on in the next, until the plan changes."""
    month = Limits(soft_gpu_ms=HOUR_MS, hard_gpu_ms=HOUR_MS, concurrency=3)
    price = submit(story, 1).spec.price
    plan = PlanTerms(lane="standard", limits=month, price_version="2026-11", price=price)
    story.when(SetLimits(terms=plan))
    replica = ReplicaTerms(
        base=BASE, pool="default", slots=1, memory_bytes=2_000_000_000, term_ms=10 * MINUTE_MS
    )
    terms = ServingPoolTerms(serving_pool_id="sp_1", replicas=1, replica=replica, price=price)
    story.when(SetServingPool(terms=terms))
    sweep = SweepTerms(
        sweep_id="sweep-1",
        method="grid",
        spec=submit(story, 1).spec,
        trials=((sweep_run(0, 0),), (sweep_run(1, 0),), (sweep_run(2, 0),)),
        tokens=TOKENS,
    )
    story.when(SubmitSweep(terms=sweep))
    used(story, HOUR_MS)
    story.when(CancelJob(job_id="ftjob-00"))
    story.when(served("sp_1-1", "lost"))
    story.when(Tick(), after_ms=30 * DAY_MS)
    cheaper = replace(price, version="2026-12", gpu_hour_micro=1_000_000)
    later = replace(plan, price_version="2026-12", price=cheaper)
    story.when(SetLimits(terms=later))
    story.when(served("sp_1-2", "lost"))
    story.when(CancelJob(job_id="ftjob-10"))


def served(
    term_id: str, outcome: AttemptOutcome, cause: FailureCause | None = None
) -> RecordClosed:
    end = AttemptEnd(
        outcome=outcome,
        ended_by=AUTHORS[outcome],
        reason=ending("exited"),
        cause=cause,
        node_ids=("n1",),
        used_gpu_ms=MINUTE_MS,
        billable_gpu_ms=MINUTE_MS,
    )
    return RecordClosed(job_id=term_id, attempt=1, role="serve", end=end)


def a_job_that_succeeds(story: Recorder) -> None:
    """A job waits, loses its machine, is paused and resumed, and passes the gate."""
    limits(story)
    story.when(submit(story, 1))
    bound(story, "ftjob-1")
    story.when(RecordWait(job_id="ftjob-1", attempt=1, reason=waiting("no_capacity", slots=1)))
    started(story, 1)
    story.when(checkpoint(1, 10))
    used(story, MINUTE_MS)
    closed(story, 1, "lost", lost=20_000)
    used(story, -20_000)
    started(
        story,
        2,
        10,
        (SkippedCheckpoint(manifest_sha256="7" * 64, reason=skipping("blob_corrupt")),),
    )
    story.when(PauseJob(job_id="ftjob-1"))
    story.when(RecordDraining(job_id="ftjob-1", attempt=2))
    story.when(checkpoint(2, 20))
    closed(story, 2, "preempted")
    story.when(ResumeJob(job_id="ftjob-1"))
    started(story, 3, 20)
    closed(story, 3, "succeeded")
    started(story, 4)
    closed(story, 4, "succeeded", role="eval")
    story.when(RecordVerdict(job_id="ftjob-1", summary=PASSED))
    story.when(RecordRegistered(job_id="ftjob-1", model_id="ft:smol:1"))
    story.when(CancelJob(job_id="ftjob-1"))  # too late


def jobs_that_only_evaluate(story: Recorder) -> None:
    """An adapter of elsewhere becomes a version, which the gate then judges again."""
    limits(story)
    for number, evaluation in (
        (1, EvaluationTerms(imported=True)),
        (2, EvaluationTerms(imported=False, prepared=PREPARED)),
    ):
        job_id = f"ftjob-{number}"
        command = submit(story, number, training_file="")
        start = AdapterStart(model_id="ft:smol:1", sha256=FILE.sha256, files=(FILE,))
        spec = replace(command.spec, model_id="ft:smol:1", start=start, evaluation=evaluation)
        story.when(replace(command, spec=spec))
        offset = story.fold.position.offset
        story.when(RecordBase(job_id=job_id, base=BASE), source=Source("model", 1, 0, offset, 0))
        story.when(RecordGranted(job_id=job_id, attempt=1, node_ids=("n1",)))
        closed(story, 1, "succeeded", job_id=job_id, role="eval")
        story.when(RecordVerdict(job_id=job_id, summary=PASSED))
        story.when(RecordRegistered(job_id=job_id, model_id="ft:smol:1"))


def a_verdict_in_two_looks(story: Recorder) -> None:
    """The first half of the items is inconclusive, and reported twice; then the job is paused."""
    limits(story)
    command = submit(story, 1)
    asked = Benchmark(
        name="mmlu",
        task="mmlu",
        kind="choices",
        sha256="6" * 64,
        blob="b",
        bytes=9_000,
        items=4_000,
    )
    spec = replace(
        command.spec, benchmarks=(asked,), benchmark_items=2_000, looks_ppm=(500_000, 1_000_000)
    )
    story.when(replace(command, spec=spec))
    bound(story, "ftjob-1")
    closed(story, 1, "succeeded")
    started(story, 2)
    closed(story, 2, "succeeded", role="eval")
    story.when(PauseJob(job_id="ftjob-1"))
    look = RecordLook(job_id="ftjob-1", look=1, comparisons=(COMPARED,))
    story.when(look)
    story.when(look)
    story.when(ResumeJob(job_id="ftjob-1"))
    started(story, 3)
    closed(story, 3, "succeeded", role="eval")
    story.when(RecordVerdict(job_id="ftjob-1", summary=PASSED))  # of the look before
    at_second = replace(PASSED, comparisons=(COMPARED,), look=2, looks_ppm=spec.looks_ppm)
    story.when(RecordVerdict(job_id="ftjob-1", summary=at_second))
    story.when(RecordRegistered(job_id="ftjob-1", model_id="ft:smol:1"))


def jobs_that_fail(story: Recorder) -> None:
    """A bad file, bad data, no memory, a cancelled one; and one too many."""
    unprepared = Failure(
        code="invalid_training_file",
        reason=failing("rows_unpreparable"),
        detail=story.seal("row 7 says: 12 High Street"),
    )
    limits(story)
    story.when(submit(story, 1, counted=False))
    story.when(RecordFile(file_id="file-1", accepted=False, tokens=(), failure=WRONG_ROWS))
    story.when(submit(story, 2, counted=False, training_file="file-2"))
    story.when(RecordFile(file_id="file-2", accepted=True, tokens=(TOKENS,)))
    story.when(submit(story, 3))
    story.when(submit(story, 4))
    story.when(submit(story, 5))  # above the limit of concurrency
    story.when(RecordDataset(job_id="ftjob-4", prepared=None, failure=unprepared))
    for number in (2, 3):
        bound(story, f"ftjob-{number}")
    closed(story, 1, "failed", job_id="ftjob-2", cause="oom")
    closed(story, 2, "failed", job_id="ftjob-2", cause="bad_data")
    story.when(CancelJob(job_id="ftjob-3"))
    closed(story, 1, "preempted", job_id="ftjob-3")


def jobs_of_an_erased_tenant(story: Recorder) -> None:
    """One job holds slots when its tenant is erased, one waits; the last end is the end of all."""
    limits(story)
    story.when(submit(story, 1))
    bound(story, "ftjob-1")
    started(story, 1)
    story.when(submit(story, 2))
    story.when(CloseJobs())
    story.when(submit(story, 3))
    closed(story, 1, "preempted")
    story.when(CloseJobs())


def anomalies_of_an_attempt(story: Recorder) -> None:
    """One is sent twice, one is of an attempt that has ended, and one comes after the job's end."""
    limits(story)
    story.when(submit(story, 1))
    bound(story, "ftjob-1")
    started(story, 1)
    noted(story, "loss_spike", 1)
    noted(story, "loss_spike", 1)
    noted(story, "stuck", 1)
    closed(story, 1, "preempted")
    started(story, 2)
    noted(story, "throughput_drop", 1)
    noted(story, "gpu_idle", 2)
    story.when(CancelJob(job_id="ftjob-1"))
    closed(story, 2, "preempted")
    noted(story, "stuck", 2)


def noted(story: Recorder, kind: AnomalyKind, attempt: int) -> None:
    seen = Anomaly(kind=kind, attempt=attempt, window=BEGAN, measured_ppm=9, usual_ppm=1)
    story.when(RecordAnomaly(job_id="ftjob-1", anomaly=seen))


def a_job_whose_figures_go_to_mlflow(story: Recorder) -> None:
    limits(story)
    asked = Integration(kind="mlflow", settings=story.seal('{"experiment": "lamps"}'))
    submitted = submit(story, 1)
    story.when(replace(submitted, spec=replace(submitted.spec, integrations=(asked,))))
    bound(story, "ftjob-1")
    mirrored(story, MirrorReport(kind="mlflow", status="failing", cause="refused", http_status=401))
    story.when(CancelJob(job_id="ftjob-1"))
    mirrored(story, MirrorReport(kind="mlflow", status="written"))


def mirrored(story: Recorder, report: MirrorReport) -> None:
    story.when(RecordMirror(job_id="ftjob-1", report=report))
