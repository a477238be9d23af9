"""Fine-tuning jobs: OpenAI's fields first, then queue, progress, cost, gate; estimates, costs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from schemas.dataset import BaseTokens
from schemas.job import Phase, Wanted
from schemas.reasons import waiting
from schemas.submission import JobSpec
from schemas.units import PPM, Ms
from services.gateway.jobs.domain.gate_responses import GateResponse, gate_response
from services.gateway.jobs.domain.integrations import shown_integrations
from services.gateway.jobs.domain.parameters import (
    HyperparametersResponse,
    MethodResponse,
    method_response,
    training_parameters,
)
from services.gateway.jobs.domain.progress import ProgressResponse, progress_of
from services.gateway.jobs.domain.queue_view import Outlook
from services.gateway.jobs.domain.requested import shown_placement, shown_settings
from services.gateway.jobs.domain.statuses import JobStatus, job_status
from services.gateway.jobs.domain.texts import at_top, texts_of, with_texts
from services.gateway.jobs.domain.variant_responses import VariantResponse, variant_responses
from services.gateway.views.tables.jobs import JOBS, JobChangeRow, JobRow, StepRow
from services.gateway.web.domain.responses import (
    ListItem,
    Response,
    Unseal,
    seconds,
    seconds_or_none,
    seconds_up,
)
from services.gateway.wording import failure_words, unblock_words, wait_words
from tunery.plan.hyperparameters import resolve
from tunery.plan.price import job_cost

WAITING: Final[frozenset[JobStatus]] = frozenset({"validating_files", "queued", "paused"})
AUTO: Final = "auto"


class JobErrorResponse(Response):
    code: str
    message: str
    param: str | None


class QueueResponse(Response):
    """Why a job waits. `position`: in its lane, from 1. `jobs_ahead`: in all lanes before it, for
    slots of its kind. `unblocked_by`: what lets it go on. `eta`, `eta_latest`: between them it is
    expected to begin, in epoch seconds; null: a person has to do something first, or its cluster
    has to admit it, for which it waits since `since`.
    """

    position: int | None
    reason: str | None
    code: str | None
    eta: int | None
    lane: str | None = None
    jobs_ahead: int | None = None
    unblocked_by: str | None = None
    eta_latest: int | None = None
    since: int | None = None


class CostSummaryResponse(Response):
    """Usage of the job's ended attempts. Amounts in millionths of the currency."""

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
    """Settings of a job's evaluation. `prompts`: what base model and new model answer, null: the
    bundled ones. `measures`: what their answers to `measured_rows` of the validation rows are
    measured by, null: nothing. `benchmarks`: benchmarks that both answer, at most
    `benchmark_items` items of each.
    """

    validation_fraction: float
    drop_max: float | None
    prompts: list[str] | None
    measures: list[Any] | None = None
    measured_rows: int | None = None
    benchmarks: list[str] | None = None
    benchmark_items: int | None = None


class MixtureFileResponse(Response):
    """A further file that a job trains on. `weight`: how often an epoch sees each of its rows."""

    file: str
    weight: float


class PlacementResponse(Response):
    """Requirements of a job on its nodes. `accelerator`: model of their devices, null: any. `spot`:
    also on spot machines, null: only where no other fits. `finish_by`: when it should be done.
    `tolerations`: taints of nodes that it may be on all the same. `domain`: it waits for nodes of
    this one for so many minutes before it takes others, null: as long as it takes.
    """

    accelerator: str | None
    spot: bool | None
    finish_by: int | None
    tolerations: list[str]
    domain: str | None
    domain_wait_minutes: int | None


class ProvenanceResponse(Response):
    """Origin of a job's result. `configuration`: hash of base model, data and settings.
    `environment`: what the newest training attempt is computed with: device, versions, hashes of
    code and packages.
    """

    base_model: str
    started_from: str | None
    dataset_version: str | None
    training_sha256: str | None
    config_sha256: str | None
    scores_sha256: str | None
    seed: int
    attempts: int | None
    configuration: str | None
    environment: dict[str, str] | None


class DuplicateResponse(Response):
    """An earlier job with the same base model, data and settings, and what became of it."""

    id: str
    status: JobStatus
    fine_tuned_model: str | None


@with_texts
class JobResponse(ListItem):
    id: str
    object: Literal["fine_tuning.job"] = "fine_tuning.job"
    created_at: int
    error: JobErrorResponse | None
    estimated_finish: int | None
    fine_tuned_model: str | None
    finished_at: int | None
    hyperparameters: HyperparametersResponse
    integrations: list[dict[str, Any]]
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
    mixture: list[MixtureFileResponse]
    phase: Phase
    wanted: Wanted
    lane: str
    attempt: int | None
    node: str | None
    queue: QueueResponse | None
    progress: ProgressResponse | None
    cost: CostSummaryResponse
    eval: EvalSettingsResponse
    placement: PlacementResponse
    gate: GateResponse | None
    provenance: ProvenanceResponse
    duplicate_of: DuplicateResponse | None
    variants: list[VariantResponse]


class AnswersResponse(Response):
    """Prompts answered by the base model and by the adapter: the job's own, or the bundled ones."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]


class PreviewResponse(Response):
    """A preview of a file. `data`: rows as tokens with their loss mask. `problems`: problems of the
    rows before them.
    """

    object: Literal["fine_tuning.preview"] = "fine_tuning.preview"
    model: str
    training_file: str
    data: list[dict[str, Any]]
    problems: list[dict[str, Any]]


class Moment(NamedTuple):
    """Time-dependent facts for the response of a job."""

    at: Ms = 0  # time of the facts
    step: StepRow | None = None  # newest step of a started job
    outlook: Outlook | None = None  # forecast for a waiting job
    # what its evaluation is expected to take by what others took; None: not known
    eval_ms: Ms | None = None
    earlier: JobRow | None = None  # a job with the same configuration; None: there was none


UNKNOWN: Final = Moment()


def job_response(row: JobRow, unseal: Unseal, moment: Moment = UNKNOWN) -> JobResponse:
    """A job as it is at a moment."""
    spec, texts = row.settled, texts_of(row.spec, unseal)
    status = job_status(row.wanted, row.phase, row.outcome)
    hyper = hyperparameters(row, status)
    at = moment.at or (0 if moment.step is None else moment.step.at)
    progress = progress_of(row, moment.step, at, moment.eval_ms)
    left_s = None if progress is None else progress.seconds_remaining
    return JobResponse.of(
        row,
        created_at=seconds(row.created_at),
        error=_error(row, unseal),
        estimated_finish=None if left_s is None else seconds(at) + left_s,
        fine_tuned_model=row.model_id,
        finished_at=seconds_or_none(row.finished_at),
        hyperparameters=hyper,
        integrations=shown_integrations(spec, unseal),
        method=method_response(spec.hyper, hyper, texts["grader"]),
        model=spec.base.base_id if spec.start is None else spec.start.model_id,
        organization_id=row.tenant,
        result_files=[
            file
            for file in (row.result_file, row.tensorboard_file, row.wandb_file)
            if file is not None
        ],
        seed=spec.hyper.seed,
        status=status,
        trained_tokens=row.trained_tokens if row.phase == "done" else None,
        training_file=spec.training_file,
        validation_file=spec.validation_file,
        mixture=[
            MixtureFileResponse(file=file.file_id, weight=file.weight_ppm / PPM)
            for file in spec.mixture
        ],
        node=row.node_ids[0] if row.node_ids else None,
        queue=queue_response(row, status, moment.outlook),
        progress=progress,
        cost=cost_summary(row),
        eval=EvalSettingsResponse(
            **shown_settings(spec, "eval"),
            prompts=texts["prompts"],
            measures=texts["measures"],
            benchmarks=[benchmark.name for benchmark in spec.benchmarks] or None,
        ),
        placement=PlacementResponse(**shown_placement(spec.constraints)),
        gate=None if row.gate is None else gate_response(row.gate, row.settled.hyper.adaptation),
        provenance=_provenance(row),
        duplicate_of=None if moment.earlier is None else duplicate_response(moment.earlier),
        variants=variant_responses(row),
        **at_top(texts),
    )


def duplicate_response(row: JobRow) -> DuplicateResponse:
    """Describe an earlier job with the same configuration."""
    status = job_status(row.wanted, row.phase, row.outcome)
    return DuplicateResponse(id=row.id, status=status, fine_tuned_model=row.model_id)


def hyperparameters(row: JobRow, status: JobStatus) -> HyperparametersResponse:
    """The job's hyper-parameters: "auto" as requested while it waits, resolved numbers later."""
    spec = row.settled
    early = status in ("validating_files", "queued")
    auto = frozenset(spec.auto) if early else frozenset()
    tokens = None if row.hold is None else row.hold.tokens
    return HyperparametersResponse(
        batch_size=AUTO if "batch_size" in auto else spec.hyper.batch_size,
        learning_rate_multiplier=(
            AUTO if "learning_rate" in auto else learning_rate_multiplier(spec, tokens)
        ),
        n_epochs=AUTO if "n_epochs" in auto else spec.hyper.n_epochs,
        **training_parameters(spec.hyper),
    )


def learning_rate_multiplier(spec: JobSpec, tokens: BaseTokens | None) -> float:
    """The learning rate divided by the default for this base model and data."""
    if "learning_rate" in spec.auto:
        return 1.0
    hyper = spec.hyper
    requested = {
        "n_epochs": hyper.n_epochs,
        "batch_size": hyper.batch_size,
        "max_length": hyper.max_length,
        "method": hyper.method,
        "adaptation": hyper.adaptation,
    }
    rule, _ = resolve(
        requested, spec.base, tokens, hyper.seed, spec.device, spec.validation_fraction_ppm
    )
    return round(hyper.learning_rate_ppb / rule.learning_rate_ppb, 4)


def _error(row: JobRow, unseal: Unseal) -> JobErrorResponse | None:
    failure = row.failure
    if failure is None:
        return None
    texts = (unseal(failure.detail, "detail"), failure_words(failure))
    message = " ".join(text for text in texts if text)
    return JobErrorResponse(code=failure.code, message=message, param=failure.param)


def queue_response(row: JobRow, status: JobStatus, outlook: Outlook | None) -> QueueResponse | None:
    """Why a job waits; None: it does not."""
    if status not in WAITING and outlook is None:
        return None
    outlook = outlook or Outlook()
    reason = outlook.reason or row.reason
    if reason is None and row.phase == "validating":
        reason = waiting("file_validation")
    return queue_response_of_new(replace(outlook, reason=reason))


def queue_response_of_new(outlook: Outlook) -> QueueResponse:
    """Why a job would wait that is not submitted, and until when."""
    reason = outlook.reason
    return QueueResponse(
        position=outlook.position,
        reason=wait_words(reason),
        code=None if reason is None else reason.code,
        eta=seconds_up(outlook.earliest),
        lane=outlook.lane,
        jobs_ahead=outlook.ahead,
        unblocked_by=unblock_words(reason),
        eta_latest=seconds_up(outlook.latest),
        since=seconds_or_none(outlook.since),
    )


def cost_summary(row: JobRow) -> CostSummaryResponse:
    """Summary of the job's cost; `GET …/cost` returns every line."""
    price, estimate = row.spec.price, None if row.hold is None else row.hold.estimate
    billable, lost = row.billable_gpu_ms or 0, row.lost_gpu_ms or 0
    time = row.micro_gpu_ms
    if time is None:
        time = max(0, billable - lost) * price.gpu_hour_micro
    return CostSummaryResponse(
        currency=price.currency,
        price_version=price.version,
        billable_gpu_ms=billable,
        credited_gpu_ms=lost,
        amount_micro=job_cost(max(0, time), row.billed_tokens or 0, price),
        estimated_amount_micro=None if estimate is None else estimate.price_micro,
        amount_max_micro=None if estimate is None else estimate.price_max_micro,
        hold_gpu_ms=None if estimate is None or row.phase == "done" else estimate.hold_gpu_ms,
        released_gpu_ms=row.released_gpu_ms,
    )


def row_at(changes: Sequence[JobChangeRow], tenant: str, job_id: str) -> JobRow | None:
    """The job's row as it was after these changes."""
    values = {change.field: change.value for change in changes}
    return JOBS.read({**values, "tenant": tenant, "id": job_id})


def _provenance(row: JobRow) -> ProvenanceResponse:
    base, start, lineage = row.spec.base, row.spec.start, row.lineage
    return ProvenanceResponse(
        base_model=f"{base.base_id}@sha256:{base.sha256}",
        started_from=None if start is None else f"{start.model_id}@sha256:{start.sha256}",
        dataset_version=None if row.prepared is None else row.prepared.version,
        training_sha256=None if lineage is None else lineage.training_sha256,
        config_sha256=None if lineage is None else lineage.config_sha256,
        scores_sha256=None if lineage is None else lineage.scores_sha256,
        seed=row.settled.hyper.seed,
        attempts=row.train_attempt,
        configuration=row.configuration or row.settled.configuration or None,
        environment=row.environment,
    )
