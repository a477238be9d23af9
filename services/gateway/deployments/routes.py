"""`/v1/models/{id}/deploy` and `/v1/deployments`: which versions answer in a stage.

A serving pool is removed here, for a deployment may name it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from schemas import errors
from schemas.deployments import LOCAL_POOL, Arm, Deploy, Deployment
from schemas.model import HeldStage, Promote
from schemas.serving import RemoveServingPool
from schemas.topics import JOB, MODEL
from services.gateway.deployments.domain.bodies import BUCKETS_PER_PERCENT, DeployRequest
from services.gateway.deployments.domain.responses import (
    DeploymentResponse,
    HealthResponse,
    deployment_response,
)
from services.gateway.deployments.serving import (
    deployment_of,
    deployments_of,
    engine_of,
    loadable,
    refuse_unaskable,
)
from services.gateway.models.domain.names import HELD_STAGES, named_stage, stage_name
from services.gateway.models.routes import (
    expected_holder,
    find_version,
    look_at_base,
    version_named,
)
from services.gateway.ports import ChatEngine
from services.gateway.serving_pools.routes import SERVING_POOL
from services.gateway.views.tables.models import ModelRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import ApiError, invalid, not_found
from services.gateway.web.domain.responses import Deleted, Page, listing
from services.gateway.web.routing import new_router
from tunery.platform.seal.model_names import shown_names
from tunery.work.engine import BUSY, TENANT_BUSY, EngineModel, Question, QuestionRefused, Sampling

PRECISION: Final = 1e-6  # of a share in percent, beyond its two decimals
router = new_router("models")


@router.post("/v1/models/{model_id:path}/deploy")
async def deploy_model(
    model_id: str, body: DeployRequest, deps: WithDeps, caller: Caller
) -> DeploymentResponse:
    """Let a version answer in a stage: alone, or with another one that has a share of callers.

    It is promoted to the stage where it does not hold it. What the request leaves out ends, so the
    same request without `traffic` gives all callers back to the version.
    """
    row = await find_version(deps, caller, model_id)
    second, shadow = await _second(deps, caller, row, body), await _shadow(deps, caller, body)
    serving_pool = body.serving_pool or LOCAL_POOL
    arms = [arm.model_id for arm in (second, shadow) if arm is not None]
    await _check_pool(deps, caller, serving_pool, (row.id, *arms))
    deployment = Deployment(
        series=row.series,
        stage=body.stage,
        model_id=row.id,
        serving_pool=serving_pool,
        second=second,
        shadow=shadow,
        salt=deps.fresh(""),
    )
    expected = await expected_holder(deps, caller, body.expected)
    await deps.decide(caller, MODEL, Deploy(deployment=deployment, expected=expected))
    holder = await find_version(deps, caller, row.id)
    return deployment_response(
        holder, body.stage, await deployment_of(deps, holder, body.stage), {}
    )


@router.get("/v1/deployments")
async def list_deployments(deps: WithDeps, caller: Caller) -> Page[DeploymentResponse]:
    """List all stages that a version holds, by the name under which it answers."""
    shown = [
        deployment_response(holder, stage, row, {})
        for holder, stage, row in await deployments_of(deps, caller.tenant)
    ]
    shown.sort(key=lambda deployment: shown_names(deps.seal, caller.tenant, deployment.id.encode()))
    return listing(Page[DeploymentResponse], shown, False)


@router.get("/v1/deployments/{name:path}")
async def retrieve_deployment(name: str, deps: WithDeps, caller: Caller) -> DeploymentResponse:
    """A deployment by its name, such as `ft:base:tenant:suffix:production`, with what the engine
    says about each version: it is asked for one token, which is not counted.
    """
    holder, stage = await _find(deps, caller, name)
    row = await deployment_of(deps, holder, stage)
    deployed = row.deployment
    others = [arm.model_id for arm in (deployed.second, deployed.shadow) if arm is not None]
    names = (deployed.model_id, *others)
    engine = engine_of(deps, caller.tenant, deployed, caller.key_id)
    states = await asyncio.gather(*(_health(deps, caller, version, engine) for version in names))
    return deployment_response(holder, stage, row, dict(zip(names, states, strict=True)))


@router.delete("/v1/deployments/{name:path}")
async def end_deployment(name: str, deps: WithDeps, caller: Caller) -> Deleted:
    """End a deployment: no version holds its stage, and nothing answers under its name."""
    holder, stage = await _find(deps, caller, name)
    await deps.decide(caller, MODEL, Promote(model_id=holder.id, stage="dev", expected=None))
    return Deleted(id=stage_name(holder.id, stage), object="deployment")


@router.delete("/v1/serving_pools/{serving_pool_id}")
async def remove_serving_pool(serving_pool_id: str, deps: WithDeps, caller: Caller) -> Deleted:
    """Remove a serving pool: its replicas finish what they answer, and end.

    One that a deployment names is refused with 409: nothing else would answer for it.
    """
    await SERVING_POOL.find(deps, caller.rows, serving_pool_id)
    for holder, stage, row in await deployments_of(deps, caller.tenant):
        if row.deployment.serving_pool == serving_pool_id:
            text = f"{stage_name(holder.id, stage)} is answered by {serving_pool_id}."
            advice = "Deploy it elsewhere first, or end that deployment."
            raise ApiError(409, errors.ILLEGAL_STATE, f"{text} {advice}", "serving_pool_id")
    await deps.decide(caller, JOB, RemoveServingPool(serving_pool_id=serving_pool_id))
    return Deleted(id=serving_pool_id, object="serving_pool")


async def _check_pool(deps: Deps, caller: Principal, pool: str, names: Sequence[str]) -> None:
    """Raise ApiError 404, 400 for a serving pool that does not exist, or of another base model."""
    if pool == LOCAL_POOL:
        return
    known = await SERVING_POOL.find(deps, caller.rows, pool, "serving_pool")
    base_id = known.terms.replica.base.base_id
    for name in names:
        if (await find_version(deps, caller, name)).lineage.base_id != base_id:
            text = f"the replicas of {pool} have the base model {base_id}, and {name} another one"
            raise invalid(text, "serving_pool")


async def _second(deps: Deps, caller: Principal, row: ModelRow, body: DeployRequest) -> Arm | None:
    """The other version in `traffic` with its share. Raises ApiError 400, 404."""
    refuse_unaskable(row.files, row.lineage.method, row.id)
    await look_at_base(deps, caller, row.lineage.base_id)
    if body.traffic is None:
        return None
    shares = {
        (await find_version(deps, caller, name)).id: _buckets(share, f"traffic.{name}")
        for name, share in body.traffic.items()
    }
    total = sum(body.traffic.values())
    if abs(total - 100) > PRECISION:
        raise invalid(f"the shares must add up to 100 percent; these are {total:g}", "traffic")
    if row.id not in shares:
        raise invalid(f"must have a share of {row.id}, which is deployed", "traffic")
    others = [name for name in shares if name != row.id]
    if not others:
        return None
    return await _arm(deps, caller, others[0], shares[others[0]])


async def _shadow(deps: Deps, caller: Principal, body: DeployRequest) -> Arm | None:
    if body.shadow is None:
        return None
    return await _arm(deps, caller, body.shadow.model, _buckets(body.shadow.share, "shadow.share"))


async def _arm(deps: Deps, caller: Principal, name: str, buckets: int) -> Arm:
    row = await find_version(deps, caller, name)
    refuse_unaskable(row.files, row.lineage.method, name)
    await look_at_base(deps, caller, row.lineage.base_id)
    return Arm(model_id=row.id, buckets=buckets)


def _buckets(percent: float, param: str) -> int:
    buckets = round(percent * BUCKETS_PER_PERCENT)
    if abs(buckets - percent * BUCKETS_PER_PERCENT) > PRECISION or buckets < 1:
        raise invalid("a share is a number of percent with at most two decimals", param)
    return buckets


async def _find(deps: Deps, caller: Principal, name: str) -> tuple[ModelRow, HeldStage]:
    """The version that holds the stage of a name. Raises ApiError 404."""
    holder = await version_named(deps, caller.tenant, name)
    stage = None if holder is None else _held(holder)
    if holder is None or stage is None or named_stage(name) != stage:
        raise not_found("deployment", name, "name")
    return holder, stage


def _held(holder: ModelRow) -> HeldStage | None:
    return next((stage for stage in HELD_STAGES if stage == holder.stage), None)


async def _health(deps: Deps, caller: Principal, name: str, engine: ChatEngine) -> HealthResponse:
    try:
        version = await find_version(deps, caller, name)
        model = await loadable(deps, caller, version, name)
    except ApiError as error:
        return HealthResponse(state="failed", message=error.message)
    return await health_of(engine, model)


PROBE_S: Final = 2.0  # longer than a token of a small model on one busy core
CONVERTING: Final = "Its files are being converted or loaded; this goes on. Ask again shortly."


async def health_of(
    engine: ChatEngine, model: EngineModel, probe_s: float = PROBE_S
) -> HealthResponse:
    """Probe a model with a one-token question. A model that is not loaded starts to load."""
    question = Question(model, (), Sampling(temperature=0, tokens_max=1), prompt="1")
    try:
        async with asyncio.timeout(probe_s), aclosing(engine.ask(question)) as replies:
            reply = await anext(replies)
    except TimeoutError:
        return HealthResponse(state="converting", message=CONVERTING)
    except ApiError as error:
        return HealthResponse(state="unavailable", message=error.message)
    if isinstance(reply, QuestionRefused):
        busy = reply.code in (BUSY, TENANT_BUSY)
        return HealthResponse(state="busy" if busy else "failed", message=reply.message)
    return HealthResponse(state="ready")
