"""`/v1/bases/folders`: a base model's folder on this machine, put together from uploaded files."""

import asyncio
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from services.gateway.files.domain.bodies import BASE_MODEL, BaseFolderRequest
from services.gateway.views.tables.files import FILES, FileRow
from services.gateway.web.deps import Admin, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import invalid, not_found
from services.gateway.web.domain.responses import Response
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within
from tunery.platform.blobs.base_files import CONFIG, NAMES

WEIGHTS: Final = ".safetensors"
READABLE: Final = 0o644  # by agents of other users
SHOWN_HEX: Final = 12
router = new_router("models")


class BaseFolderResponse(Response):
    """The folder of an uploaded base model. `path`: value for `POST /v1/bases`. `bytes`: size of
    all its files.
    """

    object: Literal["base.folder"] = "base.folder"
    path: str
    bytes: int


@router.post("/v1/bases/folders", status_code=201)
async def create_base_folder(
    body: BaseFolderRequest, deps: WithDeps, admin: Admin
) -> BaseFolderResponse:
    """Write uploaded files into a folder of the base models of this service.

    Only configuration, tokenizer, template and safetensors are taken. The same files again are the
    same folder. Then `POST /v1/bases` describes it; nodes must be able to read it.
    """
    files = await _known_files(deps, admin, body.files)
    digest = hashlib.sha256("".join(f"{name}\0{row.sha256}\n" for name, row in files).encode())
    folder = deps.bases_dir / f"{body.name}-{digest.hexdigest()[:SHOWN_HEX]}"
    missing = [(name, row) for name, row in files if not _is_there(folder / name, row)]
    await asyncio.to_thread(_make, folder, sum(row.bytes for _, row in missing))
    for name, row in missing:
        # it appears complete, with its hash checked, or not at all
        await within(deps.blobs.get_file(row.blob, folder / name, sha256=row.sha256), row.bytes)
        (folder / name).chmod(READABLE)
    return BaseFolderResponse(path=str(folder), bytes=sum(row.bytes for _, row in files))


async def _known_files(
    deps: Deps, admin: Principal, files: Mapping[str, str]
) -> list[tuple[str, FileRow]]:
    """The files by name. Raises ApiError 400, 404."""
    for name in files:
        if name not in NAMES and not name.endswith(WEIGHTS):
            text = f"{name} is no file of a base model; there are *{WEIGHTS}, {', '.join(NAMES)}"
            raise invalid(text, "files")
    if CONFIG not in files or not any(name.endswith(WEIGHTS) for name in files):
        raise invalid(f"a base model has {CONFIG} and *{WEIGHTS}", "files")
    known = []
    for name, file_id in sorted(files.items()):
        row = await deps.views.first(FILES, {"tenant": admin.tenant, "id": file_id})
        if row is None:
            raise not_found("File object", file_id, f"files.{name}")
        if row.purpose != BASE_MODEL:
            text = f"{file_id} has the purpose {row.purpose!r}; upload it with {BASE_MODEL!r}"
            raise invalid(text, f"files.{name}")
        known.append((name, row))
    return known


def _is_there(path: Path, row: FileRow) -> bool:
    return path.is_file() and path.stat().st_size == row.bytes


def _make(folder: Path, needed: int) -> None:
    """Make the folder. Raises ApiError 400 where it cannot be, or its disk has too little space."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        text = f"{folder} cannot be written: {error.strerror}; set TUNERY_GATEWAY_BASES_DIR"
        raise invalid(text, "files") from error
    if needed > free:
        raise invalid(f"the files need {needed} bytes, and {folder} has {free} free", "files")
