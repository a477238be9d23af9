"""What a job is expected to cost, and what it has cost, line by line."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict

from schemas.records import build_from
from schemas.submission import Estimate, JobSpec, Price
from schemas.training import Device, LeaseHardware
from schemas.units import Micro, Ms
from services.gateway.jobs.domain.parameters import TrainingParametersResponse, training_parameters
from services.gateway.views.tables.jobs import JobRow, UsageRow
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.domain.responses import Items, Response, Seconds, TextOrNone
from tunery.plan.engines import configuration_of
from tunery.plan.estimate import EVAL_SLOTS, eval_hold
from tunery.plan.fitting import engine_reason, memory_reason
from tunery.plan.price import hourly_micro, job_cost


class RateResponse(Response):
    """A price that differs from the lane's; what is null is any."""

    gpu_hour_micro: int
    role: str | None
    device: str | None
    spot: bool | None


class PriceResponse(Response):
    version: str
    currency: str
    gpu_hour_micro: int
    token_micro_per_million: int
    rates: Items[RateResponse]


class EngineResponse(Response):
    """The engine that runs the steps, with the exact configuration of each rank.

    `reason`: why it was chosen. `experimental`: it has not run on such devices yet; `ran_on`: those
    that it has run on. `weights`: copied to every rank, or sharded over `shards` of them.
    `tensor_parallel`: ranks that compute each row together, each with a part of every matrix.
    `context_parallel`: the same, each with a part of its tokens; neither has run on GPUs.
    `param_type`, `reduce_type`: in which layers compute, and gradients are added. `matmul_type`: in
    which matrices of decoder layers are multiplied; fp8 has run emulated on processors only.
    `micro_batches`: of a rank in each step, at most. `deepspeed`: what DeepSpeed is given; null:
    another engine.
    """

    name: str
    reason: str
    experimental: bool
    ran_on: list[str]
    weights: str
    zero_stage: int | None
    cpu_offload: bool
    backend: str | None
    ranks: int
    shards: int
    tensor_parallel: int
    context_parallel: int
    param_type: str
    matmul_type: str
    reduce_type: str
    rows_at_once: int
    micro_batches: int
    recompute: bool
    deepspeed: dict[str, Any] | None


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
    engine: EngineResponse
    slots: int
    device: Device
    price: PriceResponse


class EstimateResponse(NoEstimateResponse):
    """An estimate. `refusal`, `refusal_code`: why a submission would be refused now, as its error
    says; null: it would not. `memory_reason`: why the plan chose `recompute`,
    `shard_weights` or `offload`; null: it chose none. `max_duration_seconds`: as long as its hold
    allows. Amounts in millionths.
    """

    allowed_to_proceed: bool
    refusal: str | None
    refusal_code: str | None
    estimated_start: Seconds | None
    estimated_finish: Seconds | None
    trained_tokens: int
    steps: int
    memory_bytes: int
    memory_reason: str | None
    train_gpu_ms: int
    eval_gpu_ms: int
    hold_gpu_ms: int
    expected_duration_seconds: int
    max_duration_seconds: int
    currency: str
    amount_micro: int
    amount_max_micro: int


class CostLineResponse(Response):
    kind: str
    attempt: int
    role: str
    hour_utc: int
    used_gpu_ms: int
    billable_gpu_ms: int
    cause: str | None
    device: str
    accelerator: TextOrNone
    spot: bool
    gpu_hour_micro: int
    tokens: int


class JobCostResponse(Response):
    """All usage slices and credits of a job so far, and their sum at the job's price.

    `billed_tokens`: trained tokens that have a price, credits taken off; 0 where there is none.
    `estimate`: the one from which the hold was taken.
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
    billed_tokens: int
    amount_micro: int
    estimate: dict[str, Any] | None


def no_estimate_response(spec: JobSpec, reason: str) -> NoEstimateResponse:
    """A response without an estimate. `reason`: why there is none."""
    return NoEstimateResponse(estimation_available=False, unavailable_reason=reason, **_job(spec))


def _job(spec: JobSpec) -> dict[str, Any]:
    """Fields of `NoEstimateResponse` that do not depend on the data."""
    parameters = EstimateParametersResponse.of(spec.hyper, **training_parameters(spec.hyper))
    return {
        "model": spec.base.base_id,
        "hyperparameters": parameters,
        "engine": engine_response(spec),
        "slots": spec.slots,
        "device": spec.device,
        "price": PriceResponse.of(spec.price),
    }


def engine_response(spec: JobSpec) -> EngineResponse:
    """The engine of a job, compiled to what every rank runs with."""
    configuration = configuration_of(spec.base, spec.hyper, spec.device, spec.slots)
    engine = configuration.engine
    values = asdict(engine) | asdict(configuration)
    values |= {
        "reason": engine_reason(spec),
        "experimental": spec.device not in configuration.ran_on,
        "ran_on": list(configuration.ran_on),
        "zero_stage": engine.zero_stage if engine.name == "deepspeed" else None,
    }
    return EngineResponse(**{name: values[name] for name in EngineResponse.model_fields})


def estimate_response(
    spec: JobSpec, estimate: Estimate, starts_at: Ms | None, refusal: ApiError | None = None
) -> EstimateResponse:
    """An estimate.

    starts_at: expected start; None if it is not known.
    refusal: refusal of the submission; None: it would be accepted.
    """
    duration_ms = estimate.train_gpu_ms // spec.slots + estimate.eval_gpu_ms // EVAL_SLOTS
    eval_max_ms = min(estimate.hold_gpu_ms, eval_hold(spec, estimate))
    max_ms = (estimate.hold_gpu_ms - eval_max_ms) // spec.slots + eval_max_ms // EVAL_SLOTS
    return EstimateResponse.of(
        estimate,
        estimation_available=True,
        unavailable_reason=None,
        **_job(spec),
        allowed_to_proceed=refusal is None,
        refusal=None if refusal is None else refusal.message,
        refusal_code=None if refusal is None else refusal.code,
        estimated_start=starts_at,
        estimated_finish=None if starts_at is None else starts_at + duration_ms,
        trained_tokens=estimate.tokens,
        memory_reason=memory_reason(spec),
        expected_duration_seconds=duration_ms // 1000,
        max_duration_seconds=max(duration_ms, max_ms) // 1000,
        amount_micro=estimate.price_micro,
        amount_max_micro=estimate.price_max_micro,
    )


def cost_response(row: JobRow, lines: Sequence[UsageRow]) -> JobCostResponse:
    """A job's cost: all lines, and their sum at the price of its submission."""
    billable = sum(line.billable_gpu_ms for line in lines if line.kind == "usage")
    credited = -sum(line.billable_gpu_ms for line in lines if line.kind == "credit")
    price, tokens = row.spec.price, sum(line.tokens for line in lines)
    return JobCostResponse(
        id=row.id,
        final=row.phase == "done",
        currency=price.currency,
        price=PriceResponse.of(price),
        lines=[CostLineResponse.of(line, gpu_hour_micro=_hourly(line, price)) for line in lines],
        used_gpu_ms=sum(line.used_gpu_ms for line in lines),
        billable_gpu_ms=billable,
        credited_gpu_ms=credited,
        net_gpu_ms=billable - credited,
        trained_tokens=row.trained_tokens or 0,
        billed_tokens=tokens,
        amount_micro=job_cost(
            sum(line.billable_gpu_ms * _hourly(line, price) for line in lines), tokens, price
        ),
        estimate=None if row.hold is None else msgspec.to_builtins(row.hold.estimate),
    )


def _hourly(line: UsageRow, price: Price) -> Micro:
    return hourly_micro(price, line.role, build_from(LeaseHardware, line))
