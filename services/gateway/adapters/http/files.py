"""`/v1/files`."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from schemas import errors
from schemas.dataset import DeleteFile, RegisterFile
from schemas.ids import FILE
from schemas.topics import DATASET
from services.gateway.adapters.http.deps import Caller, Deps, Principal, WithDeps
from services.gateway.adapters.http.multipart import Form, boundary_of, receive_form
from services.gateway.adapters.http.pages import After, page
from services.gateway.adapters.http.storage import within
from services.gateway.adapters.metrics import UPLOAD_BYTES
from services.gateway.domain.errors import INCOMPLETE, UNSUPPORTED, ApiError, invalid
from services.gateway.domain.shapes import deleted, listing
from services.gateway.domain.shapes.files import file_object, validation_object
from services.gateway.domain.tables import FILES
from services.gateway.ports import Row
from tunery.runtime.blobs.abstract import PART_BYTES, BlobError, BlobMissing, Stored, Upload

PURPOSES: Final = ("fine-tune",)
LIMIT_MAX: Final = 10_000
router = APIRouter(tags=["files"])


@router.post("/v1/files", openapi_extra={"requestBody": {"content": {"multipart/form-data": {}}}})
async def create_file(request: Request, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    """Streams straight to object storage; SHA-256 is taken on the way."""
    boundary = boundary_of(request.headers.get("content-type"))
    file_id = deps.fresh(FILE)
    key = f"t/{caller.tenant}/files/{file_id}"
    upload = await within(deps.blobs.upload(key))
    try:
        form, stored = await _receive(request, boundary, upload, deps.settings.file_bytes_max)
    except BaseException:
        with suppress(BlobError):  # garbage at worst; nobody names it
            await within(upload.abort())
        raise
    UPLOAD_BYTES.inc(stored.bytes)
    try:
        await _register(deps, caller, file_id, form, stored)
    except ApiError as refusal:
        if refusal.status < 500:  # surely not recorded: nobody will ever name these bytes
            with suppress(BlobError):
                await deps.blobs.delete(key)
        raise
    return file_object(await _file(deps, caller, file_id), deps.opened)


async def _receive(
    request: Request, boundary: bytes, upload: Upload, bytes_max: int
) -> tuple[Form, Stored]:
    async def write(chunk: bytes) -> None:
        await within(upload.write(chunk), PART_BYTES)

    try:
        form = await receive_form(boundary, request.stream(), write, bytes_max)
    except ClientDisconnect as error:
        raise ApiError(400, INCOMPLETE, "The connection ended before the file did.") from error
    _check(form)
    return form, await within(upload.complete(), min(form.bytes, PART_BYTES))


def _check(form: Form) -> None:
    """Raises ApiError 400 with every problem of the form."""
    found: dict[str, str] = {}
    if form.filename is None:
        found["file"] = "is required"
    elif form.bytes == 0:
        found["file"] = "is empty"
    purpose = form.fields.get("purpose")
    if purpose is None:
        found["purpose"] = "is required"
    elif purpose not in PURPOSES:
        found["purpose"] = f"{purpose[:64]!r} is not supported here; use {', '.join(PURPOSES)}"
    if any(name.startswith("expires_after") for name in form.fields):
        found["expires_after"] = "is not supported here; delete the file when it is not needed"
    if found:
        text = "; ".join(f"{name}: {problem}" for name, problem in found.items())
        code = UNSUPPORTED if "expires_after" in found else "invalid_value"
        raise invalid(text, next(iter(found)), code)


async def _register(
    deps: Deps, caller: Principal, file_id: str, form: Form, stored: Stored
) -> None:
    await deps.commands.decide(
        DATASET,
        caller.tenant,
        RegisterFile(
            file_id=file_id,
            purpose="fine-tune",
            name=deps.seal.seal(caller.tenant, form.filename or ""),
            bytes=stored.bytes,
            sha256=stored.sha256,
            blob=stored.key,
        ),
        actor=deps.seal.seal(caller.tenant, caller.key_id),
    )


@router.get("/v1/files")
async def list_files(
    deps: WithDeps,
    caller: Caller,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT_MAX,
    order: Literal["asc", "desc"] = "desc",
    purpose: str | None = None,
) -> dict[str, Any]:
    where = {"tenant": caller.tenant} | ({} if purpose is None else {"purpose": purpose})
    rows, more = await page(
        deps.views, FILES, where, limit=limit, after=after, descending=order == "desc"
    )
    return listing([file_object(row, deps.opened) for row in rows], more)


@router.get("/v1/files/{file_id}")
async def retrieve_file(file_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    return file_object(await _file(deps, caller, file_id), deps.opened)


@router.get("/v1/files/{file_id}/content")
async def file_content(file_id: str, deps: WithDeps, caller: Caller) -> StreamingResponse:
    row = await _file(deps, caller, file_id)
    chunks = deps.blobs.stream(row["blob"], sha256=row["sha256"])
    try:
        first = await within(anext(chunks, b""))  # an error must come before the status line does
    except BlobMissing as error:
        raise _missing(file_id) from error
    name = quote(deps.opened(row["name"]) or file_id)
    return StreamingResponse(
        _chained(first, chunks),
        media_type="application/octet-stream",
        headers={
            "content-length": str(row["bytes"]),
            "content-disposition": f"attachment; filename*=UTF-8''{name}",
        },
    )


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


@router.get("/v1/files/{file_id}/validation")
async def file_validation(file_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    """Every problem of the file: row, line, pointer, code, what to do."""
    row = await _file(deps, caller, file_id)
    report = None
    if row["validation"] is not None:
        try:
            report = json.loads(await within(deps.blobs.get(row["validation"]["report_blob"])))
        except BlobMissing as error:
            raise _missing(file_id) from error
    return validation_object(row, report)


@router.delete("/v1/files/{file_id}")
async def delete_file(file_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    await _file(deps, caller, file_id)
    actor = deps.seal.seal(caller.tenant, caller.key_id)
    await deps.commands.decide(DATASET, caller.tenant, DeleteFile(file_id=file_id), actor=actor)
    return deleted("file", file_id)


async def _file(deps: Deps, caller: Principal, file_id: str) -> Row:
    row = await deps.views.one(FILES, {"tenant": caller.tenant, "id": file_id})
    if row is None:
        raise _missing(file_id)
    return row


def _missing(file_id: str) -> ApiError:
    return ApiError(404, errors.NOT_FOUND, f"No such File object: {file_id}", "id")
