"""Messages for the scheduler's tests: plausible, small, each field changeable where it is used."""

from typing import Any

from msgspec.structs import replace

from schemas.account import Lane, Limits, PlanTerms
from schemas.dataset import BaseTokens, Prepared
from schemas.job import SetLimits, SubmitJob
from schemas.model import Base, ScoreSummary
from schemas.node import NodeDescription
from schemas.pool import (
    Placement,
    RegisterNode,
    RequestPlacement,
    Role,
)
from schemas.submission import JobSpec, Price
from schemas.training import (
    BlobFile,
    Checkpoint,
    EvalResult,
    HyperParameters,
    Result,
    TrainResult,
    TrainWork,
    WorkDescription,
    work_id_of,
)
from schemas.works import DescribeWork

POOL = "default"
T0 = 1_762_700_400_000 // 3_600_000 * 3_600_000  # a full UTC hour in November 2025
MINUTE = 60_000
BASE = Base(
    base_id="smol",
    sha256="b" * 64,
    path="/models/smol",
    parameters=134_515_008,
    context_length=8192,
    family="llama",
    licence="apache-2.0",
    hidden_size=576,
    layers=30,
    inner_size=1_536,
    vocabulary=49_152,
)
SLOT_BYTES = 10_000_000_000  # a training as in `spec` takes 8.5 of them
HYPER = HyperParameters(
    n_epochs=2,
    batch_size=4,
    learning_rate_ppb=2_000_000,
    rank=16,
    alpha=32,
    dropout_ppm=0,
    warmup_ppm=0,
    weight_decay_ppm=0,
    max_length=512,
    seed=1,
)
PREPARED = Prepared(
    version="v1",
    train_blob="t/train",
    train_sha256="1" * 64,
    validation_blob="t/validation",
    validation_sha256="2" * 64,
    prompts_blob="t/prompts",
    prompts_sha256="3" * 64,
    train_rows=90,
    validation_rows=10,
    packed_rows=40,
    tokens=20_000,
    trainable_tokens=10_000,
)
WORK = TrainWork(
    base_id=BASE.base_id,
    base_sha256=BASE.sha256,
    base_path=BASE.path,
    prepared=PREPARED,
    hyper=HYPER,
)
FILE = BlobFile(name="adapter_model.safetensors", blob="t/acme/a", sha256="4" * 64, bytes=10)
TRAINED = TrainResult(
    adapter=(FILE,), config_sha256="5" * 64, steps=40, tokens=40_000, final_loss_ppm=800_000
)
SCORED = EvalResult(scores=replace(FILE, name="scores.json"))


def file_of(tenant: str) -> BlobFile:
    return replace(FILE, blob=f"t/{tenant}/a")


def result_of(role: Role, tenant: str) -> Result:
    """Return the result that a successful lease of this role reports."""
    if role == "train":
        return replace(TRAINED, adapter=(file_of(tenant),))
    return replace(SCORED, scores=replace(file_of(tenant), name="scores.json"))


PASSED = ScoreSummary(
    verdict="pass",
    reasons=(),
    items=200,
    base_correct=80,
    adapter_correct=85,
    p_value_ppm=900_000,
    base_loss_ppm=2_000_000,
    adapter_loss_ppm=1_000_000,
    base_exact_match_ppm=0,
    adapter_exact_match_ppm=0,
)


def tokens(count: int = 20_000) -> BaseTokens:
    return BaseTokens(
        base_id=BASE.base_id,
        base_sha256=BASE.sha256,
        tokens=count,
        trainable_tokens=count // 2,
        longest_row_tokens=200,
    )


def limits(
    hard: int = 10**12,
    soft: int | None = None,
    concurrency: int = 100,
    lane: Lane = "standard",
    price_version: str = "2026-11",
) -> SetLimits:
    month = Limits(
        soft_gpu_ms=hard if soft is None else soft, hard_gpu_ms=hard, concurrency=concurrency
    )
    return SetLimits(terms=PlanTerms(lane=lane, limits=month, price_version=price_version))


def spec(**changes: Any) -> JobSpec:
    """A small training job; `changes` are fields of it."""
    whole = JobSpec(
        base=BASE,
        training_file="file-1",
        validation_file=None,
        hyper=HYPER,
        auto=(),
        length_policy="reject",
        validation_fraction_ppm=100_000,
        slots=1,
        pool=POOL,
        suffix=None,
        metadata=None,
        series="smol/series",
        model_id="ft:smol",
        price=Price(version="2026-11", currency="EUR", gpu_hour_micro=2_000_000, lane="standard"),
    )
    return replace(whole, **changes)


def submit(job_id: str = "ftjob-1", count: int | None = 20_000, **changes: Any) -> SubmitJob:
    counted = None if count is None else tokens(count)
    return SubmitJob(job_id=job_id, spec=spec(**changes), tokens=counted)


def node(node_id: str = "a", incarnation: str = "a-1", slots: int = 2) -> RegisterNode:
    described = NodeDescription(
        node_id=node_id,
        incarnation=incarnation,
        slots=slots,
        device="cpu",
        memory_bytes=SLOT_BYTES * slots,
        fabric=True,
    )
    return RegisterNode(node=described)


def describe(job_id: str = "ftjob-1") -> DescribeWork:
    """The work of `request`, which the pool must have before it."""
    described = WorkDescription(job_id=job_id, work_id=work_id_of(WORK), work=WORK)
    return DescribeWork(tenant="acme", description=described)


def request(job_id: str = "ftjob-1", attempt: int = 1, **changes: Any) -> RequestPlacement:
    """A request for one slot; `changes` are fields of it."""
    whole = Placement(
        tenant="acme",
        job_id=job_id,
        attempt=attempt,
        role="train",
        lane="standard",
        slots=1,
        max_gpu_ms=60 * MINUTE,
        price_version="2026-11",
        work_id=work_id_of(WORK),
        checkpoints=(),
        excluded_nodes=(),
        first_submitted_at=T0,
        p50_ms=10 * MINUTE,
        p90_ms=60 * MINUTE,
        device="cpu",
        memory_bytes=2_000_000_000,
    )
    return RequestPlacement(placement=replace(whole, **changes))


def checkpoint(
    step: int, attempt: int = 1, captured_ms: int = 0, mark: str = "", tenant: str = "acme"
) -> Checkpoint:
    """A checkpoint of one file. `mark` tells apart those of several jobs."""
    manifest = f"{mark}{attempt:x}{step:x}".rjust(64, "0")
    return Checkpoint(
        attempt=attempt,
        step=step,
        epoch_ppm=0,
        tokens=1_000 * step,
        manifest_sha256=manifest,
        files=(file_of(tenant),),
        captured_ms=captured_ms,
    )
