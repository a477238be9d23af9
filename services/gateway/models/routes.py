"""`/v1/models`: base models and fine-tuned versions, their stages, their files; `/v1/bases`."""

import asyncio
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from fastapi import Query, Request
from msgspec.structs import replace

from schemas import errors
from schemas.ids import MODEL as MODEL_PREFIX
from schemas.lifetime import RestoreVersion
from schemas.model import (
    AddBase,
    Base,
    BaseProof,
    DeleteVersion,
    Promote,
    RecordBaseBytes,
    RollBack,
)
from schemas.records import build_from
from schemas.topics import MODEL
from services.gateway.models.domain.bodies import (
    AliasRequest,
    BaseRequest,
    PromoteRequest,
    RollbackRequest,
)
from services.gateway.models.domain.names import HELD_STAGES, is_of_line, named_stage
from services.gateway.models.domain.responses import (
    AdapterResponse,
    AliasModelResponse,
    BaseModelResponse,
    FineTunedModelResponse,
    adapter_response,
    alias_responses,
    base_response,
    model_response,
)
from services.gateway.models.domain.stages import former_holder
from services.gateway.models.download_routes import URL_MS, download_url
from services.gateway.views.tables.models import BASES, MODEL_CHANGES, MODELS, BaseRow, ModelRow
from services.gateway.web.deps import Admin, Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import ApiError, invalid
from services.gateway.web.domain.responses import Deleted, Page, listing
from services.gateway.web.resources import Resource, each, shared_rows
from services.gateway.web.routing import new_router
from tunery.platform.blobs.base_files import default_cache, matches
from tunery.platform.seal.model_names import logged_name

MODELS_MAX: Final = 10_000
BASES_MAX: Final = 1_000
CHANGES_MAX: Final = 1_000
ANY: Final = (False, True)  # of what may be deleted
AnyModelResponse: TypeAlias = BaseModelResponse | FineTunedModelResponse | AliasModelResponse
Kind = Annotated[Literal["base", "fine-tuned", "alias"] | None, Query(alias="type")]
router = new_router("models")

# Ids may contain slashes: routes with a suffix come before the route that matches any rest.


@router.get("/v1/models")
async def list_models(
    deps: WithDeps,
    caller: Caller,
    kind: Kind = None,
    base_model: str | None = None,
    deleted: bool = False,
) -> Page[AnyModelResponse]:
    """List base models, then fine-tuned versions, newest first, then other names of both that
    answer. It has no pages, as in OpenAI's.

    `deleted=true`: the versions that can be restored, alone.
    """
    bases: list[BaseModelResponse] = []
    versions: list[FineTunedModelResponse] = []
    if kind != "fine-tuned" and not deleted:
        bases = [base_response(row) for row in await _bases(deps)]
    if kind != "base":
        where = {"tenant": caller.tenant, "deleted": deleted}
        rows = await deps.views.page(MODELS, where, limit=MODELS_MAX)
        versions = [model_response(row) for row in rows]
    if base_model is not None:
        bases = [base for base in bases if base.id == base_model]
        versions = [version for version in versions if version.parent == base_model]
    names = () if deleted else alias_responses(bases, versions)
    models = [*bases, *versions, *names]
    if kind is not None:
        models = [model for model in models if model.type == kind]
    return listing(Page[AnyModelResponse], models, False)


@router.get("/v1/models/{model_id:path}/adapter")
async def model_adapter(
    model_id: str, request: Request, deps: WithDeps, caller: Caller
) -> AdapterResponse:
    """Download URLs of the version's files, valid for an hour."""
    row = await find_version(deps, caller, model_id)
    urls = {file.name: download_url(deps, request, caller.tenant, file) for file in row.files}
    return adapter_response(row, urls, (deps.clock.now_ms() + URL_MS) // 1_000)


@router.post("/v1/models/{model_id:path}/promote")
async def promote_model(
    model_id: str, body: PromoteRequest, deps: WithDeps, caller: Caller
) -> FineTunedModelResponse:
    """Move a version to a stage, if `expected` is the version that holds the stage now."""
    row = await find_version(deps, caller, model_id)
    if body.stage in ("staging", "production"):
        await look_at_base(deps, caller, row.lineage.base_id)
    expected = await expected_holder(deps, caller, body.expected)
    await deps.decide(caller, MODEL, Promote(model_id=row.id, stage=body.stage, expected=expected))
    return model_response(await find_version(deps, caller, row.id))


@router.post("/v1/models/{model_id:path}/rollback")
async def roll_back_model(
    model_id: str, body: RollbackRequest, deps: WithDeps, caller: Caller
) -> FineTunedModelResponse:
    """Return a stage from this version to the one before it; the response is that version."""
    row = await find_version(deps, caller, model_id)
    await deps.decide(caller, MODEL, RollBack(series=row.series, stage=body.stage, expected=row.id))
    where = {"tenant": caller.tenant, "series": row.series, "stage": body.stage, "deleted": False}
    holder = await deps.views.first(MODELS, where)
    return model_response(holder if holder is not None else row)


@router.get("/v1/models/{model_id:path}")
async def retrieve_model(model_id: str, deps: WithDeps, caller: Caller) -> AnyModelResponse:
    base = await _find_row(deps, model_id)
    if base is not None:
        return base_response(base)
    row = await find_version(deps, caller, model_id)
    return model_response(row, deps.unseal, await _former(deps, row))


@router.post("/v1/models/{model_id:path}/restore")
async def restore_model(model_id: str, deps: WithDeps, caller: Caller) -> FineTunedModelResponse:
    """Restore a version that was deleted less than 30 days ago, as it was."""
    row = await version_of_id(deps, caller.tenant, model_id, ANY)
    if row is None:
        raise unknown_base(model_id)
    restore = RestoreVersion(model_id=row.id)
    await deps.decide(caller, MODEL, restore)
    return model_response(await find_version(deps, caller, row.id), deps.unseal)


@router.delete("/v1/models/{model_id:path}")
async def delete_model(
    model_id: str, deps: WithDeps, caller: Caller, erase: bool = False
) -> Deleted:
    """Delete a fine-tuned version. Base models cannot be deleted.

    It can be restored for 30 days, and is billed until its files are erased then. `erase=true`
    erases them at once, also those of a version that was deleted before.
    """
    if await deps.views.first(BASES, {"id": model_id}) is not None:
        raise invalid("Base models cannot be deleted; only your fine-tuned versions can.", "id")
    row = await version_of_id(deps, caller.tenant, model_id, ANY) if erase else None
    if row is None:
        row = await find_version(deps, caller, model_id)
    delete = DeleteVersion(model_id=row.id, erase=erase)
    await deps.decide(caller, MODEL, delete)
    return Deleted(id=model_id, object="model")


BASE: Final = Resource(
    noun="base model",
    table=BASES,
    response=BaseModelResponse,
    respond=each(lambda _, row: base_response(row)),
    rows=shared_rows,
    newest_first=False,
    limit=BASES_MAX,
    limit_max=BASES_MAX,
)
BASE.add_list(router, "/v1/bases", "list_bases", "List base models.")


@router.post("/v1/bases", status_code=201)
async def add_base(body: BaseRequest, deps: WithDeps, admin: Admin) -> BaseModelResponse:
    """Register a base model; its folder is hashed. Repeating the request changes nothing."""
    known, read = await asyncio.gather(
        find_base(deps, body.id), deps.bases.read(body.id, body.path, body.licence)
    )
    kept = known or read
    base = replace(
        read,
        aliases=kept.aliases if body.aliases is None else tuple(body.aliases),
        source=kept.source if body.source is None else body.source,
        revision=kept.revision if body.revision is None else body.revision,
        shared=kept.shared if body.shared is None else body.shared,
        proof=kept.proof if body.proof is None else build_from(BaseProof, body.proof),
    )
    return await _add(deps, admin, base)


@router.post("/v1/bases/{base_id:path}/aliases")
async def set_base_aliases(
    base_id: str, body: AliasRequest, deps: WithDeps, admin: Admin
) -> BaseModelResponse:
    """Set the other names by which requests may name a base model."""
    row = await deps.views.first(BASES, {"id": base_id})
    if row is None:
        raise unknown_base(base_id)
    return await _add(deps, admin, replace(row.base, aliases=tuple(body.aliases)))


async def _add(deps: Deps, admin: Principal, base: Base) -> BaseModelResponse:
    """Write a base model to every partition. Raises ApiError 400 for a name that is taken."""
    # no other base model may have one of the names
    for name in (base.base_id, *base.aliases):
        row = await _find_row(deps, name)
        if row is not None and row.id != base.base_id:
            raise invalid(f"{name!r} is already a name of {row.id}; choose another", "aliases")
    if base.base_id in base.aliases:
        raise invalid(f"{base.base_id!r} is its id; an alias is another name", "aliases")
    return await decide_for_base(deps, admin, base.base_id, AddBase(base=base))


async def decide_for_base(
    deps: Deps, caller: Principal, base_id: str, command: AddBase | RecordBaseBytes
) -> BaseModelResponse:
    """Send a command about a base model to every partition; the base model as it then is."""
    await deps.decide_everywhere(caller, MODEL, command)
    row = await deps.views.first(BASES, {"id": base_id})
    if row is None:
        raise unknown_base(base_id)
    return base_response(row)


async def look_at_base(deps: Deps, caller: Principal, base_id: str) -> None:
    """Record whether the files of a base model are those that were added, if they are here."""
    row = await deps.views.first(BASES, {"id": base_id})
    if row is None:
        return
    try:
        sha256 = await hash_now(row.base, default_cache())
    except OSError:
        return  # on the nodes alone: they look before they use it
    if sha256 != (row.drifted_sha256 or row.base.sha256):
        command = RecordBaseBytes(base_id=base_id, sha256=sha256)
        await decide_for_base(deps, caller, base_id, command)


async def hash_now(base: Base, cache: Path | None) -> str:
    """Hash of the files of a base model where they lie; of those unchanged since from the cache.

    Raises OSError when they are not here.
    """
    changed = await asyncio.to_thread(matches, Path(base.path), base.sha256, cache)
    return changed or base.sha256


async def find_base(deps: Deps, name: str) -> Base | None:
    """The base model with this id, or else with this alias."""
    row = await _find_row(deps, name)
    return None if row is None else row.base


async def _find_row(deps: Deps, name: str) -> BaseRow | None:
    row = await deps.views.first(BASES, {"id": name})
    if row is not None or name.startswith(MODEL_PREFIX):
        return row
    return next((other for other in await _bases(deps) if name in other.base.aliases), None)


async def _bases(deps: Deps) -> list[BaseRow]:
    return list(await deps.views.page(BASES, {}, limit=BASES_MAX, descending=False))


async def find_version(deps: Deps, caller: Principal, model_id: str) -> ModelRow:
    """A version of the caller's, by its name or by the stage that it holds. Raises ApiError 404."""
    row = await version_named(deps, caller.tenant, model_id)
    if row is None:
        raise unknown_base(model_id)
    return row


async def version_named(deps: Deps, tenant: str, name: str) -> ModelRow | None:
    """The tenant's version of this name, or that in `ft:base:tenant:suffix:production`."""
    stage = named_stage(name)
    if stage is None:
        return await version_of_id(deps, tenant, name)
    where = {"tenant": tenant, "stage": stage, "deleted": False}
    rows = await deps.views.page(MODELS, where, limit=MODELS_MAX)
    line = logged_name(deps.seal, tenant, name)
    return next((row for row in rows if is_of_line(line, _logged(deps, row))), None)


async def version_of_id(
    deps: Deps, tenant: str, name: str, deleted: tuple[bool, ...] = (False,)
) -> ModelRow | None:
    """The tenant's version of this name. One of before has its suffix in the clear on the log."""
    ids = (name, logged_name(deps.seal, tenant, name))
    return await deps.views.first(MODELS, {"tenant": tenant, "id": ids, "deleted": deleted})


async def _former(deps: Deps, row: ModelRow) -> str | None:
    """The version to which a roll-back returns the stage that a version holds."""
    if row.stage not in HELD_STAGES:
        return None
    line = {"tenant": row.tenant, "series": row.series, "deleted": ANY}
    rows = await deps.views.page(MODELS, line, limit=MODELS_MAX)
    where = {"tenant": row.tenant, "model_id": tuple(each.id for each in rows)}
    newest = await deps.views.page(MODEL_CHANGES, where, limit=CHANGES_MAX)
    possible = {
        each.id
        for each in rows
        if not each.deleted and not each.quarantined and each.stage not in HELD_STAGES
    }
    return former_holder(reversed(newest), row.stage, possible)


async def expected_holder(deps: Deps, caller: Principal, name: str | None) -> str | None:
    """The version that a request expects in a stage, by its id on the log.

    Raises ApiError 404 for one that never was: what a request says is not written to the log.
    """
    if name is None:
        return None
    row = await version_of_id(deps, caller.tenant, name, ANY)
    if row is None:
        raise unknown_base(name, "expected")
    return row.id


def _logged(deps: Deps, row: ModelRow) -> str:
    return logged_name(deps.seal, row.tenant, row.id)


def unknown_base(model_id: str, param: str = "model") -> ApiError:
    """The error for a model that does not exist, or is another tenant's."""
    message = f"The model '{model_id}' does not exist"
    return ApiError(404, errors.UNKNOWN_BASE, message, param)
