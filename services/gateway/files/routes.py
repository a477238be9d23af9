"""`/v1/files`."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Annotated, Final, Literal
from urllib.parse import quote

from fastapi import Query, Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from schemas import errors
from schemas.dataset import DeleteFile, FileContent, RegisterFile
from schemas.ids import FILE
from schemas.storage import DatasetName, FileTerms, StorageQuota
from schemas.topics import DATASET
from schemas.units import Ms, divide_up
from services.gateway.files.domain.bodies import (
    EXPIRES_RANGE,
    EXPIRES_S_MAX,
    EXPIRES_S_MIN,
    PURPOSES,
    RESULTS,
    ExpiresAfter,
    known_purpose,
    wrong_purpose,
)
from services.gateway.files.domain.names import NAME, NAME_RULE, is_name, named_version
from services.gateway.files.domain.responses import (
    FileReportResponse,
    FileResponse,
    FileValidationResponse,
    UnreadableFileResponse,
    file_response,
    validation_response,
)
from services.gateway.files.multipart import UploadForm, boundary_of, multipart_body, receive_form
from services.gateway.files.storage_routes import checked_limits
from services.gateway.settings import Encoding
from services.gateway.views.tables.accounts import TENANTS
from services.gateway.views.tables.files import FILES, FileRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import INCOMPLETE, ApiError, invalid
from services.gateway.web.domain.responses import Deleted, Page, listing
from services.gateway.web.metrics import UPLOAD_BYTES
from services.gateway.web.pages import After, page
from services.gateway.web.routing import new_router
from services.gateway.web.storage import chain, within
from tunery.runtime.blobs.abstract import PART_BYTES, BlobError, BlobMissing, BlobUpload, Stored

LIMIT_MAX: Final = 10_000
EXPIRES: Final = "expires_after"
FORM: Final = multipart_body(
    {
        "purpose": {"type": "string", "enum": list(PURPOSES)},
        "file": {"type": "string", "format": "binary"},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {
            "type": "integer",
            "minimum": EXPIRES_S_MIN,
            "maximum": EXPIRES_S_MAX,
        },
        "dataset": {
            "type": "string",
            "pattern": f"^{NAME}$",
            "description": "the file becomes the next version of this dataset",
        },
    },
    required=("purpose", "file"),
)
Dataset = Annotated[
    str | None, Query(pattern=f"^{NAME}$", description="versions of this dataset only")
]
router = new_router("files")


@router.post("/v1/files", openapi_extra=FORM)
async def create_file(request: Request, deps: WithDeps, caller: Caller) -> FileResponse:
    """Upload a file. It is streamed to object storage, and its SHA-256 is computed on the way."""
    boundary = boundary_of(request.headers.get("content-type"))
    # first, so that a full quota or an outage is noticed before the client has sent the bytes
    limits, most = await checked_limits(deps, caller), await rows_max(deps, caller)
    file_id = deps.fresh(FILE)
    key = f"t/{caller.tenant}/files/{file_id}"
    upload = await within(deps.blobs.upload(key))
    try:
        form, stored = await _receive(request, boundary, upload, deps.settings.file_bytes_max)
    except BaseException:
        with suppress(BlobError):  # at worst an unused object remains: no command names it
            await within(upload.abort())
        raise
    UPLOAD_BYTES.inc(stored.bytes)
    try:
        terms = _terms(deps, caller, form, most, limits.niceness)
        await register_stored(deps, caller, file_id, terms, stored, limits.quota)
    except ApiError as refusal:
        if refusal.status < 500:  # the command was refused, so nothing refers to these bytes
            with suppress(BlobError):
                await deps.blobs.delete(key)
        raise
    return file_response(await known_file(deps, caller, file_id), deps.unseal)


async def _receive(
    request: Request, boundary: bytes, upload: BlobUpload, bytes_max: int
) -> tuple[UploadForm, Stored]:
    form = await receive_file(request, boundary, upload, bytes_max, check=_check_fields)
    _check(form)
    return form, await within(upload.complete(), form.bytes)


async def receive_file(
    request: Request,
    boundary: bytes,
    upload: BlobUpload,
    bytes_max: int,
    file_field: str = "file",
    check: Callable[[UploadForm], None] | None = None,
) -> UploadForm:
    """Parse a form whose file is written to `upload`. Raises ApiError 400, 413."""

    async def write(chunk: bytes) -> None:
        await within(upload.write(chunk), PART_BYTES)

    try:
        return await receive_form(boundary, request.stream(), write, bytes_max, file_field, check)
    except ClientDisconnect as error:
        raise ApiError(400, INCOMPLETE, "The connection ended before the file did.") from error


def _check(form: UploadForm) -> None:
    """Raises ApiError 400 with every problem of the form."""
    problems: dict[str, str] = {}
    if form.filename is None:
        problems["file"] = "is required"
    elif form.bytes == 0:
        problems["file"] = "is empty; send at least one row"
    if "purpose" not in form.fields:
        problems["purpose"] = "is required"
    _refuse(problems | _wrong_fields(form))


def _check_fields(form: UploadForm) -> None:
    """Raises ApiError 400 with every problem of the fields that are there."""
    _refuse(_wrong_fields(form))


def _wrong_fields(form: UploadForm) -> dict[str, str]:
    problems: dict[str, str] = {}
    purpose = form.fields.get("purpose")
    if purpose is not None and purpose not in PURPOSES:
        problems["purpose"] = wrong_purpose(purpose)
    if (name := form.fields.get("dataset")) is not None and not is_name(name):
        problems["dataset"] = f"must be {NAME_RULE}"
    try:
        _expires_after(form)
    except ApiError as error:
        problems[error.param or "expires_after"] = error.message
    return problems


def _refuse(problems: Mapping[str, str]) -> None:
    if problems:
        text = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        raise invalid(text, next(iter(problems)), "invalid_value")


def _expires_after(form: UploadForm) -> Ms | None:
    """`expires_after[anchor]` and `expires_after[seconds]`. Raises ApiError 400."""
    fields = {
        name[len(EXPIRES) + 1 : -1]: value
        for name, value in form.fields.items()
        if name.startswith(f"{EXPIRES}[") and name.endswith("]")
    }
    if not fields and EXPIRES not in form.fields:
        return None
    seconds = fields.get("seconds", "")
    try:
        after = ExpiresAfter(
            anchor=fields.get("anchor", ""),  # type: ignore[arg-type]  # the model checks it
            seconds=int(seconds) if seconds.isdecimal() and seconds.isascii() else -1,
        )
    except ValidationError as error:
        text = f"send {EXPIRES}[anchor]=created_at and {EXPIRES}[seconds]={EXPIRES_RANGE}"
        raise invalid(text, EXPIRES) from error
    return after.ms


def _terms(
    deps: Deps, caller: Principal, form: UploadForm, most: int | None, niceness: int
) -> FileTerms:
    return FileTerms(
        purpose=known_purpose(form.fields["purpose"]),
        name=deps.seal.seal(caller.tenant, form.filename or "", "name"),
        expires_after_ms=_expires_after(form),
        dataset=dataset_name(deps, caller, form.fields.get("dataset")),
        rows_max=most,
        niceness=niceness,
    )


async def register_stored(
    deps: Deps,
    caller: Principal,
    file_id: str,
    terms: FileTerms,
    stored: Stored,
    quota: StorageQuota | None = None,
) -> None:
    """Register a file that is stored. Raises ApiError."""
    content = FileContent(bytes=stored.bytes, sha256=stored.sha256, blob=stored.key)
    command = RegisterFile(file_id=file_id, terms=terms, content=content, quota=quota)
    await deps.decide(caller, DATASET, command)


@router.get("/v1/files")
async def list_files(
    deps: WithDeps,
    caller: Caller,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT_MAX,
    order: Literal["asc", "desc"] = "desc",
    purpose: str | None = None,
    dataset: Dataset = None,
) -> Page[FileResponse]:
    """List files, newest first unless `order` is `asc`; all, or those of a purpose or dataset."""
    where = {"tenant": caller.tenant} | ({} if purpose is None else {"purpose": purpose})
    if dataset is not None:
        where["dataset"] = dataset_key(deps, caller, dataset)
    rows, more = await page(
        deps.views, FILES, where, limit=limit, after=after, descending=order == "desc"
    )
    return listing(Page[FileResponse], [file_response(row, deps.unseal) for row in rows], more)


@router.get("/v1/files/{file_id}")
async def retrieve_file(file_id: str, deps: WithDeps, caller: Caller) -> FileResponse:
    return file_response(await known_file(deps, caller, file_id), deps.unseal)


@router.get("/v1/files/{file_id}/content")
async def file_content(
    file_id: str, deps: WithDeps, caller: Caller, encoding: Encoding | None = None
) -> StreamingResponse:
    """The file's bytes as they were uploaded, or in base64.

    Without `encoding` a result file comes as the operator decided (`TUNERY_GATEWAY_RESULT_FILES`),
    any other file plain.
    """
    row = await known_file(deps, caller, file_id)
    as_base64 = (encoding or _usual_encoding(deps, row)) == "base64"
    chunks = deps.blobs.stream(row.blob, sha256=row.sha256)
    try:
        first = await within(
            anext(chunks, b"")
        )  # before the status line is sent, so that an error can still be answered
    except BlobMissing as error:
        raise _missing(file_id) from error
    name = quote(deps.unseal(row.name, "name") or file_id)
    body = chain(first, chunks)
    return StreamingResponse(
        _base64(body) if as_base64 else body,
        media_type="text/plain" if as_base64 else "application/octet-stream",
        headers={
            "content-length": str(4 * divide_up(row.bytes, 3) if as_base64 else row.bytes),
            "content-disposition": f"attachment; filename*=UTF-8''{name}",
        },
    )


def _usual_encoding(deps: Deps, row: FileRow) -> Encoding:
    return deps.settings.result_files if row.purpose == RESULTS else "plain"


async def _base64(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Three bytes are four characters, wherever the chunks end."""
    rest = b""
    async for chunk in chunks:
        rest += chunk
        whole = len(rest) - len(rest) % 3
        yield b64encode(rest[:whole])
        rest = rest[whole:]
    yield b64encode(rest)


@router.get("/v1/files/{file_id}/validation")
async def file_validation(
    file_id: str, deps: WithDeps, caller: Caller
) -> FileReportResponse | UnreadableFileResponse | FileValidationResponse:
    """The report on a file: every problem with row, line, JSON pointer, code and fix."""
    row = await known_file(deps, caller, file_id)
    report = None
    if row.validation is not None:
        try:
            report = json.loads(await within(deps.blobs.get(row.validation.report_blob)))
        except BlobMissing as error:
            raise _missing(file_id) from error
    return validation_response(row, report, deps.unseal)


@router.delete("/v1/files/{file_id}")
async def delete_file(file_id: str, deps: WithDeps, caller: Caller) -> Deleted:
    row = await known_file(deps, caller, file_id)
    await deps.decide(caller, DATASET, DeleteFile(file_id=row.id))
    return Deleted(id=row.id, object="file")


async def known_file(deps: Deps, caller: Principal, reference: str) -> FileRow:
    """The file with this id or version name (`faq@2`). Raises ApiError 404."""
    row = await find_file(deps, caller, reference)
    if row is None:
        raise _missing(reference)
    return row


async def find_file(deps: Deps, caller: Principal, reference: str) -> FileRow | None:
    named = named_version(reference)
    if named is None:
        return await deps.views.first(FILES, {"tenant": caller.tenant, "id": reference})
    key = dataset_key(deps, caller, named[0])
    where = {"tenant": caller.tenant, "dataset": key, "version": named[1]}
    return await deps.views.first(FILES, where)


async def rows_max(deps: Deps, caller: Principal) -> int | None:
    """Most rows of a file under the caller's plan; None when the tenant does not exist yet."""
    tenant = await deps.views.first(TENANTS, {"id": caller.tenant})
    return None if tenant is None else deps.settings.rows_max.get(tenant.plan)


def dataset_name(deps: Deps, caller: Principal, name: str | None) -> DatasetName | None:
    """The dataset's name for the log: sealed, and as a key that is equal for equal names."""
    if name is None:
        return None
    key = dataset_key(deps, caller, name)
    return DatasetName(key=key, name=deps.seal.seal(caller.tenant, name, "dataset"))


def dataset_key(deps: Deps, caller: Principal, name: str) -> str:
    return deps.seal.hmac(caller.tenant, f"dataset:{name}")


def _missing(file_id: str) -> ApiError:
    return ApiError(404, errors.NOT_FOUND, f"No such File object: {file_id}", "id")
