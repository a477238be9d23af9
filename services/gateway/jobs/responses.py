"""Fine-tuning jobs: OpenAI's fields first, then queue, progress, cost, gate; estimates, costs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from schemas.dataset import BaseTokens
from schemas.job import Estimate, JobSpec, Phase, Price, ScoreSummary, Wanted
from schemas.model import Verdict
from schemas.training import Device, HyperParameters
from schemas.units import PPM, Micro, Ms
from services.gateway.jobs.event_ids import finite
from services.gateway.jobs.statuses import JobStatus, job_status
from services.gateway.jobs.tables import (
    JOBS,
    CheckpointRow,
    JobChangeRow,
    JobRow,
    StepRow,
    UsageRow,
)
from services.gateway.models.responses import DownloadFileResponse, download_files
from services.gateway.web.responses import Item, Response, Unseal, seconds, seconds_or_none
from tunery.plan.estimate import over_budget
from tunery.plan.hyperparameters import resolve
from tunery.plan.price import line_micro, price_micro

WAITING: Final[frozenset[JobStatus]] = frozenset({"validating_files", "queued", "paused"})
AUTO: Final = "auto"
Auto = Literal["auto"]


class JobErrorResponse(Response):
    code: str
    message: str
    param: str | None


class TrainingParametersResponse(Response):
    """What OpenAI's object has no field for."""

    learning_rate: float
    rank: int
    alpha: int
    dropout: float
    max_length: int
    warmup_ratio: float
    weight_decay: float
    precision: str


class HyperparametersResponse(Response):
    """ "auto" is echoed until the job runs; then the resolved numbers, as OpenAI does it.

    learning_rate_multiplier: the learning rate over what the rule gives for this base and data.
    """

    batch_size: int | Auto
    learning_rate_multiplier: float | Auto
    n_epochs: int | Auto
    learning_rate: float
    rank: int
    alpha: int
    dropout: float
    max_length: int
    warmup_ratio: float
    weight_decay: float
    precision: str


class SupervisedResponse(Response):
    hyperparameters: HyperparametersResponse


class MethodResponse(Response):
    type: Literal["supervised"] = "supervised"
    supervised: SupervisedResponse


class QueueResponse(Response):
    """`eta`: when it is expected to begin, in epoch seconds."""

    position: int | None
    reason: str | None
    eta: int | None


class ProgressResponse(Response):
    step: int
    resumed_from_step: int | None
    total_steps: int
    percent: float
    train_loss: float | None
    seconds_remaining: int | None


class CostSummaryResponse(Response):
    """What ended attempts have used. Amounts in millionths of the currency."""

    currency: str
    price_version: str
    billable_gpu_ms: int
    credited_gpu_ms: int
    amount_micro: int
    estimated_amount_micro: int | None
    amount_max_micro: int | None
    hold_gpu_ms: int | None
    released_gpu_ms: int | None


class EvalSettingsResponse(Response):
    validation_fraction: float
    drop_max: float | None


class ScoresResponse(Response):
    """Shares as fractions; null: not measured, because there were no validation rows."""

    accuracy: float | None
    loss: float | None
    exact_match: float | None


class GateResponse(Response):
    verdict: Verdict
    reasons: list[str]
    advice: str | None
    items: int
    base: ScoresResponse
    adapter: ScoresResponse
    p_value: float


class ProvenanceResponse(Response):
    base_model: str
    dataset_version: str | None
    training_sha256: str | None
    config_sha256: str | None
    scores_sha256: str | None
    seed: int
    attempts: int | None


class JobResponse(Item):
    id: str
    object: Literal["fine_tuning.job"] = "fine_tuning.job"
    created_at: int
    error: JobErrorResponse | None
    estimated_finish: int | None
    fine_tuned_model: str | None
    finished_at: int | None
    hyperparameters: HyperparametersResponse
    integrations: list[Any]
    metadata: dict[str, str] | None
    method: MethodResponse
    model: str
    organization_id: str
    result_files: list[str]
    seed: int
    status: JobStatus
    trained_tokens: int | None
    training_file: str
    user_provided_suffix: str | None
    validation_file: str | None
    phase: Phase
    wanted: Wanted
    lane: str
    attempt: int | None
    node: str | None
    queue: QueueResponse | None
    progress: ProgressResponse | None
    cost: CostSummaryResponse
    eval: EvalSettingsResponse
    gate: GateResponse | None
    provenance: ProvenanceResponse


class PriceResponse(Response):
    version: str
    currency: str
    gpu_hour_micro: int
    token_micro_per_million: int


class EstimateParametersResponse(TrainingParametersResponse):
    n_epochs: int
    batch_size: int


class NoEstimateResponse(Response):
    """The training file is being validated, so the job's size is not known yet."""

    object: Literal["fine_tuning.job.estimate"] = "fine_tuning.job.estimate"
    model: str
    estimation_available: bool
    unavailable_reason: str | None
    hyperparameters: EstimateParametersResponse
    slots: int
    device: Device
    price: PriceResponse


class EstimateResponse(NoEstimateResponse):
    """`refusal`: why the job's budget does not allow it. Amounts in millionths of the currency."""

    allowed_to_proceed: bool
    refusal: str | None
    estimated_start: int | None
    estimated_finish: int | None
    trained_tokens: int
    steps: int
    memory_bytes: int
    train_gpu_ms: int
    eval_gpu_ms: int
    hold_gpu_ms: int
    expected_duration_seconds: int
    currency: str
    amount_micro: int
    amount_max_micro: int


class CostLineResponse(Response):
    kind: str
    attempt: int
    role: str
    hour: int
    used_gpu_ms: int
    billable_gpu_ms: int
    cause: str | None


class JobCostResponse(Response):
    """Every usage slice and credit line of a job so far, and their sum at the job's own price.

    `estimate`: the one that the budget was taken for.
    """

    id: str
    object: Literal["fine_tuning.job.cost"] = "fine_tuning.job.cost"
    final: bool
    currency: str
    price: PriceResponse
    lines: list[CostLineResponse]
    used_gpu_ms: int
    billable_gpu_ms: int
    credited_gpu_ms: int
    net_gpu_ms: int
    trained_tokens: int
    amount_micro: int
    estimate: dict[str, Any] | None


class CheckpointResponse(Item):
    """`metrics`: of the checkpoint's step, as far as its telemetry is still kept."""

    id: str
    object: Literal["fine_tuning.job.checkpoint"] = "fine_tuning.job.checkpoint"
    created_at: int
    fine_tuned_model_checkpoint: str
    fine_tuning_job_id: str
    step_number: int
    metrics: dict[str, int | float | None]
    attempt: int
    manifest_sha256: str
    bytes: int
    trained_tokens: int


class CheckpointFilesResponse(Response):
    """`url` of each file works until `expires_at`, in epoch seconds."""

    id: str
    object: Literal["checkpoint.adapter"] = "checkpoint.adapter"
    format: Literal["peft"] = "peft"
    step_number: int
    expires_at: int
    files: list[DownloadFileResponse]


class AnswersResponse(Response):
    """The evaluation's fixed prompts, answered by the base model and by the adapter."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]


class PreviewResponse(Response):
    """`data`: rows as tokens with their loss mask; `problems`: of the rows before them."""

    object: Literal["fine_tuning.preview"] = "fine_tuning.preview"
    model: str
    training_file: str
    data: list[dict[str, Any]]
    problems: list[dict[str, Any]]


def job_response(
    row: JobRow, unseal: Unseal, step: StepRow | None = None, starts_at: Ms | None = None
) -> JobResponse:
    """`step`: the newest, for jobs that run. `starts_at`: for those that wait."""
    spec = row.spec
    status = job_status(row.wanted, row.phase, row.outcome)
    hyper = hyperparameters(row, status)
    progress = _progress(row, step)
    return JobResponse(
        id=row.id,
        created_at=seconds(row.created_at),
        error=_error(row, unseal),
        estimated_finish=_estimated_finish(progress, step),
        fine_tuned_model=row.model_id,
        finished_at=seconds_or_none(row.finished_at),
        hyperparameters=hyper,
        integrations=[],
        metadata=metadata_of(row, unseal),
        method=MethodResponse(supervised=SupervisedResponse(hyperparameters=hyper)),
        model=spec.base.base_id,
        organization_id=row.tenant,
        result_files=[] if row.result_file is None else [row.result_file],
        seed=spec.hyper.seed,
        status=status,
        trained_tokens=row.trained_tokens if row.phase == "done" else None,
        training_file=spec.training_file,
        user_provided_suffix=unseal(row.suffix),
        validation_file=spec.validation_file,
        phase=row.phase,
        wanted=row.wanted,
        lane=row.lane,
        attempt=row.attempt,
        node=row.node_id,
        queue=_queue(row, status, starts_at),
        progress=progress,
        cost=_cost(row),
        eval=EvalSettingsResponse(
            validation_fraction=spec.validation_fraction_ppm / PPM,
            drop_max=None if spec.drop_max_ppm is None else spec.drop_max_ppm / PPM,
        ),
        gate=None if row.gate is None else gate_response(row.gate),
        provenance=_provenance(row),
    )


def hyperparameters(row: JobRow, status: JobStatus) -> HyperparametersResponse:
    hyper = row.spec.hyper
    early = status in ("validating_files", "queued")
    auto = frozenset(row.spec.auto) if early else frozenset()
    tokens = None if row.hold is None else row.hold.tokens
    return HyperparametersResponse(
        batch_size=AUTO if "batch_size" in auto else hyper.batch_size,
        learning_rate_multiplier=(
            AUTO if "learning_rate" in auto else learning_rate_multiplier(row.spec, tokens)
        ),
        n_epochs=AUTO if "n_epochs" in auto else hyper.n_epochs,
        **training_parameters(hyper),
    )


def training_parameters(hyper: HyperParameters) -> dict[str, Any]:
    """Fields of `TrainingParametersResponse`."""
    return {
        "learning_rate": hyper.learning_rate_ppb / 1e9,
        "rank": hyper.rank,
        "alpha": hyper.alpha,
        "dropout": hyper.dropout_ppm / PPM,
        "max_length": hyper.max_length,
        "warmup_ratio": hyper.warmup_ppm / PPM,
        "weight_decay": hyper.weight_decay_ppm / PPM,
        "precision": hyper.precision,
    }


def learning_rate_multiplier(spec: JobSpec, tokens: BaseTokens | None) -> float:
    """The learning rate over what the rule gives for this base and data."""
    if "learning_rate" in spec.auto:
        return 1.0
    hyper = spec.hyper
    requested = {
        "n_epochs": hyper.n_epochs,
        "batch_size": hyper.batch_size,
        "max_length": hyper.max_length,
    }
    rule, _ = resolve(
        requested, spec.base, tokens, hyper.seed, spec.device, spec.validation_fraction_ppm
    )
    return round(hyper.learning_rate_ppb / rule.learning_rate_ppb, 4)


def _error(row: JobRow, unseal: Unseal) -> JobErrorResponse | None:
    failure = row.failure
    if failure is None:
        return None
    texts = [text for text in (unseal(failure.message), failure.advice) if text]
    message = " ".join(texts) or f"The job failed: {failure.code}."
    return JobErrorResponse(code=failure.code, message=message, param=failure.param)


def metadata_of(row: JobRow, unseal: Unseal) -> dict[str, str] | None:
    """None: it has none. An erased tenant's metadata does not open: nothing is left of it."""
    text = unseal(row.metadata)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return {}


def _queue(row: JobRow, status: JobStatus, starts_at: Ms | None) -> QueueResponse | None:
    if status not in WAITING:
        return None
    eta = seconds_or_none(starts_at)
    return QueueResponse(position=row.position, reason=row.reason, eta=eta)


def _progress(row: JobRow, step: StepRow | None) -> ProgressResponse | None:
    """How far training is. The time left comes from this attempt's own pace."""
    total = row.total_steps
    if total is None:
        return None
    done = total if row.outcome == "succeeded" else row.loaded_step or 0
    left_ms = None
    if step is not None:
        done = step.step
        paced = step.step - (row.loaded_step or 0)
        if step.attempt == row.attempt and paced > 0:
            left_ms = (total - done) * step.elapsed_ms // paced
    return ProgressResponse(
        step=done,
        resumed_from_step=row.loaded_step,
        total_steps=total,
        percent=round(100 * done / total, 1) if total else 100.0,
        train_loss=None if step is None else finite(step.loss),
        seconds_remaining=None if left_ms is None else left_ms // 1000,
    )


def _estimated_finish(progress: ProgressResponse | None, step: StepRow | None) -> int | None:
    """Of training; the evaluation comes after it."""
    if progress is None or step is None or progress.seconds_remaining is None:
        return None
    return step.at // 1000 + progress.seconds_remaining


def _cost(row: JobRow) -> CostSummaryResponse:
    """`GET …/cost` has every line."""
    price, estimate = row.spec.price, None if row.hold is None else row.hold.estimate
    billable, lost = row.billable_gpu_ms or 0, row.lost_gpu_ms or 0
    return CostSummaryResponse(
        currency=price.currency,
        price_version=price.version,
        billable_gpu_ms=billable,
        credited_gpu_ms=lost,
        amount_micro=price_micro(price, max(0, billable - lost), row.trained_tokens or 0),
        estimated_amount_micro=None if estimate is None else estimate.price_micro,
        amount_max_micro=None if estimate is None else estimate.price_max_micro,
        hold_gpu_ms=None if estimate is None or row.phase == "done" else estimate.hold_gpu_ms,
        released_gpu_ms=row.released_gpu_ms,
    )


def gate_response(summary: ScoreSummary) -> GateResponse:
    """Shares as fractions: the log has them in millionths."""
    items = summary.items
    return GateResponse(
        verdict=summary.verdict,
        reasons=list(summary.reasons),
        advice=summary.advice,
        items=items,
        base=ScoresResponse(
            accuracy=round(summary.base_correct / items, 4) if items else None,
            loss=_share(summary.base_loss_ppm),
            exact_match=_share(summary.base_exact_match_ppm),
        ),
        adapter=ScoresResponse(
            accuracy=round(summary.adapter_correct / items, 4) if items else None,
            loss=_share(summary.adapter_loss_ppm),
            exact_match=_share(summary.adapter_exact_match_ppm),
        ),
        p_value=summary.p_value_ppm / PPM,
    )


def _share(ppm: int) -> float | None:
    """Below zero: it was not measured, because there were no validation rows."""
    return None if ppm < 0 else ppm / PPM


def row_at(changes: Sequence[JobChangeRow], tenant: str, job_id: str) -> JobRow | None:
    """A job's row as it was after these rows of its history."""
    values = {change.field: change.value for change in changes}
    return JOBS.read({**values, "tenant": tenant, "id": job_id})


def _provenance(row: JobRow) -> ProvenanceResponse:
    base, lineage = row.spec.base, row.lineage
    return ProvenanceResponse(
        base_model=f"{base.base_id}@sha256:{base.sha256}",
        dataset_version=None if row.prepared is None else row.prepared.version,
        training_sha256=None if lineage is None else lineage.training_sha256,
        config_sha256=None if lineage is None else lineage.config_sha256,
        scores_sha256=None if lineage is None else lineage.scores_sha256,
        seed=row.spec.hyper.seed,
        attempts=row.attempt,
    )


def _price(price: Price) -> PriceResponse:
    return PriceResponse(
        version=price.version,
        currency=price.currency,
        gpu_hour_micro=price.gpu_hour_micro,
        token_micro_per_million=price.token_micro_per_million,
    )


def no_estimate_response(spec: JobSpec, reason: str) -> NoEstimateResponse:
    """`reason`: why there is no estimate."""
    return NoEstimateResponse(estimation_available=False, unavailable_reason=reason, **_job(spec))


def _job(spec: JobSpec) -> dict[str, Any]:
    """Fields of `NoEstimateResponse` that do not depend on the data."""
    parameters = EstimateParametersResponse(
        n_epochs=spec.hyper.n_epochs,
        batch_size=spec.hyper.batch_size,
        **training_parameters(spec.hyper),
    )
    return {
        "model": spec.base.base_id,
        "hyperparameters": parameters,
        "slots": spec.slots,
        "device": spec.device,
        "price": _price(spec.price),
    }


def estimate_response(spec: JobSpec, estimate: Estimate, starts_at: Ms | None) -> EstimateResponse:
    """`starts_at`: None where it is not known."""
    gpu_ms = estimate.train_gpu_ms + estimate.eval_gpu_ms
    duration_ms = gpu_ms // spec.slots
    refusal = over_budget(spec.budget, estimate)
    return EstimateResponse(
        estimation_available=True,
        unavailable_reason=None,
        **_job(spec),
        allowed_to_proceed=refusal is None,
        refusal=refusal,
        estimated_start=seconds_or_none(starts_at),
        estimated_finish=None if starts_at is None else seconds(starts_at + duration_ms),
        trained_tokens=estimate.tokens,
        steps=estimate.steps,
        memory_bytes=estimate.memory_bytes,
        train_gpu_ms=estimate.train_gpu_ms,
        eval_gpu_ms=estimate.eval_gpu_ms,
        hold_gpu_ms=estimate.hold_gpu_ms,
        expected_duration_seconds=duration_ms // 1000,
        currency=estimate.currency,
        amount_micro=estimate.price_micro,
        amount_max_micro=estimate.price_max_micro,
    )


def cost_response(row: JobRow, lines: Sequence[UsageRow]) -> JobCostResponse:
    billable = sum(line.billable_gpu_ms for line in lines if line.kind == "usage")
    credited = -sum(line.billable_gpu_ms for line in lines if line.kind == "credit")
    price, tokens = row.spec.price, row.trained_tokens or 0
    return JobCostResponse(
        id=row.id,
        final=row.phase == "done",
        currency=price.currency,
        price=_price(price),
        lines=[_cost_line(line) for line in lines],
        used_gpu_ms=sum(line.used_gpu_ms for line in lines),
        billable_gpu_ms=billable,
        credited_gpu_ms=credited,
        net_gpu_ms=billable - credited,
        trained_tokens=tokens,
        amount_micro=_amount_micro(price, lines) + price_micro(price, 0, tokens),
        estimate=None if row.hold is None else msgspec.to_builtins(row.hold.estimate),
    )


def _cost_line(line: UsageRow) -> CostLineResponse:
    return CostLineResponse(
        kind=line.kind,
        attempt=line.attempt,
        role=line.role,
        hour=line.hour,
        used_gpu_ms=line.used_gpu_ms,
        billable_gpu_ms=line.billable_gpu_ms,
        cause=line.cause,
    )


def _amount_micro(price: Price, lines: Sequence[UsageRow]) -> Micro:
    """To the unit what the invoice says: one rounding for each of its lines."""
    gpu_ms: Counter[tuple[Any, ...]] = Counter()
    for line in lines:
        gpu_ms[line.hour, line.kind, line.role, line.cause] += line.billable_gpu_ms
    return sum(line_micro(used, price.gpu_hour_micro) for used in gpu_ms.values())


def checkpoint_response(
    row: CheckpointRow, model_id: str, step: StepRow | None
) -> CheckpointResponse:
    """`step`: the telemetry of the checkpoint's step, where it is still kept."""
    metrics: dict[str, int | float | None] = {"step": row.step}
    if step is not None:
        metrics["train_loss"] = finite(step.loss)
        metrics["train_mean_token_accuracy"] = finite(step.accuracy)
        if (valid := finite(step.valid_loss)) is not None:
            metrics["valid_loss"] = valid
    return CheckpointResponse(
        id=row.id,
        created_at=seconds(row.created_at),
        fine_tuned_model_checkpoint=f"{model_id}:ckpt-step-{row.step}",
        fine_tuning_job_id=row.job_id,
        step_number=row.step,
        metrics=metrics,
        attempt=row.attempt,
        manifest_sha256=row.manifest_sha256,
        bytes=row.bytes,
        trained_tokens=row.trained_tokens,
    )


def checkpoint_files_response(
    row: CheckpointRow, urls: Mapping[str, str], expires_at: int
) -> CheckpointFilesResponse:
    """`urls`: those of the files that can be used without the run; `expires_at` in seconds."""
    return CheckpointFilesResponse(
        id=row.id,
        step_number=row.step,
        expires_at=expires_at,
        files=download_files(row.files, urls),
    )
