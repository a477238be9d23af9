"""`/v1/models/{id}/files`: the files of a base model, where the operator shares it."""

import asyncio
from pathlib import Path
from typing import Final, Literal

from fastapi.responses import FileResponse

from schemas import errors
from schemas.model import Base
from services.gateway.models.routes import find_base
from services.gateway.web.deps import Caller, Deps, WithDeps
from services.gateway.web.domain.errors import FORBIDDEN, ApiError
from services.gateway.web.domain.responses import ListItem, Page, listing
from services.gateway.web.routing import new_router
from tunery.platform.blobs.base_files import base_files

ROOT: Final = "/v1/models/{model_id:path}/files"
router = new_router("models")


class BaseFileResponse(ListItem):
    """A file of a base model. Together they have the `sha256` of the base model."""

    object: Literal["model.file"] = "model.file"
    id: str
    bytes: int


@router.get(ROOT)
async def list_base_files(model_id: str, deps: WithDeps, caller: Caller) -> Page[BaseFileResponse]:
    """The files that a shared base model is loaded from."""
    files = await _files(await _shared(deps, model_id))
    return listing(
        Page[BaseFileResponse],
        [BaseFileResponse(id=path.name, bytes=path.stat().st_size) for path in files],
        False,
    )


@router.get(ROOT + "/{name}", response_class=FileResponse)
async def download_base_file(
    model_id: str, name: str, deps: WithDeps, caller: Caller
) -> FileResponse:
    """The bytes of one file of a shared base model."""
    base = await _shared(deps, model_id)
    for path in await _files(base):
        if path.name == name:
            return FileResponse(path, media_type="application/octet-stream", filename=name)
    raise ApiError(404, errors.NOT_FOUND, f"{base.base_id} has no file {name}", "name")


async def _shared(deps: Deps, name: str) -> Base:
    """A base model that tenants may download. Raises ApiError 404, 403."""
    base = await find_base(deps, name)
    if base is None:
        raise ApiError(404, errors.NOT_FOUND, f"There is no base model {name}", "model")
    if not base.shared:
        where = f" It is {base.source} at its hub." if base.source else ""
        message = (
            f"{base.base_id} is not shared for download.{where} The operator shares it with "
            "`tunery base add … --share`."
        )
        raise ApiError(403, FORBIDDEN, message, "model")
    return base


async def _files(base: Base) -> list[Path]:
    """Raises ApiError 503 when this gateway does not find the folder."""
    try:
        return await asyncio.to_thread(base_files, Path(base.path))
    except OSError as error:
        message = f"The files of {base.base_id} cannot be read here. Tell the operator."
        raise ApiError(503, "unavailable", message) from error
