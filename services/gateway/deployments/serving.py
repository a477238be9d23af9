"""A version as an engine loads it, and the deployment of the stage that it holds."""

from collections.abc import Sequence
from typing import Final

from schemas import errors
from schemas.deployments import LOCAL_POOL, Deployment
from schemas.model import Base, HeldStage
from schemas.training import BlobFile, MethodName, are_whole
from services.gateway.models.domain.names import HELD_STAGES
from services.gateway.models.routes import MODELS_MAX
from services.gateway.ports import ChatEngine
from services.gateway.serving_pools.replicas import ReplicaEngine
from services.gateway.views.tables.deployments import DEPLOYMENTS, DeploymentRow, deployment_key
from services.gateway.views.tables.models import BASES, MODELS, ModelRow
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.errors import UNSUPPORTED, ApiError
from tunery.plan.methods import REWARD
from tunery.work.engine import EngineModel

QUARANTINED: Final = "model_quarantined"


async def deployment_of(deps: Deps, holder: ModelRow, stage: HeldStage) -> DeploymentRow:
    """Return the deployment of a stage; without one the version that holds it answers alone."""
    key = deployment_key(holder.series, stage)
    row = await deps.views.first(DEPLOYMENTS, {"tenant": holder.tenant, "id": key})
    if row is not None and row.deployment.model_id == holder.id:
        return row
    alone = Deployment(series=holder.series, stage=stage, model_id=holder.id)
    return DeploymentRow(tenant=holder.tenant, id=key, since=holder.stage_at, deployment=alone)


async def deployments_of(
    deps: Deps, tenant: str
) -> list[tuple[ModelRow, HeldStage, DeploymentRow]]:
    """All stages that a version of the tenant holds, with the version and how they are answered."""
    where = {"tenant": tenant, "stage": HELD_STAGES}
    return [
        (holder, stage, await deployment_of(deps, holder, stage))
        for holder in await deps.views.page(MODELS, where, limit=MODELS_MAX)
        for stage in HELD_STAGES
        if stage == holder.stage
    ]


def engine_of(deps: Deps, tenant: str, deployment: Deployment, caller: str) -> ChatEngine:
    """Return the engine of a deployment. caller: its questions always go to the same replica."""
    if deployment.serving_pool == LOCAL_POOL:
        return deps.engine
    return ReplicaEngine(deps.views, deps.seal, tenant, deployment.serving_pool, caller)


async def loadable(deps: Deps, caller: Principal, version: ModelRow, name: str) -> EngineModel:
    """The version that was asked for as `name`.

    Raises ApiError 400 for a whole model, 403 for a base model that the key may not use, 404 for
    one that is gone.
    """
    lineage = version.lineage
    refuse_unaskable(version.files, lineage.method, name)
    check_key(caller, lineage.base_id)
    row = await deps.views.first(BASES, {"id": lineage.base_id})
    if row is None:
        raise unknown(lineage.base_id)
    model = engine_model(row.base)
    return EngineModel(
        base_id=model.base_id,
        base_path=model.base_path,
        base_sha256=version.base_sha256,
        context_length=model.context_length,
        adapter=version.files,
    )


def refuse_quarantined(version: ModelRow, name: str) -> None:
    """Raise ApiError 403 for a version in quarantine that is asked for by its own name.

    By the name of a stage it answers until people move the stage on.
    """
    if version.quarantined:
        message = (
            f"The model '{name}' is in quarantine: its evaluation says that it answers worse than "
            "its base model. `gate` of its job says why."
        )
        raise ApiError(403, QUARANTINED, message, "model")


def refuse_unaskable(files: Sequence[BlobFile], method: MethodName, name: str) -> None:
    """Raise ApiError 400 for what is no adapter, or writes no answers."""
    if method == REWARD:
        message = (
            f"The model '{name}' is a reward model: it says what an answer is worth, and writes "
            "none. Download it with `tunery model download`; the page on training loads it."
        )
        raise ApiError(400, UNSUPPORTED, message, "model")
    if are_whole(files):
        message = (
            f"The model '{name}' has weights of its own, and chats load adapters alone. Download "
            "it with `tunery model download`, and serve the folder with vLLM or llama.cpp."
        )
        raise ApiError(400, UNSUPPORTED, message, "model")


def engine_model(base: Base) -> EngineModel:
    """A base model as an engine loads it."""
    return EngineModel(base.base_id, base.path, base.sha256, base.context_length)


def check_key(caller: Principal, base_id: str) -> None:
    """Raise ApiError 403 for a base model that the key may not use."""
    if caller.models is not None and base_id not in caller.models:
        message = f"This key may not use {base_id}. Use another key, or create one with it."
        raise ApiError(403, errors.FORBIDDEN, message, "model")


def unknown(name: str) -> ApiError:
    """The error for a model that does not exist or belongs to another tenant."""
    message = f"The model `{name}` does not exist or you do not have access to it."
    return ApiError(404, errors.UNKNOWN_BASE, message, "model")
