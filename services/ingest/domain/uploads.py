"""Decisions about uploads: parts arrive in any order, and completion names their order."""

from typing import Final, TypeAlias, assert_never

from schemas import errors
from schemas.dataset import (
    AddPart,
    CancelUpload,
    CompleteUpload,
    CreateUpload,
    Event,
    FileRegistered,
    PartAdded,
    UploadCreated,
    UploadEnded,
    UploadOutcome,
)
from schemas.envelope import Context, reject
from schemas.reasons import refusing
from schemas.units import HOUR_MS, Ms
from services.ingest.domain.expiry import expires_at
from services.ingest.domain.quotas import check_bytes, check_file, check_upload
from services.ingest.domain.state import PendingUpload, TenantDatasets
from services.ingest.domain.versions import check_name, next_version

UPLOAD_MS_MAX: Final[Ms] = HOUR_MS  # OpenAI's limit from creation to completion
TIMES_SENT_MAX: Final = 2  # a client that lost an answer sends its part again
PARTS_MAX: Final = 2_000  # of one upload; 128 parts of 64 MB are 8 GB
UploadCommand: TypeAlias = CreateUpload | AddPart | CompleteUpload | CancelUpload


def decide_upload(
    datasets: TenantDatasets, command: UploadCommand, ctx: Context
) -> tuple[Event, ...]:
    """The events of a command about an upload. Invalid commands are `Rejected`."""
    upload = datasets.uploads.get(command.upload_id)
    if isinstance(command, CreateUpload):
        return _create(datasets, upload, command, ctx)
    if upload is None:
        ended = refusing("upload_not_pending", upload_id=command.upload_id)
        return reject(errors.ILLEGAL_STATE, ended, "upload_id")
    match command:
        case AddPart():
            return _add(upload, command)
        case CompleteUpload():
            return _complete(datasets, upload, command, ctx)
        case CancelUpload():
            return (end_upload(upload, command.upload_id, "cancelled"),)
        case _:
            assert_never(command)


def end_upload(
    upload: PendingUpload,
    upload_id: str,
    outcome: UploadOutcome,
    used: tuple[str, ...] = (),
    file_id: str | None = None,
) -> UploadEnded:
    """The event that ends an upload. `used` are the parts of the file, in order."""
    rest = sorted(set(upload.parts) - set(used))
    return UploadEnded(upload_id=upload_id, outcome=outcome, parts=(*used, *rest), file_id=file_id)


def _create(
    datasets: TenantDatasets, upload: PendingUpload | None, command: CreateUpload, ctx: Context
) -> tuple[Event, ...]:
    if upload is not None:
        exists = refusing("upload_exists", upload_id=command.upload_id)
        return reject(errors.ALREADY_EXISTS, exists, "upload_id")
    rejected = (
        check_upload(datasets, command.quota)
        or check_file(datasets, command.quota)
        or check_bytes(datasets, command.quota, command.terms.bytes)
    )
    if rejected is not None:
        return (rejected,)
    return (
        UploadCreated(
            upload_id=command.upload_id,
            terms=command.terms,
            expires_at=ctx.at + UPLOAD_MS_MAX,
        ),
    )


def _add(upload: PendingUpload, command: AddPart) -> tuple[Event, ...]:
    if command.part.part_id in upload.parts:
        exists = refusing("part_exists", part_id=command.part.part_id)
        return reject(errors.ALREADY_EXISTS, exists, "part_id")
    if len(upload.parts) >= PARTS_MAX:
        return reject(errors.ILLEGAL_STATE, refusing("parts_at_most", limit=PARTS_MAX))
    declared = upload.terms.bytes
    size = sum(upload.parts.values()) + command.part.bytes
    if command.part.bytes > declared or size > TIMES_SENT_MAX * declared:
        above = refusing("parts_above_declared", size_bytes=size, declared_bytes=declared)
        return reject(errors.MALFORMED, above, "data")
    return (PartAdded(upload_id=command.upload_id, part=command.part),)


def _complete(
    datasets: TenantDatasets, upload: PendingUpload, command: CompleteUpload, ctx: Context
) -> tuple[Event, ...]:
    known = set(command.parts) <= set(upload.parts)
    if not known or len(set(command.parts)) != len(command.parts):
        return reject(errors.MALFORMED, refusing("parts_wrong"), "part_ids")
    size, declared, terms = command.content.bytes, upload.terms.bytes, upload.terms.file
    if not size == declared == sum(upload.parts[name] for name in command.parts):
        wrong = refusing("parts_size", size_bytes=size, declared_bytes=declared)
        return reject(errors.MALFORMED, wrong, "bytes")
    rejected = check_file(datasets, command.quota) or check_name(datasets, terms.dataset)
    if rejected is not None:
        return (rejected,)
    file = FileRegistered(
        file_id=command.file_id,
        terms=terms,
        content=command.content,
        expires_at=expires_at(ctx.at, terms.expires_after_ms),
        version=next_version(datasets, terms.dataset),
    )
    done = end_upload(upload, command.upload_id, "completed", command.parts, command.file_id)
    return (file, done)
