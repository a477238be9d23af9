"""The model that a request names, as an engine loads it, and the engine that is asked."""

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from schemas import errors
from schemas.deployments import BUCKETS, LOCAL_POOL, Deployment
from schemas.ids import MODEL as MODEL_PREFIX
from schemas.training import TRAINED_FILES
from services.gateway.chat.observed import ObservedEngine, Shadow
from services.gateway.deployments.domain.buckets import bucket_of, is_second
from services.gateway.deployments.serving import (
    check_key,
    deployment_of,
    engine_model,
    engine_of,
    loadable,
    refuse_quarantined,
    refuse_unaskable,
    unknown,
)
from services.gateway.jobs.checkpoint_routes import find_checkpoint
from services.gateway.models.domain.names import named_stage
from services.gateway.models.routes import find_base, version_named
from services.gateway.ports import ChatEngine
from services.gateway.views.tables.accounts import TENANTS
from services.gateway.views.tables.jobs import JOBS
from services.gateway.views.tables.models import ModelRow
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.storage import within
from tunery.work.engine import EngineModel
from tunery.work.own_chat import OwnChat

DRAWN_BYTES: Final = 8


@dataclass(frozen=True)
class ServedModel:
    """Model that answers."""

    name: str  # name of the model in answers; if a stage was requested, that of its version
    model: EngineModel
    engine: ChatEngine


async def find_model(
    deps: Deps, caller: Principal, name: str, user: str | None = None
) -> ServedModel:
    """A base model by its id or alias; a version of the caller's by its name or its stage, or a
    checkpoint by its name.

    user: whom the caller asks for; a stage's second version answers a share of them.

    Raises ApiError: 404 for any other name, 400 for a whole or a reward model, 403 for a version in
    quarantine, a base model that the key may not use, or a tenant that is suspended.
    """
    tenant = await deps.views.first(TENANTS, {"id": caller.tenant})
    if tenant is not None and tenant.suspended_at is not None:
        message = "This tenant is suspended: its models do not answer. Ask the operator."
        raise ApiError(403, errors.SUSPENDED, message)
    if not name.startswith(MODEL_PREFIX):
        base = await find_base(deps, name)
        if base is None:
            raise unknown(name)
        check_key(caller, base.base_id)
        return ServedModel(name, engine_model(base), deps.engine)
    version = await version_named(deps, caller.tenant, name)
    if version is None:
        return ServedModel(name, await _checkpoint(deps, caller, name), deps.engine)
    stage = named_stage(name)
    if stage is not None:
        deployment = (await deployment_of(deps, version, stage)).deployment
        is_local = deployment.serving_pool == LOCAL_POOL
        if deployment.second is not None or deployment.shadow is not None or not is_local:
            return await _deployed(deps, caller, version, deployment, user)
    else:
        refuse_quarantined(version, name)
    return ServedModel(version.id, await loadable(deps, caller, version, name), deps.engine)


async def _deployed(
    deps: Deps, caller: Principal, first: ModelRow, deployment: Deployment, user: str | None
) -> ServedModel:
    """The version of the deployment that answers this caller, and its shadow."""
    subject = f"user:{user}" if user else f"key:{caller.key_id}"
    bucket = bucket_of(deps.seal.hmac(caller.tenant, f"{deployment.salt}:{subject}"))
    version, second = first, deployment.second
    if second is not None and is_second(deployment, bucket):
        version = await _version(deps, caller, second.model_id)
    observed = ObservedEngine(
        engine_of(deps, caller.tenant, deployment, str(bucket)),
        deps.traffic,
        deps.clock,
        caller.tenant,
        deployment,
        "first" if version is first else "second",
        bucket,
        await _shadow(deps, caller, deployment),
    )
    return ServedModel(version.id, await loadable(deps, caller, version, version.id), observed)


async def _checkpoint(deps: Deps, caller: Principal, name: str) -> EngineModel:
    """The adapter of one of the caller's checkpoints. The gate judges versions alone.

    Raises ApiError 400 for whole weights and reward models, 404 where it is not kept.
    """
    row = await find_checkpoint(deps, caller.tenant, name)
    if row is None:
        raise unknown(name)
    job = await deps.views.first(JOBS, {"tenant": caller.tenant, "id": row.job_id})
    if job is None:
        raise unknown(name)
    own = f"t/{caller.tenant}/"
    files = tuple(f for f in row.files if f.name in TRAINED_FILES and f.blob.startswith(own))
    refuse_unaskable(files, job.settled.hyper.method, name)
    check_key(caller, job.spec.base.base_id)
    if not files or not await within(deps.blobs.exists(files[0].blob)):
        message = f"The files of {name} are not kept any more: raise training.keep_checkpoints."
        raise ApiError(404, errors.UNKNOWN_BASE, message, "model")
    chat = job.spec.chat
    opened = None if chat is None else OwnChat.opened(chat, deps.seal.open)
    return replace(engine_model(job.spec.base), adapter=files, chat=opened)


async def _shadow(deps: Deps, caller: Principal, deployment: Deployment) -> Shadow | None:
    """The version to ask as well, for the deployment's share of questions."""
    shadow = deployment.shadow
    drawn = int.from_bytes(deps.draw(DRAWN_BYTES)) % BUCKETS
    if shadow is None or drawn >= shadow.buckets:
        return None
    try:
        version = await _version(deps, caller, shadow.model_id)
        return Shadow(version.id, await loadable(deps, caller, version, version.id))
    except ApiError:
        return None  # the client must not notice


async def _version(deps: Deps, caller: Principal, name: str) -> ModelRow:
    row = await version_named(deps, caller.tenant, name)
    if row is None:
        raise unknown(name)
    return row
