"""Erasure of a tenant: its files go, and whatever a late command brings goes after them."""

from typing import Final

from immutables import Map
from msgspec.structs import replace

from schemas import errors
from schemas.dataset import (
    AddPart,
    Command,
    CompleteUpload,
    CreateUpload,
    EraseUnnamed,
    Event,
    FileUnreadable,
    PreparationFailed,
    RecordPrepared,
    RecordValidation,
    RegisterFile,
)
from schemas.envelope import Context, Rejected
from schemas.erasure import EraseFiles, FilesErased
from schemas.reasons import Failure, failing, refusing
from services.ingest.domain.state import TenantDatasets

FILES_OF_EVENT_MAX: Final = 5_000  # whose ids take 200 kB


def erase_files(datasets: TenantDatasets) -> tuple[FilesErased]:
    """All files, at most FILES_OF_EVENT_MAX of them at a time."""
    names = sorted(datasets.files)
    more = len(names) > FILES_OF_EVENT_MAX
    return (FilesErased(files=tuple(names[:FILES_OF_EVENT_MAX]), more=more),)


def decide_erased(command: Command, ctx: Context) -> tuple[Event, ...]:
    """Decide a command that arrives after the tenant was erased.

    Its sender may have stored bytes, so they are erased again; running work on a file gets its
    end.
    """
    gone = Failure(code=errors.FILE_REJECTED, reason=failing("file_deleted"))
    match command:
        case RegisterFile() | CreateUpload() | AddPart() | CompleteUpload():
            erased = refusing("tenant_erased", tenant=ctx.key)
            refused = Rejected(code=errors.ILLEGAL_STATE, reason=erased)
            return (FilesErased(), refused)
        case RecordValidation():
            return (FileUnreadable(file_id=command.file_id, failure=gone), FilesErased())
        case RecordPrepared():
            return (PreparationFailed(prepare_id=command.prepare_id, failure=gone), FilesErased())
        case EraseUnnamed():
            return (FilesErased(),)
        case _:
            return ()


def evolve_erasure(datasets: TenantDatasets, event: FilesErased) -> TenantDatasets:
    """Forget the tenant, but for its erasure and files of further events."""
    files = {name: file for name, file in datasets.files.items() if name not in event.files}
    if event.more:
        return replace(datasets, files=Map(files), erased=True)
    return TenantDatasets(erased=True)


def is_late(datasets: TenantDatasets, command: Command) -> bool:
    """Return whether a command other than the erasure arrives after the erasure began."""
    return datasets.erased and not (isinstance(command, EraseFiles) and datasets.files)
