"""The state of the stream "dataset": each tenant's files, uploads, pins and preparations."""

from typing import Final, Literal, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.dataset import (
    PinTerms,
    Prepared,
)
from schemas.envelope import Sha256
from schemas.storage import Purpose, UploadTerms
from schemas.units import Ms

FILES_MAX: Final = 10_000  # of one tenant, without deleted files
NAMES_MAX: Final = 1_000  # dataset names of one tenant; never freed, as numbers are not reused
FileStatus: TypeAlias = Literal["pending", "accepted", "rejected"]


class FileState(Struct, frozen=True, kw_only=True):
    """A file that is not deleted.

    purpose: what it was uploaded for
    sha256: hash of its content
    blob: key of its content
    bytes: how many it has
    status: result of its validation
    report_blob: key of its validation report; None before
    """

    purpose: Purpose
    sha256: Sha256
    blob: str
    bytes: int = 0
    status: FileStatus = "pending"
    report_blob: str | None = None


class Pin(Struct, frozen=True, kw_only=True):
    """The files that a running job needs; they cannot be deleted until it ends.

    terms: which files, prepared how
    prepare_id: id of the preparation
    """

    terms: PinTerms
    prepare_id: str


class LineageHold(Struct, frozen=True, kw_only=True):
    """The files in the lineage of a model; they cannot be deleted before the model."""

    model_id: str
    files: tuple[str, ...]


class Preparation(Struct, frozen=True, kw_only=True):
    """A preparation, which runs until it has a result.

    sources: hashes of the files' content
    prepared: the result; None while it runs
    """

    sources: tuple[Sha256, ...]
    prepared: Prepared | None = None


class PendingUpload(Struct, frozen=True, kw_only=True):
    """An upload in parts that is not complete.

    terms: as declared
    parts: bytes of each part by its id
    """

    terms: UploadTerms
    parts: Map[str, int] = Map()


class TenantDatasets(Struct, frozen=True, kw_only=True):
    """The files of one tenant, and what was prepared from them.

    files: by id
    pins: by the id of the job
    preparations: by id
    uploads: by id
    expires: when a file or an upload expires, by its id
    kept: files that models need, by the id of the job that trained the model
    versions: latest version number, by the key of the dataset name
    stored_bytes: of all files that count for the tenant's quota
    erased: the tenant is erased, or this is under way: what comes late is stored no more
    """

    files: Map[str, FileState] = Map()
    pins: Map[str, Pin] = Map()
    preparations: Map[str, Preparation] = Map()
    uploads: Map[str, PendingUpload] = Map()
    expires: Map[str, Ms] = Map()
    kept: Map[str, LineageHold] = Map()
    versions: Map[str, int] = Map()
    stored_bytes: int = 0
    erased: bool = False


DatasetsByTenant: TypeAlias = Map[str, TenantDatasets]
INITIAL: Final[DatasetsByTenant] = Map()


def source_hashes(datasets: TenantDatasets, terms: PinTerms) -> tuple[Sha256, ...]:
    """The content hashes of a pin's files that exist."""
    return tuple(datasets.files[name].sha256 for name in terms.files if name in datasets.files)


def orphaned_preparations(datasets: TenantDatasets, file_id: str) -> tuple[str, ...]:
    """The preparations that lose their source when this file is deleted.

    None if another file has the same content.
    """
    sha256 = datasets.files[file_id].sha256
    if any(f.sha256 == sha256 for name, f in datasets.files.items() if name != file_id):
        return ()
    orphans = (
        name for name, preparation in datasets.preparations.items() if sha256 in preparation.sources
    )
    return tuple(sorted(orphans))
