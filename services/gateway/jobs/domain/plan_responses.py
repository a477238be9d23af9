"""What would run, where, why and at what price: a job that is not submitted."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from schemas.envelope import Reason, Rejected
from schemas.submission import Estimate, JobSpec
from schemas.training import NodeConstraints
from schemas.units import GpuMs
from services.gateway.jobs.domain.cost_responses import EstimateResponse, NoEstimateResponse
from services.gateway.jobs.domain.mixtures import as_requested
from services.gateway.jobs.domain.node_choice import NodeKind
from services.gateway.jobs.domain.requested import SETTINGS, RequestedSettings, shown_settings
from services.gateway.jobs.domain.responses import DuplicateResponse, QueueResponse
from services.gateway.web.domain.responses import Response, TextOrNone
from services.gateway.wording import refusal_words
from tunery.plan.fitting import PLANNED, engine_reason, memory_reason
from tunery.plan.hyperparameters import request_of
from tunery.plan.knobs import KNOBS

Source = Literal["given", "rule", "default"]


class SettingResponse(Response):
    """A setting, and where its value comes from: given (`path` is its field in the body), from a
    rule (`why` says which), or the default.
    """

    name: str
    value: Any
    source: Source
    path: str | None
    why: str


class PlannedNodesResponse(Response):
    """Nodes that are alike. `fits`: the job may run on them; `why_not` says why it may not."""

    device: str
    accelerator: TextOrNone
    domain: TextOrNone
    spot: bool
    nodes: int
    slots: int
    memory_bytes: int
    is_alive: bool
    fits: bool
    why_not: str | None


class RefusalResponse(Response):
    """Why a submission would be refused now. `more_gpu_ms`, `more_micro`: with so much more of the
    limit or budget that refuses it, it would not; null: no budget does.
    """

    code: str
    message: str
    param: str | None
    more_gpu_ms: int | None = None
    more_micro: int | None = None


class PlanResponse(Response):
    """A plan. `queue`: when it would begin, and what it would wait for; null: not known.

    `refusals`: all reasons for which a submission would be refused, as far as they are known
    without one; `unchecked`: what only a submission knows. `duplicate_of`: an earlier job with the
    same `configuration`.
    """

    object: Literal["fine_tuning.job.plan"] = "fine_tuning.job.plan"
    allowed_to_proceed: bool
    refusals: list[RefusalResponse]
    unchecked: list[str]
    settings: list[SettingResponse]
    nodes: list[PlannedNodesResponse]
    queue: QueueResponse | None
    estimate: EstimateResponse | NoEstimateResponse
    configuration: str
    duplicate_of: DuplicateResponse | None
    recipe: dict[str, Any]


def settings_of(
    spec: JobSpec, settings: RequestedSettings, *, is_seed_given: bool
) -> list[SettingResponse]:
    """Every setting of a job, hyper-parameters first, in the order of their table."""
    resolved = request_of(spec.hyper)
    method = resolved.pop("method", "supervised")
    reasons = dict.fromkeys({*PLANNED} & {*spec.auto}, memory_reason(spec) or "")
    reasons["engine"] = engine_reason(spec)
    hyper = [
        _setting(
            name,
            value,
            settings.paths,
            KNOBS[name].default is None,
            reasons.get(name, KNOBS[name].source),
        )
        for name, value in resolved.items()
    ]
    seed = "drawn: no two jobs are alike by accident"
    paths = dict(settings.paths) | ({"seed": "seed"} if is_seed_given else {})
    paths |= {} if method == "supervised" else {"method": "method.type"}
    plain = shown_settings(spec, "training") | shown_settings(spec, "eval")
    return [
        _setting("method", method, paths, False, "OpenAI's"),
        *hyper,
        _setting("seed", spec.hyper.seed, paths, True, seed),
        *(
            _setting(name, value, paths, False, SETTINGS[name].source)
            for name, value in plain.items()
            if value is not None
        ),
        _setting(
            "mixture",
            as_requested(spec.mixture),
            paths,
            False,
            "further files, with how often an epoch sees each of their rows",
        ),
    ]


def _setting(
    name: str, value: Any, paths: Mapping[str, str], by_rule: bool, why: str
) -> SettingResponse:
    path = paths.get(name)
    if name == "learning_rate" and path is None:
        path = paths.get("learning_rate_multiplier")
    source: Source = "given" if path is not None else "rule" if by_rule else "default"
    return SettingResponse(name=name, value=value, source=source, path=path, why=why)


def nodes_of(
    kinds: Sequence[NodeKind], spec: JobSpec, needed: Estimate | None
) -> list[PlannedNodesResponse]:
    """The kinds of nodes of the pool, those that the job may run on first."""
    asked = spec.constraints or NodeConstraints()
    has_several = spec.slots > max((kind.slots for kind in kinds), default=0)
    slots = 1 if has_several else spec.slots
    responses = []
    for kind in kinds:
        why_not = _why_not(kind, spec, asked, slots, needed)
        responses.append(PlannedNodesResponse.of(kind, fits=why_not is None, why_not=why_not))
    return sorted(responses, key=lambda node: (not node.fits, not node.is_alive, node.device))


def _why_not(
    kind: NodeKind, spec: JobSpec, asked: NodeConstraints, slots: int, needed: Estimate | None
) -> str | None:
    """Why a node of a kind cannot be one of the job's, which has so many slots of it at least."""
    missing = {*kind.taints} - {*asked.tolerations}
    if kind.device != spec.device:
        return f"the job is for {spec.device} devices"
    if asked.accelerator and kind.accelerator != asked.accelerator:
        return f"the job asks for {asked.accelerator}"
    if asked.domain and asked.domain_wait_ms is None and kind.domain != asked.domain:
        return f"the job asks for the domain {asked.domain}"
    if kind.spot and asked.spot is False:
        return "the job is never on spot machines"
    if missing:
        return f"kept for jobs that tolerate {', '.join(sorted(missing))}"
    if kind.slots < slots:
        return f"the job needs {slots} slots of one node"
    sharing = min(kind.slots, spec.slots) if kind.device == "cpu" else 1
    needed_bytes = 0 if needed is None else sharing * needed.memory_bytes
    if needed_bytes > kind.memory_bytes:
        return f"the job needs {needed_bytes / 1e9:.1f} GB of memory"
    return None if kind.is_alive else "not alive"


def refusal_responses(
    problems: Sequence[Rejected], committed_gpu_ms: GpuMs
) -> list[RefusalResponse]:
    """Why a submission would be refused, in the words that it would get.

    committed_gpu_ms: what the tenant has used of this month's hard limit, or holds
    """
    return [
        RefusalResponse(
            code=problem.code,
            message=problem.code if problem.reason is None else refusal_words(problem.reason),
            param=problem.param,
            **_missing(problem.reason, committed_gpu_ms),
        )
        for problem in problems
    ]


def _missing(reason: Reason | None, committed_gpu_ms: GpuMs) -> dict[str, int]:
    """Return how much more of its budget or limit a job needs, by the field of the answer."""
    if reason is None:
        return {}
    param = {name: value for name, value in reason.params.items() if isinstance(value, int)}
    match reason.code:
        case "hard_limit":
            above = committed_gpu_ms + param["hold_gpu_ms"] - param["limit_gpu_ms"]
            return {"more_gpu_ms": above}
        case "month_budget_gpu_hours":
            spent = param["used_gpu_ms"] + param["held_gpu_ms"]
            return {"more_gpu_ms": spent + param["hold_gpu_ms"] - param["limit_gpu_ms"]}
        case "month_budget_amount":
            spent = param["used_micro"] + param["held_micro"]
            return {"more_micro": spent + param["price_max_micro"] - param["limit_micro"]}
        case "budget_gpu_hours":
            return {"more_gpu_ms": param["hold_gpu_ms"] - param["budget_gpu_ms"]}
        case "budget_amount":
            return {"more_micro": param["price_max_micro"] - param["budget_micro"]}
        case _:
            return {}
