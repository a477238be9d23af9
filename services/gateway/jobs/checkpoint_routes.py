"""`/v1/fine_tuning/checkpoints`: downloads, and permissions of other tenants to download.

A permission lets another tenant download the adapter of that checkpoint, and nothing else. The
owner grants and revokes it. No response reveals whether a tenant of that name exists.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from fastapi import Query, Request

from schemas import errors
from schemas.ids import CHECKPOINT, PERMISSION
from schemas.model import Share, ShareCheckpoint, UnshareCheckpoint
from schemas.topics import MODEL
from schemas.training import TRAINED_FILES
from services.gateway.jobs.domain.checkpoint_responses import (
    CheckpointFilesResponse,
    checkpoint_files_response,
)
from services.gateway.models.domain.bodies import PROJECTS_MAX, PermissionRequest
from services.gateway.models.domain.names import MODEL_SUFFIX_CHARACTERS, checkpoint_name
from services.gateway.models.domain.responses import (
    CheckpointModelResponse,
    PermissionResponse,
    permission_response,
)
from services.gateway.models.download_routes import URL_MS, download_url
from services.gateway.views.tables.accounts import TENANTS
from services.gateway.views.tables.jobs import CHECKPOINTS, JOBS, CheckpointRow
from services.gateway.views.tables.models import MODELS, PERMISSIONS
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import ApiError, not_found
from services.gateway.web.domain.responses import Deleted, Page, listing
from services.gateway.web.pages import After, page
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within

MODEL_ROOT: Final = "/v1/models/{model_id:path}:ckpt-step-{step:int}"
ROOT: Final = "/v1/fine_tuning/checkpoints/{checkpoint_id:path}"
LIMIT: Final = 10
LIMIT_MAX: Final = 1_000
SAME_STEP_MAX: Final = 1_000  # checkpoints of one step among which a name is searched
#: `ft:…:12345678:ckpt-step-40`, the name of a checkpoint in OpenAI's API
NAME: Final = re.compile(r"ft:.+:(?P<job>[^:]+):ckpt-step-(?P<step>[0-9]{1,9})")
router = new_router("fine-tuning")


@router.get(MODEL_ROOT)
async def retrieve_checkpoint_model(
    model_id: str, step: int, deps: WithDeps, caller: Caller
) -> CheckpointModelResponse:
    """A checkpoint by its name in OpenAI's API."""
    row = await _own(deps, caller, checkpoint_name(model_id, step))
    return CheckpointModelResponse(
        id=checkpoint_name(model_id, step),
        created=row.created_at,
        owned_by=row.tenant,
        parent=model_id.split(":")[1],
        job_id=row.job_id,
        checkpoint_id=row.id,
        step_number=row.step,
    )


@router.get(MODEL_ROOT + "/adapter")
async def checkpoint_model_adapter(
    model_id: str, step: int, request: Request, deps: WithDeps, caller: Caller
) -> CheckpointFilesResponse:
    """Download URLs of the adapter of a checkpoint, by its name in OpenAI's API."""
    return await download_checkpoint(checkpoint_name(model_id, step), request, deps, caller)


@router.post(ROOT + "/permissions")
async def create_permissions(
    checkpoint_id: str, body: PermissionRequest, deps: WithDeps, caller: Caller
) -> Page[PermissionResponse]:
    """Permit tenants to download a checkpoint. Permissions that exist already are kept."""
    row = await _own(deps, caller, checkpoint_id)
    shares = tuple(
        Share(permission_id=deps.fresh(PERMISSION), project_id=project)
        for project in dict.fromkeys(body.project_ids)
    )
    command = ShareCheckpoint(checkpoint_id=row.id, shares=shares)
    await deps.decide(caller, MODEL, command)
    where = {"tenant": caller.tenant, "checkpoint_id": row.id}
    permissions = [
        await deps.views.first(PERMISSIONS, {**where, "project_id": share.project_id})
        for share in shares
    ]
    return listing(
        Page[PermissionResponse],
        [permission_response(row) for row in permissions if row is not None],
        False,
    )


@router.get(ROOT + "/permissions")
async def list_permissions(
    checkpoint_id: str,
    deps: WithDeps,
    caller: Caller,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT,
    order: Literal["ascending", "descending"] = "descending",
    project_id: str | None = None,
) -> Page[PermissionResponse]:
    """The permissions of a checkpoint, newest first unless `order` says otherwise."""
    row = await _own(deps, caller, checkpoint_id)
    where = {"tenant": caller.tenant, "checkpoint_id": row.id}
    if project_id is not None:
        where["project_id"] = project_id
    rows, more = await page(
        deps.views, PERMISSIONS, where, limit=limit, after=after, descending=order == "descending"
    )
    return listing(Page[PermissionResponse], [permission_response(row) for row in rows], more)


@router.delete(ROOT + "/permissions/{permission_id}")
async def delete_permission(
    checkpoint_id: str, permission_id: str, deps: WithDeps, caller: Caller
) -> Deleted:
    """Revoke a permission of the checkpoint."""
    row = await _own(deps, caller, checkpoint_id)
    where = {"tenant": caller.tenant, "checkpoint_id": row.id, "id": permission_id}
    if await deps.views.first(PERMISSIONS, where) is None:
        raise not_found("permission", permission_id, "permission_id")
    command = UnshareCheckpoint(permission_id=permission_id)
    await deps.decide(caller, MODEL, command)
    return Deleted(id=permission_id, object="checkpoint.permission")


@router.get(ROOT + "/download")
async def download_checkpoint(
    checkpoint_id: str, request: Request, deps: WithDeps, caller: Caller
) -> CheckpointFilesResponse:
    """Download URLs of the adapter at that step, for its owner and for tenants with permission."""
    row = await find_checkpoint(deps, caller.tenant, checkpoint_id)
    if row is None:
        row = await _find_shared(deps, caller, checkpoint_id)
    if not any(file.name in TRAINED_FILES for file in row.files):
        message = f"{checkpoint_id} holds several configurations that took turns, to go on from."
        raise ApiError(404, errors.NOT_FOUND, message, "checkpoint_id")
    urls = await _urls(deps, request, row)
    if not urls:
        message = f"The files of {checkpoint_id} are not kept any more; only the newest ones are."
        raise ApiError(404, errors.NOT_FOUND, message, "checkpoint_id")
    return checkpoint_files_response(row, urls, (deps.clock.now_ms() + URL_MS) // 1_000)


async def _urls(deps: Deps, request: Request, row: CheckpointRow) -> Mapping[str, str]:
    own = f"t/{row.tenant}/"  # pools refuse checkpoints with other files; here it would matter most
    adapter = [f for f in row.files if f.name in TRAINED_FILES and f.blob.startswith(own)]
    return {
        file.name: download_url(deps, request, row.tenant, file)
        for file in adapter
        if await within(deps.blobs.exists(file.blob))
    }


async def _own(deps: Deps, caller: Principal, checkpoint_id: str) -> CheckpointRow:
    row = await find_checkpoint(deps, caller.tenant, checkpoint_id)
    if row is None:
        raise not_found("checkpoint", checkpoint_id, "checkpoint_id")
    return row


async def find_checkpoint(deps: Deps, tenant: str, checkpoint_id: str) -> CheckpointRow | None:
    """The tenant's checkpoint with this id, or with this name in OpenAI's form; None also where the
    version that its job made is deleted.
    """
    row = await _named(deps, tenant, checkpoint_id)
    if row is None:
        return None
    job = await deps.views.first(JOBS, {"tenant": tenant, "id": row.job_id})
    if job is None or job.model_id is None:
        return row
    version = await deps.views.first(MODELS, {"tenant": tenant, "id": job.model_id})
    return None if version is None or version.deleted else row


async def _named(deps: Deps, tenant: str, checkpoint_id: str) -> CheckpointRow | None:
    if checkpoint_id.startswith(CHECKPOINT):
        return await deps.views.first(CHECKPOINTS, {"tenant": tenant, "id": checkpoint_id})
    named = NAME.fullmatch(checkpoint_id)
    if named is None:
        return None
    where = {"tenant": tenant, "step": int(named["step"])}
    rows = await deps.views.page(CHECKPOINTS, where, limit=SAME_STEP_MAX)
    return next((r for r in rows if r.job_id[-MODEL_SUFFIX_CHARACTERS:] == named["job"]), None)


async def _find_shared(deps: Deps, caller: Principal, checkpoint_id: str) -> CheckpointRow:
    """Another tenant's checkpoint that the caller may download. It is found by its id only.

    A permission that is older than the tenant was meant for nobody, or for another of that name.
    """
    known = await deps.views.first(TENANTS, {"id": caller.tenant})
    since = 0 if known is None else known.created_at
    where = {"project_id": caller.tenant, "checkpoint_id": checkpoint_id}
    for permission in await deps.views.page(PERMISSIONS, where, limit=PROJECTS_MAX):
        row = await find_checkpoint(deps, permission.tenant, checkpoint_id)
        if row is not None and permission.created_at >= since:
            return row
    raise not_found("checkpoint", checkpoint_id, "checkpoint_id")
