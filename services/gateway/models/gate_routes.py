"""`/v1/gate/policies`: what the gate allows; `/v1/models/{id}/quarantine`: what people decide."""

from typing import Literal

from schemas.gate import (
    EVERY_BASE,
    GatePolicy,
    GateStage,
    QuarantineDecision,
    SetGatePolicy,
    SetQuarantine,
)
from schemas.topics import MODEL
from schemas.units import PPM
from services.gateway.models.benchmark_routes import BENCHMARKS_MAX
from services.gateway.models.domain.bodies import GatePolicyRequest, QuarantineRequest
from services.gateway.models.domain.responses import FineTunedModelResponse, model_response
from services.gateway.models.routes import find_base, find_version, unknown_base
from services.gateway.views.tables.models import BENCHMARKS, POLICIES
from services.gateway.web.deps import Caller, Deps, WithDeps
from services.gateway.web.domain.errors import not_found
from services.gateway.web.domain.responses import Deleted, ListItem, Page, listing
from services.gateway.web.routing import new_router

POLICIES_MAX = 100
DEFAULT = "default"
router = new_router("models")


class GatePolicyResponse(ListItem):
    """Gate policy; `id` is a base model, or `default` for base models without a policy."""

    id: str
    object: Literal["gate.policy"] = "gate.policy"
    blocking: list[GateStage]
    alpha: float
    drop_max: float | None
    gain_min: float
    benchmarks: list[str]
    refusal_min: float
    looks: list[float]


@router.get("/v1/gate/policies")
async def list_gate_policies(deps: WithDeps, caller: Caller) -> Page[GatePolicyResponse]:
    """List the policies that were set, the default one first, as it is in force."""
    rows = await deps.views.page(
        POLICIES, {"tenant": caller.tenant}, limit=POLICIES_MAX, descending=False
    )
    policies = {row.id: row.policy for row in rows}
    policies = {EVERY_BASE: GatePolicy(), **policies}
    shown = [_response(base_id, policy) for base_id, policy in policies.items()]
    return listing(Page[GatePolicyResponse], shown, False)


@router.post("/v1/gate/policies")
async def set_gate_policy(
    body: GatePolicyRequest, deps: WithDeps, caller: Caller
) -> GatePolicyResponse:
    """Set what the gate allows, for one base model or for all without their own policy."""
    base_id = EVERY_BASE if body.base_model is None else await _base_id(deps, body.base_model)
    policy = GatePolicy(
        blocking=tuple(dict.fromkeys(body.blocking)),
        alpha_ppm=round(body.alpha * PPM),
        drop_max_ppm=None if body.drop_max is None else round(body.drop_max * PPM),
        gain_min_ppm=round(body.gain_min * PPM),
        benchmarks=tuple(dict.fromkeys(body.benchmarks)),
        refusal_min_ppm=round(body.refusal_min * PPM),
        looks_ppm=tuple(round(share * PPM) for share in body.looks),
    )
    known = {row.id for row in await deps.views.page(BENCHMARKS, {}, limit=BENCHMARKS_MAX)}
    for name in policy.benchmarks:
        if name not in known:
            raise not_found("Benchmark", name, "benchmarks")
    await deps.decide(caller, MODEL, SetGatePolicy(base_id=base_id, policy=policy))
    return _response(base_id, policy)


@router.delete("/v1/gate/policies/{base_id:path}")
async def delete_gate_policy(base_id: str, deps: WithDeps, caller: Caller) -> Deleted:
    """Remove a policy: that of `default` is then the gate's own, that of a base model `default`."""
    known = EVERY_BASE if base_id == DEFAULT else base_id
    where = {"tenant": caller.tenant, "id": known}
    if await deps.views.first(POLICIES, where) is None:
        raise unknown_base(base_id)
    await deps.decide(caller, MODEL, SetGatePolicy(base_id=known, policy=None))
    return Deleted(id=base_id, object="gate.policy")


@router.post("/v1/models/{model_id:path}/quarantine")
async def quarantine_model(
    model_id: str, body: QuarantineRequest, deps: WithDeps, caller: Caller
) -> FineTunedModelResponse:
    """Override the gate's quarantine, or quarantine a version, with a reason and a name.

    Both are kept on the log, encrypted with the tenant's key. A version whose scores were infinite
    or not a number stays in quarantine.
    """
    row = await find_version(deps, caller, model_id)
    decision = QuarantineDecision(
        model_id=row.id,
        quarantined=body.quarantined,
        cause=deps.seal.seal(caller.tenant, body.reason, "cause"),
        by=deps.seal.seal(caller.tenant, body.name, "by"),
    )
    await deps.decide(caller, MODEL, SetQuarantine(decision=decision))
    return model_response(await find_version(deps, caller, row.id), deps.unseal)


async def _base_id(deps: Deps, name: str) -> str:
    base = await find_base(deps, name)
    if base is None:
        raise unknown_base(name)
    return base.base_id


def _response(base_id: str, policy: GatePolicy) -> GatePolicyResponse:
    return GatePolicyResponse(
        id=DEFAULT if base_id == EVERY_BASE else base_id,
        blocking=list(policy.blocking),
        alpha=policy.alpha_ppm / PPM,
        drop_max=None if policy.drop_max_ppm is None else policy.drop_max_ppm / PPM,
        gain_min=policy.gain_min_ppm / PPM,
        benchmarks=list(policy.benchmarks),
        refusal_min=policy.refusal_min_ppm / PPM,
        looks=[share / PPM for share in policy.looks_ppm],
    )
