"""Events of one job's life."""

from schemas.dataset import BaseTokens
from schemas.job import (
    AttemptEnded,
    AttemptStarted,
    CheckpointRecorded,
    HoldTaken,
    JobEnded,
    JobSubmitted,
    PhaseSet,
    PlacementWanted,
    VerdictRecorded,
    WaitNoted,
)
from schemas.model import ScoreSummary
from schemas.pool import AttemptEnd, Placement
from schemas.reasons import ending, judging, waiting
from schemas.submission import JobSpec, Price
from schemas.training import (
    AttemptStart,
    Checkpoint,
    EvalWork,
    SkippedCheckpoint,
    TrainWork,
    work_id_of,
)
from simulator.control_plane.samples import PREPARED
from tests.unit.services.gateway.bases import BASE
from tunery.plan.estimate import estimate
from tunery.plan.hyperparameters import resolve

JOB = "ftjob-1"
TOKENS = BaseTokens(
    base_id=BASE.base_id,
    base_sha256=BASE.sha256,
    tokens=20_000,
    trainable_tokens=9_000,
    longest_row_tokens=100,
)
HYPER, AUTO = resolve({"n_epochs": 2}, BASE, TOKENS, seed=7)
PRICE = Price(version="2026-11", currency="EUR", gpu_hour_micro=3_200_000)
SPEC = JobSpec(
    base=BASE,
    training_file="file-1",
    validation_file=None,
    hyper=HYPER,
    auto=AUTO,
    length_policy="reject",
    validation_fraction_ppm=100_000,
    slots=1,
    pool="default",
    suffix=None,
    metadata=None,
    series="tiny-llama/series",
    model_id="ft:tiny-llama:acme::12345678",
    price=PRICE,
)
SHA = "ab" * 32
CHECKPOINT = Checkpoint(
    attempt=1, step=6, epoch_ppm=0, tokens=600, manifest_sha256=SHA, files=(), captured_ms=9
)
SUBMITTED = JobSubmitted(job_id=JOB, spec=SPEC, lane="premium", price_version="2026-11")
HELD = HoldTaken(
    job_id=JOB,
    tokens=TOKENS,
    estimate=estimate(SPEC, TOKENS),
    overage=False,
)
TRAIN = TrainWork(
    base_id=BASE.base_id,
    base_sha256=BASE.sha256,
    base_path=BASE.path,
    prepared=PREPARED,
    hyper=HYPER,
)
EVAL = EvalWork(
    base_id=BASE.base_id,
    base_sha256=BASE.sha256,
    base_path=BASE.path,
    prepared=PREPARED,
    max_length=512,
    seed=7,
    adapter=(),
)
SUMMARY = ScoreSummary(
    verdict="pass",
    reasons=(judging("drop_excluded", change_ppm=50_000, items=200, p_ppm=400_000),),
    items=200,
    base_correct=100,
    adapter_correct=110,
    p_value_ppm=400_000,
    base_loss_ppm=3_000_000,
    adapter_loss_ppm=1_500_000,
    base_exact_match_ppm=0,
    adapter_exact_match_ppm=250_000,
)


def placed(attempt: int, work: TrainWork | EvalWork = TRAIN) -> PlacementWanted:
    placement = Placement(
        tenant="acme",
        job_id=JOB,
        attempt=attempt,
        role="eval" if isinstance(work, EvalWork) else "train",
        lane="premium",
        slots=1,
        max_gpu_ms=1_000_000,
        price_version="2026-11",
        work_id=work_id_of(work),
        checkpoints=(),
        excluded_nodes=(),
        first_submitted_at=1_000_000,
        p50_ms=100_000,
        p90_ms=1_000_000,
        device="cpu",
        memory_bytes=1_000_000_000,
    )
    return PlacementWanted(pool="default", placement=placement)


def started(
    attempt: int, loaded_step: int = 0, skipped: tuple[SkippedCheckpoint, ...] = ()
) -> AttemptStarted:
    start = AttemptStart(loaded=None, loaded_step=loaded_step, skipped=skipped, total_steps=20)
    return AttemptStarted(job_id=JOB, attempt=attempt, role="train", start=start)


LOST = AttemptEnded(
    job_id=JOB,
    attempt=1,
    role="train",
    end=AttemptEnd(
        outcome="lost",
        ended_by="node",
        reason=ending("node_lost"),
        node_ids=("a",),
        used_gpu_ms=90_000,
        billable_gpu_ms=90_000,
        lost_gpu_ms=30_000,
    ),
    job_billable_gpu_ms=90_000,
    job_lost_gpu_ms=30_000,
)
WHOLE_LIFE = (
    SUBMITTED,
    HELD,
    placed(1),
    PhaseSet(job_id=JOB, phase="queued", reason=waiting("placement")),
    WaitNoted(job_id=JOB, reason=waiting("no_capacity", slots=1)),
    PhaseSet(job_id=JOB, phase="running", node_ids=("a",)),
    started(1),
    CheckpointRecorded(job_id=JOB, checkpoint=CHECKPOINT, trained_tokens=600),
    LOST,
    placed(2),
    PhaseSet(job_id=JOB, phase="running", node_ids=("b",)),
    started(2, loaded_step=6),
    placed(3, EVAL),
    PhaseSet(job_id=JOB, phase="evaluating"),
    VerdictRecorded(job_id=JOB, summary=SUMMARY),
    JobEnded(
        job_id=JOB,
        outcome="succeeded",
        model_id=SPEC.model_id,
        failure=None,
        trained_tokens=36_000,
        billable_gpu_ms=400_000,
        lost_gpu_ms=30_000,
        released_gpu_ms=600_000,
        created_at=1_000_000,
    ),
)
