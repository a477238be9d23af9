"""The model that a request names, as an engine loads it."""

from schemas import errors
from schemas.model import Base
from schemas.training import are_whole
from services.gateway.accounts.tables import TENANTS
from services.gateway.models.names import MODEL_PREFIX
from services.gateway.models.routes import find_base, version_named
from services.gateway.models.tables import BASES
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.errors import UNSUPPORTED, ApiError
from tunery.plan.methods import REWARD
from tunery.work.engine import EngineModel

QUARANTINED = "model_quarantined"


async def find_model(deps: Deps, caller: Principal, name: str) -> tuple[str, EngineModel]:
    """A base model by its id or alias, or a version of the caller's by its name or its stage.

    Its name in answers comes first: that of the version, where a stage was asked.

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
        _check_key(caller, base.base_id)
        return name, _engine_model(base)
    version = await version_named(deps, caller.tenant, name)
    if version is None:
        raise unknown(name)
    if version.quarantined:
        message = (
            f"The model '{name}' is in quarantine: its evaluation says that it answers worse than "
            "its base model. `gate` of its job says why."
        )
        raise ApiError(403, QUARANTINED, message, "model")
    if are_whole(version.files):
        message = (
            f"The model '{name}' has weights of its own, and chats load adapters alone. Download "
            "it with `tunery model download`, and serve the folder with vLLM or llama.cpp."
        )
        raise ApiError(400, UNSUPPORTED, message, "model")
    lineage = version.lineage
    if lineage.method == REWARD:
        message = (
            f"The model '{name}' is a reward model: it says what an answer is worth, and writes "
            "none. Download it with `tunery model download`; the page on training loads it."
        )
        raise ApiError(400, UNSUPPORTED, message, "model")
    _check_key(caller, lineage.base_id)
    row = await deps.views.first(BASES, {"id": lineage.base_id})
    if row is None:
        raise unknown(lineage.base_id)
    model = _engine_model(row.base)
    return version.id, EngineModel(
        base_id=model.base_id,
        base_path=model.base_path,
        base_sha256=lineage.base_sha256,
        context_length=model.context_length,
        adapter=version.files,
    )


def _engine_model(base: Base) -> EngineModel:
    return EngineModel(base.base_id, base.path, base.sha256, base.context_length)


def _check_key(caller: Principal, base_id: str) -> None:
    if caller.models is not None and base_id not in caller.models:
        message = f"This key may not use {base_id}. Use another key, or create one with it."
        raise ApiError(403, errors.FORBIDDEN, message, "model")


def unknown(name: str) -> ApiError:
    """The error for a model that does not exist or belongs to another tenant."""
    message = f"The model `{name}` does not exist or you do not have access to it."
    return ApiError(404, errors.UNKNOWN_BASE, message, "model")
