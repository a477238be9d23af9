"""Fine-tuning jobs: OpenAI's fields first, then queue, progress, cost, gate; estimates, costs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

import msgspec

from schemas.dataset import BaseTokens
from schemas.job import Phase, Wanted
from schemas.reasons import waiting
from schemas.sealed import REDACTED
from schemas.submission import JobSpec
from schemas.training import HyperParameters, MethodName, NodeConstraints
from schemas.units import PPM, Ms
from services.gateway.jobs.gate_responses import GateResponse, gate_response
from services.gateway.jobs.integrations import shown_integrations
from services.gateway.jobs.progress import ProgressResponse, progress_of
from services.gateway.jobs.queue_view import Outlook
from services.gateway.jobs.statuses import JobStatus, job_status
from services.gateway.jobs.tables import JOBS, JobChangeRow, JobRow, StepRow
from services.gateway.jobs.variant_responses import VariantResponse, variant_responses
from services.gateway.web.responses import (
    ListItem,
    Response,
    Unseal,
    seconds,
    seconds_or_none,
    seconds_up,
)
from services.gateway.web.wording import failure_words, unblock_words, wait_words
from tunery.plan.hyperparameters import SUPERVISED, request_of, resolve
from tunery.plan.knobs import KNOBS
from tunery.plan.methods import REWARD
from tunery.plan.price import job_cost
from tunery.work.spec import Hyper

WAITING: Final[frozenset[JobStatus]] = frozenset({"validating_files", "queued", "paused"})
AUTO: Final = "auto"
Auto = Literal["auto"]


class JobErrorResponse(Response):
    code: str
    message: str
    param: str | None


class TrainingParametersResponse(Response):
    """Hyper-parameters that OpenAI's object does not have."""

    learning_rate: float
    rank: int
    alpha: int
    dropout: float
    max_length: int
    warmup_ratio: float
    weight_decay: float
    precision: str
    accumulation: int
    max_steps: int
    scheduler: str
    max_grad_norm: float
    target_modules: str | list[str]
    rslora: bool
    dora: bool
    lora_plus_ratio: float
    neftune_alpha: float
    train_on_prompts: bool
    recompute: bool
    offload: bool
    shard_weights: bool
    eval_every_steps: int
    sample_every_steps: int
    best_checkpoint: bool
    early_stopping_patience: int
    packing: bool
    modules_to_save: list[str]
    rank_pattern: dict[str, int]
    alpha_pattern: dict[str, int]


class HyperparametersResponse(TrainingParametersResponse):
    """Hyper-parameters: "auto" as requested until the job runs, then resolved numbers.

    learning_rate_multiplier: the learning rate divided by the default for this base and data.
    """

    batch_size: int | Auto
    learning_rate_multiplier: float | Auto
    n_epochs: int | Auto


class PreferenceHyperparametersResponse(HyperparametersResponse):
    """Of pairs and of answers with labels. Null: the method has no such setting.

    `beta`: how closely they hold the model to its reference, or how much they count. `loss_type`:
    TRL's name. `label_smoothing`: share of them that may be the wrong way round. `gamma`: how far
    ahead the preferred answer is to be. `desirable_weight`, `undesirable_weight`: of answers with
    the label true and false. `num_generations`, `max_completion_length`, `temperature`: of answers
    that are graded.
    """

    beta: float
    loss_type: str | None = None
    label_smoothing: float | None = None
    gamma: float | None = None
    desirable_weight: float | None = None
    undesirable_weight: float | None = None
    num_generations: int | None = None
    max_completion_length: int | None = None
    temperature: float | None = None


class RewardHyperparametersResponse(HyperparametersResponse):
    """`center_rewards_coefficient`: how strongly the rewards of a pair are held to a sum of 0."""

    center_rewards_coefficient: float


class SupervisedResponse(Response):
    hyperparameters: HyperparametersResponse


class RewardResponse(Response):
    hyperparameters: RewardHyperparametersResponse


class PreferenceResponse(Response):
    hyperparameters: PreferenceHyperparametersResponse


class ReinforcementResponse(PreferenceResponse):
    """`grader`: as it was given; null: its tenant was erased."""

    grader: dict[str, Any] | None = None


class MethodResponse(Response):
    """The method, and its own settings under its name."""

    type: MethodName = "supervised"
    supervised: SupervisedResponse | None = None
    dpo: PreferenceResponse | None = None
    simpo: PreferenceResponse | None = None
    orpo: PreferenceResponse | None = None
    cpo: PreferenceResponse | None = None
    reward: RewardResponse | None = None
    kto: PreferenceResponse | None = None
    reinforcement: ReinforcementResponse | None = None


class QueueResponse(Response):
    """Why a job waits. `position`: in its lane, from 1. `jobs_ahead`: in all lanes before it, for
    slots of its kind. `unblocked_by`: what lets it go on. `eta`, `eta_latest`: between them it is
    expected to begin, in epoch seconds; null: a person has to do something first.
    """

    position: int | None
    reason: str | None
    code: str | None
    eta: int | None
    lane: str | None = None
    jobs_ahead: int | None = None
    unblocked_by: str | None = None
    eta_latest: int | None = None


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
    """`prompts`: what base model and new model answer, null: the bundled ones. `measures`: what
    their answers to `measured_rows` of the validation rows are measured by, null: nothing.
    `benchmarks`: that both answer, at most `benchmark_items` items of each.
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
    """Which nodes a job may run on. `accelerator`: only those of this model, null: any. `spot`:
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
    """`configuration`: hash of base model, data and settings. `environment`: what the newest
    training attempt is computed with: device, versions, hashes of code and packages.
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
    """Prompts answered by the base model and by the adapter: the job's own, or the bundled six."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]


class PreviewResponse(Response):
    """`data`: rows as tokens with their loss mask; `problems`: of the rows before them."""

    object: Literal["fine_tuning.preview"] = "fine_tuning.preview"
    model: str
    training_file: str
    data: list[dict[str, Any]]
    problems: list[dict[str, Any]]


class Moment(NamedTuple):
    """What is only known of a job now, or at another moment.

    at: the moment. step: the newest one, of a started job. outlook: forecast for a waiting job.
    eval_ms: what its evaluation is expected to take by what others took; None: not known.
    earlier: a job with the same configuration; None: there was none.
    """

    at: Ms = 0
    step: StepRow | None = None
    outlook: Outlook | None = None
    eval_ms: Ms | None = None
    earlier: JobRow | None = None


UNKNOWN: Final = Moment()


def job_response(row: JobRow, unseal: Unseal, moment: Moment = UNKNOWN) -> JobResponse:
    """A job as it is at a moment."""
    spec = row.settled
    status = job_status(row.wanted, row.phase, row.outcome)
    hyper = hyperparameters(row, status)
    at = moment.at or (0 if moment.step is None else moment.step.at)
    progress = progress_of(row, moment.step, at, moment.eval_ms)
    left_s = None if progress is None else progress.seconds_remaining
    return JobResponse(
        id=row.id,
        created_at=seconds(row.created_at),
        error=_error(row, unseal),
        estimated_finish=None if left_s is None else seconds(at) + left_s,
        fine_tuned_model=row.model_id,
        finished_at=seconds_or_none(row.finished_at),
        hyperparameters=hyper,
        integrations=shown_integrations(spec, unseal),
        metadata=metadata_of(row, unseal),
        method=_method(spec.hyper, hyper, grader_of(unseal(spec.grader, "grader"))),
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
        user_provided_suffix=unseal(row.suffix, "suffix"),
        validation_file=spec.validation_file,
        mixture=[
            MixtureFileResponse(file=file.file_id, weight=file.weight_ppm / PPM)
            for file in spec.mixture
        ],
        phase=row.phase,
        wanted=row.wanted,
        lane=row.lane,
        attempt=row.attempt,
        node=row.node_ids[0] if row.node_ids else None,
        queue=queue_response(row, status, moment.outlook),
        progress=progress,
        cost=cost_summary(row),
        eval=EvalSettingsResponse(
            validation_fraction=spec.validation_fraction_ppm / PPM,
            drop_max=None if spec.drop_max_ppm is None else spec.drop_max_ppm / PPM,
            prompts=prompts_of(unseal(spec.prompts, "prompts")),
            measures=measures_of(unseal(spec.measures, "measures")),
            measured_rows=spec.measured_rows or None,
            benchmarks=[benchmark.name for benchmark in spec.benchmarks] or None,
            benchmark_items=spec.benchmark_items or None,
        ),
        placement=_placement(spec),
        gate=None if row.gate is None else gate_response(row.gate),
        provenance=_provenance(row),
        duplicate_of=None if moment.earlier is None else duplicate_response(moment.earlier),
        variants=variant_responses(row),
    )


def duplicate_response(row: JobRow) -> DuplicateResponse:
    """What is said of an earlier job by one with the same configuration."""
    status = job_status(row.wanted, row.phase, row.outcome)
    return DuplicateResponse(id=row.id, status=status, fine_tuned_model=row.model_id)


def _placement(spec: JobSpec) -> PlacementResponse:
    constraints = spec.constraints or NodeConstraints()
    return PlacementResponse(
        accelerator=constraints.accelerator or None,
        spot=constraints.spot,
        finish_by=seconds_or_none(constraints.finish_by),
        tolerations=list(constraints.tolerations),
        domain=constraints.domain or None,
        domain_wait_minutes=(
            None if constraints.domain_wait_ms is None else constraints.domain_wait_ms // 60_000
        ),
    )


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


def _method(
    hyper: HyperParameters, shown: HyperparametersResponse, grader: dict[str, Any] | None
) -> MethodResponse:
    if hyper.method == SUPERVISED:
        return MethodResponse(supervised=SupervisedResponse(hyperparameters=shown))
    asked = request_of(hyper)
    own = {name: asked[name] for name, knob in KNOBS.items() if hyper.method in knob.methods}
    if hyper.method == REWARD:
        of_reward = RewardHyperparametersResponse(**shown.model_dump(), **own)
        return MethodResponse(type=REWARD, reward=RewardResponse(hyperparameters=of_reward))
    of_pairs = PreferenceHyperparametersResponse(**shown.model_dump(), **own)
    if hyper.method == "reinforcement":
        graded = ReinforcementResponse(hyperparameters=of_pairs, grader=grader)
        return MethodResponse(type=hyper.method, reinforcement=graded)
    details: dict[str, Any] = {hyper.method: PreferenceResponse(hyperparameters=of_pairs)}
    return MethodResponse(type=hyper.method, **details)


def training_parameters(hyper: HyperParameters) -> dict[str, Any]:
    """Fields of `TrainingParametersResponse`."""
    values = Hyper.from_log(hyper)
    layers = values.target_modules
    return {
        "learning_rate": values.learning_rate,
        "rank": values.rank,
        "alpha": values.alpha,
        "dropout": values.dropout,
        "max_length": values.max_length,
        "warmup_ratio": values.warmup,
        "weight_decay": values.weight_decay,
        "precision": hyper.precision,
        "accumulation": values.accumulation,
        "max_steps": values.max_steps,
        "scheduler": values.scheduler,
        "max_grad_norm": values.grad_norm_max,
        "target_modules": layers if isinstance(layers, str) else list(layers),
        "rslora": values.rslora,
        "dora": values.dora,
        "lora_plus_ratio": values.lora_plus,
        "neftune_alpha": values.neftune,
        "train_on_prompts": values.train_on_prompts,
        "recompute": values.recompute,
        "offload": values.offload,
        "shard_weights": values.shard_weights,
        "eval_every_steps": values.eval_every_steps,
        "sample_every_steps": values.sample_every_steps,
        "best_checkpoint": values.best_checkpoint,
        "early_stopping_patience": values.early_stopping_patience,
        "packing": values.packing,
        "modules_to_save": list(values.modules_to_save),
        "rank_pattern": dict(values.rank_pattern),
        "alpha_pattern": dict(values.alpha_pattern),
    }


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


def prompts_of(text: str | None) -> list[str] | None:
    """The prompts of a job; None if it has none, or its tenant was erased."""
    if text is None or text == REDACTED:
        return None
    return msgspec.json.decode(text, type=list[str])


def grader_of(text: str | None) -> dict[str, Any] | None:
    """The grader of a job; None if it has none, or its tenant was erased."""
    if text is None or text == REDACTED:
        return None
    return msgspec.json.decode(text, type=dict[str, Any])


def measures_of(text: str | None) -> list[Any] | None:
    """The measures of a job; None if it has none, or its tenant was erased."""
    if text is None or text == REDACTED:
        return None
    return msgspec.json.decode(text, type=list[Any])


def _error(row: JobRow, unseal: Unseal) -> JobErrorResponse | None:
    failure = row.failure
    if failure is None:
        return None
    texts = (unseal(failure.detail, "detail"), failure_words(failure))
    message = " ".join(text for text in texts if text)
    return JobErrorResponse(code=failure.code, message=message, param=failure.param)


def metadata_of(row: JobRow, unseal: Unseal) -> dict[str, str] | None:
    """The job's metadata; None if it has none, {} if the tenant was erased."""
    text = unseal(row.metadata, "metadata")
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return {}


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
