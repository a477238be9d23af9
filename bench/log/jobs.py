"""Commands of the lives of many jobs, and the journal that the real decider makes of them.

Three of five jobs are trained, evaluated and registered; two are paused, resumed and cancelled
while they wait. That makes ten commands a job, and a journal like a scheduler's after a month.
"""

from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any, Final
from uuid import uuid4

import msgspec
from msgspec import structs

from schemas.account import Limits, PlanTerms
from schemas.dataset import BaseTokens, Prepared
from schemas.envelope import Claim, Envelope, Idempotency, Message, Source
from schemas.job import (
    CancelJob,
    PauseJob,
    RecordBase,
    RecordCheckpoint,
    RecordClosed,
    RecordDataset,
    RecordGranted,
    RecordRegistered,
    RecordStarted,
    RecordUsage,
    RecordVerdict,
    ResumeJob,
    SetLimits,
    SubmitJob,
)
from schemas.model import Base
from schemas.pool import AttemptEnd, Role
from schemas.reasons import ending
from schemas.submission import JobSpec, Price
from schemas.training import (
    AttemptStart,
    BlobFile,
    Checkpoint,
    EvalResult,
    HyperParameters,
    TrainResult,
)
from schemas.units import HOUR_MS, Ms
from services.scheduler.app import JOBS
from simulator.control_plane.samples import PASSED
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.codec import encode
from tunery.runtime.journal.decision import decide_record
from tunery.runtime.tools.verify import replay

PARTITION: Final = 0
TENANTS: Final = 20
COMMANDS_OF_JOB: Final = 10  # on average
BEGIN_MS: Final[Ms] = 1_793_000_000_000
SPACING_MS: Final[Ms] = 1_000  # so that all of it lies within the 30 days that keys are remembered
BASE: Final = Base(
    base_id="bench-base",
    sha256="b" * 64,
    path="/models/bench-base",
    parameters=134_515_008,
    context_length=8_192,
    family="llama",
    licence="apache-2.0",
    hidden_size=576,
)
PREPARED: Final = Prepared(
    version="instructions@3",
    train_blob="prepared/train",
    train_sha256="1" * 64,
    validation_blob="prepared/validation",
    validation_sha256="2" * 64,
    prompts_blob="prepared/prompts",
    prompts_sha256="3" * 64,
    train_rows=9_000,
    validation_rows=1_000,
    packed_rows=2_000,
    tokens=2_000_000,
    trainable_tokens=1_000_000,
)
ADAPTER: Final = BlobFile(
    name="adapter_model.safetensors", blob="adapters/a", sha256="4" * 64, bytes=3_000_000
)
SPEC: Final = JobSpec(
    base=BASE,
    training_file="file-bench",
    validation_file=None,
    hyper=HyperParameters(
        n_epochs=3,
        batch_size=8,
        learning_rate_ppb=200_000,
        rank=16,
        alpha=32,
        dropout_ppm=0,
        warmup_ppm=30_000,
        weight_decay_ppm=0,
        max_length=2_048,
        seed=1,
    ),
    auto=("batch_size", "learning_rate_multiplier"),
    length_policy="truncate",
    validation_fraction_ppm=100_000,
    slots=1,
    pool="default",
    suffix=None,
    metadata=None,
    series="bench-line",
    model_id="ft:bench-base:bench",
    price=Price(version="2026-11", currency="EUR", gpu_hour_micro=2_000_000),
)


def tenants() -> tuple[str, ...]:
    """Names whose streams are all in `PARTITION`."""
    names = (f"tenant-{number}" for number in count())
    return tuple(islice((n for n in names if partition_of(n.encode()) == PARTITION), TENANTS))


def commands(jobs: int) -> Iterator[Record]:
    """Command records of all these jobs, one job after the other, with offsets from 0."""
    offsets = count()
    names = tenants()
    for tenant in names:
        yield _record(next(offsets), tenant, _limits(), client=False)
    for number in range(jobs):
        tenant, job_id = names[number % TENANTS], f"ftjob-{number:08d}"
        if number % 5 < 3:
            yield _record(next(offsets), tenant, _submit(job_id), client=True)
            for fact in _trained(job_id):
                yield _record(next(offsets), tenant, fact, client=False)
        else:
            for asked in _cancelled(job_id):
                yield _record(next(offsets), tenant, asked, client=True)


def journal(records: Iterator[Record]) -> Iterator[bytes]:
    """The journal partition: an owner's claim, then the real decider's entry for each command."""
    claim = encode(Claim(owner="bench", nonce="0"))
    yield claim
    fold = replay(JOBS, PARTITION, [Record(PARTITION, 0, BEGIN_MS, b"", claim)]).fold
    for record in records:
        decided = decide_record(JOBS, fold, record, fold.position.offset)
        yield decided.value
        fold = decided.fold


def _record(offset: int, tenant: str, body: Message, *, client: bool) -> Record:
    """A client's command has an idempotency key, a reaction its source, as in production."""
    mark = Idempotency(key=uuid4().hex * 2, body=uuid4().hex * 2) if client else None
    envelope = Envelope(
        id=str(uuid4()),
        key=tenant,
        tenant=tenant,
        body=msgspec.Raw(msgspec.json.encode(body)),
        source=None if client else Source("pool", PARTITION, 0, offset, 0),
        idempotency=mark,
        correlation=str(uuid4()),
    )
    at = BEGIN_MS + offset * SPACING_MS
    return Record(PARTITION, offset, at, tenant.encode(), encode(envelope))


def _limits() -> SetLimits:
    limits = Limits(soft_gpu_ms=2**52, hard_gpu_ms=2**52, concurrency=10_000)
    terms = PlanTerms(lane="standard", limits=limits, price_version=SPEC.price.version)
    return SetLimits(terms=terms)


def _submit(job_id: str) -> SubmitJob:
    tokens = BaseTokens(
        base_id=BASE.base_id,
        base_sha256=BASE.sha256,
        tokens=PREPARED.tokens,
        trainable_tokens=PREPARED.trainable_tokens,
        longest_row_tokens=1_500,
    )
    return SubmitJob(job_id=job_id, spec=SPEC, tokens=tokens)


def _cancelled(job_id: str) -> Sequence[Message]:
    return (
        _submit(job_id),
        PauseJob(job_id=job_id),
        ResumeJob(job_id=job_id),
        CancelJob(job_id=job_id),
    )


def _trained(job_id: str) -> Sequence[Message]:
    hour = BEGIN_MS // HOUR_MS
    trained = TrainResult(
        adapter=(ADAPTER,),
        config_sha256="5" * 64,
        steps=750,
        tokens=6_000_000,
        final_loss_ppm=800_000,
    )
    scored = EvalResult(scores=structs.replace(ADAPTER, name="scores.json"))
    return (
        RecordDataset(job_id=job_id, prepared=PREPARED),
        RecordBase(job_id=job_id, base=BASE),
        RecordGranted(job_id=job_id, attempt=1, node_ids=("node-1",)),
        RecordStarted(job_id=job_id, attempt=1, start=_start(750)),
        RecordCheckpoint(job_id=job_id, checkpoint=_checkpoint(job_id)),
        RecordUsage(job_id=job_id, attempt=1, hour_utc=hour, gpu_ms=600_000),
        _closed(job_id, 1, "train", trained),
        RecordGranted(job_id=job_id, attempt=2, node_ids=("node-1",)),
        RecordStarted(job_id=job_id, attempt=2, start=_start(200)),
        RecordUsage(job_id=job_id, attempt=2, hour_utc=hour, gpu_ms=60_000),
        _closed(job_id, 2, "eval", scored),
        RecordVerdict(job_id=job_id, summary=PASSED),
        RecordRegistered(job_id=job_id, model_id=SPEC.model_id),
    )


def _checkpoint(job_id: str) -> Checkpoint:
    return Checkpoint(
        attempt=1,
        step=400,
        epoch_ppm=1_600_000,
        tokens=3_200_000,
        manifest_sha256=job_id.encode().hex().rjust(64, "0"),
        files=(ADAPTER,),
        captured_ms=300_000,
    )


def _start(total_steps: int) -> AttemptStart:
    return AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=total_steps)


def _closed(job_id: str, attempt: int, role: Role, result: Any) -> RecordClosed:
    spent = 600_000 if role == "train" else 60_000
    return RecordClosed(
        job_id=job_id,
        attempt=attempt,
        role=role,
        end=AttemptEnd(
            outcome="succeeded",
            ended_by="training",
            reason=ending("exited"),
            result=result,
            node_ids=("node-1",),
            used_gpu_ms=spent,
            billable_gpu_ms=spent,
        ),
    )
