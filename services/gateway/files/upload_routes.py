"""`/v1/uploads`: files in parts, in parallel and in any order, through any gateway."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from fastapi import Request

from schemas import errors
from schemas.account import ADMIN_SCOPE
from schemas.dataset import (
    AddPart,
    CancelUpload,
    CompleteUpload,
    CreateUpload,
    FileContent,
    part_blob,
)
from schemas.envelope import Message
from schemas.ids import FILE, PART, UPLOAD
from schemas.storage import FileTerms, Purpose, UploadPart, UploadTerms
from schemas.topics import DATASET
from services.gateway.accounts.deps import limits_of
from services.gateway.files.domain.bodies import (
    BASE_MODEL,
    PARTS_MAX,
    CompleteRequest,
    UploadRequest,
    known_purpose,
)
from services.gateway.files.domain.responses import (
    UploadPartResponse,
    UploadResponse,
    part_response,
    upload_response,
)
from services.gateway.files.multipart import boundary_of, multipart_body
from services.gateway.files.routes import dataset_name, receive_file, rows_max
from services.gateway.views.tables.files import FILES, UPLOAD_PARTS, UPLOADS, PartRow, UploadRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps, require
from services.gateway.web.domain.errors import ApiError, invalid, not_found
from services.gateway.web.metrics import UPLOAD_BYTES
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within
from tunery.runtime.blobs.abstract import (
    PART_BYTES,
    BlobError,
    BlobMissing,
    BlobTooLarge,
    BlobUpload,
    Stored,
)

PART_BYTES_MAX: Final = 64 * 1024 * 1024  # OpenAI's limit for one part
PART_FIELD: Final = "data"
PART_FORM: Final = multipart_body(
    {PART_FIELD: {"type": "string", "format": "binary"}}, required=(PART_FIELD,)
)
router = new_router("files")


@router.post("/v1/uploads")
async def create_upload(body: UploadRequest, deps: WithDeps, caller: Caller) -> UploadResponse:
    """Begin an upload in parts. It expires after an hour unless it is completed."""
    purpose: Purpose = BASE_MODEL
    if body.purpose == BASE_MODEL:
        require(caller, ADMIN_SCOPE)
    else:
        purpose = known_purpose(body.purpose)
    limit = deps.settings.upload_bytes_max
    if body.bytes > limit:
        raise invalid(f"An upload has at most {limit} bytes here.", "bytes", "invalid_value")
    upload_id = deps.fresh(UPLOAD)
    limits = await limits_of(deps, caller.tenant)
    file = FileTerms(
        purpose=purpose,
        name=deps.seal.seal(caller.tenant, body.filename, "name"),
        expires_after_ms=None if body.expires_after is None else body.expires_after.ms,
        dataset=dataset_name(deps, caller, body.dataset),
        rows_max=await rows_max(deps, caller),
        niceness=limits.niceness,
    )
    terms = UploadTerms(media_type=body.mime_type, bytes=body.bytes, file=file)
    quota = None if purpose == BASE_MODEL else limits.quota  # those are operators'
    await _decide(deps, caller, CreateUpload(upload_id=upload_id, terms=terms, quota=quota))
    return await _shown(deps, caller, await _upload(deps, caller, upload_id))


@router.get("/v1/uploads/{upload_id}")
async def retrieve_upload(upload_id: str, deps: WithDeps, caller: Caller) -> UploadResponse:
    return await _shown(deps, caller, await _upload(deps, caller, upload_id))


@router.post("/v1/uploads/{upload_id}/parts", openapi_extra=PART_FORM)
async def add_part(
    upload_id: str, request: Request, deps: WithDeps, caller: Caller
) -> UploadPartResponse:
    """Add a part of up to 64 MiB. Parts may be sent in parallel."""
    _pending(await _upload(deps, caller, upload_id))
    part_id = deps.fresh(PART)
    stored = await _store_part(request, deps, part_blob(caller.tenant, upload_id, part_id))
    UPLOAD_BYTES.inc(stored.bytes)
    part = UploadPart(part_id=part_id, bytes=stored.bytes, sha256=stored.sha256)
    command = AddPart(upload_id=upload_id, part=part)
    await _decide_or_delete(deps, caller, command, stored.key)
    where = {"tenant": caller.tenant, "upload_id": upload_id, "id": part_id}
    row = await deps.views.first(UPLOAD_PARTS, where)
    if row is None:  # the upload ended meanwhile
        raise _ended(await _upload(deps, caller, upload_id))
    return part_response(row)


async def _store_part(request: Request, deps: Deps, key: str) -> Stored:
    boundary = boundary_of(request.headers.get("content-type"))
    upload = await within(deps.blobs.upload(key))
    try:
        form = await receive_file(request, boundary, upload, PART_BYTES_MAX, PART_FIELD)
        if form.bytes == 0:
            raise invalid(f"{PART_FIELD}: is required, and has at least one byte", PART_FIELD)
        return await within(upload.complete(), form.bytes)
    except BaseException:
        with suppress(BlobError):  # at worst an unused object remains: no command names it
            await within(upload.abort())
        raise


@router.post("/v1/uploads/{upload_id}/complete")
async def complete_upload(
    upload_id: str, body: CompleteRequest, deps: WithDeps, caller: Caller
) -> UploadResponse:
    """Put the file together from its parts in this order. Repeating the request changes nothing."""
    row = await _upload(deps, caller, upload_id)
    if _is_completed_with(row, body.part_ids):
        return await _shown(deps, caller, row)
    _pending(row)
    parts = await _parts(deps, caller, row, body.part_ids)
    limits = await limits_of(deps, caller.tenant)
    file_id = deps.fresh(FILE)
    stored = await _assemble(deps, caller, parts, f"t/{caller.tenant}/files/{file_id}", body.md5)
    done = CompleteUpload(
        upload_id=upload_id,
        parts=tuple(body.part_ids),
        file_id=file_id,
        content=FileContent(bytes=stored.bytes, sha256=stored.sha256, blob=stored.key),
        quota=None if row.purpose == BASE_MODEL else limits.quota,
    )
    try:
        await _decide_or_delete(deps, caller, done, stored.key)
    except ApiError as refusal:  # a copy of this request may have completed the upload already
        row = await _upload(deps, caller, upload_id)
        if refusal.status >= 500 or not _is_completed_with(row, body.part_ids):
            raise
    return await _shown(deps, caller, await _upload(deps, caller, upload_id))


def _is_completed_with(row: UploadRow, part_ids: Sequence[str]) -> bool:
    """Return whether the upload was completed with these parts; the row lists unused parts last."""
    done = row.status == "completed"
    return done and list((row.part_ids or ())[: len(part_ids)]) == list(part_ids)


@router.post("/v1/uploads/{upload_id}/cancel")
async def cancel_upload(upload_id: str, deps: WithDeps, caller: Caller) -> UploadResponse:
    row = await _upload(deps, caller, upload_id)
    if row.status != "cancelled":
        _pending(row)
        await _decide(deps, caller, CancelUpload(upload_id=upload_id))
        row = await _upload(deps, caller, upload_id)
    return await _shown(deps, caller, row)


async def _parts(
    deps: Deps, caller: Principal, upload: UploadRow, part_ids: Sequence[str]
) -> list[PartRow]:
    """The parts in the order of `part_ids`. Raises ApiError 400."""
    where = {"tenant": caller.tenant, "upload_id": upload.id}
    rows = await deps.views.page(UPLOAD_PARTS, where, limit=PARTS_MAX)
    known = {row.id: row for row in rows}
    unknown = [part for part in part_ids if part not in known]
    if unknown or len(set(part_ids)) != len(part_ids):
        text = f"unknown: {', '.join(unknown)}" if unknown else "a part is named twice"
        raise invalid(f"part_ids must name parts of this upload, each once; {text}", "part_ids")
    total = sum(known[part].bytes for part in part_ids)
    if total != upload.bytes:
        text = f"The parts have {total} bytes, {upload.bytes} were declared at creation."
        raise invalid(text, "part_ids")
    return [known[part] for part in part_ids]


async def _assemble(
    deps: Deps, caller: Principal, parts: Sequence[PartRow], key: str, md5: str | None
) -> Stored:
    """Write one blob of all parts, with a few MB in memory. Raises ApiError 400, 409.

    All bytes are read, because the content is named by the SHA-256 of the whole file.
    """
    digest = None if md5 is None else hashlib.md5(usedforsecurity=False)
    upload = await within(deps.blobs.upload(key))
    try:
        for part in parts:
            await _copy(deps, caller, part, upload, digest)
        if md5 and digest and (actual := digest.hexdigest()) != md5.lower():
            raise invalid(f"The file has the MD5 {actual}, not {md5.lower()}.", "md5")
        return await within(upload.complete(), sum(part.bytes for part in parts))
    except BaseException:
        with suppress(BlobError):
            await within(upload.abort())
        raise


async def _copy(
    deps: Deps, caller: Principal, part: PartRow, upload: BlobUpload, digest: "hashlib._Hash | None"
) -> None:
    blob = part_blob(caller.tenant, part.upload_id, part.id)
    chunks = deps.blobs.stream(blob, sha256=part.sha256)
    try:
        while chunk := await within(anext(chunks, b"")):
            if digest is not None:
                await asyncio.to_thread(digest.update, chunk)
            await within(upload.write(chunk), PART_BYTES)
    except BlobMissing as error:
        text = "The upload was completed, cancelled or expired meanwhile."
        raise ApiError(409, errors.ILLEGAL_STATE, text, "upload_id") from error
    except BlobTooLarge as error:
        raise invalid(str(error), "part_ids") from error


async def _decide(deps: Deps, caller: Principal, command: Message) -> None:
    await deps.decide(caller, DATASET, command)


async def _decide_or_delete(deps: Deps, caller: Principal, command: Message, blob: str) -> None:
    """Send a command that refers to a blob, and delete the blob when the command is refused."""
    try:
        await _decide(deps, caller, command)
    except ApiError as refusal:
        if refusal.status < 500:
            with suppress(BlobError):
                await deps.blobs.delete(blob)
        raise


async def _shown(deps: Deps, caller: Principal, row: UploadRow) -> UploadResponse:
    file = None
    if row.file_id is not None:
        file = await deps.views.first(FILES, {"tenant": caller.tenant, "id": row.file_id})
    return upload_response(row, file, deps.unseal)


async def _upload(deps: Deps, caller: Principal, upload_id: str) -> UploadRow:
    row = await deps.views.first(UPLOADS, {"tenant": caller.tenant, "id": upload_id})
    if row is None:
        raise not_found("Upload", upload_id, "upload_id")
    return row


def _pending(row: UploadRow) -> None:
    """Raises ApiError 409."""
    if row.status != "pending":
        raise _ended(row)


def _ended(row: UploadRow) -> ApiError:
    text = f"{row.id} is {row.status}; create another upload."
    return ApiError(409, errors.ILLEGAL_STATE, text, "upload_id")
