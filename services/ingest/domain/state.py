"""The state of the stream "dataset": each tenant's files, uploads, pins and preparations."""

from typing import Final, Literal, TypeAlias

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from schemas.dataset import PinTerms, Prepared, part_blob
from schemas.envelope import Sha256
from schemas.storage import Purpose, UploadTerms
from schemas.units import Ms

FILES_MAX: Final = 10_000  # of one tenant, without deleted files
NAMES_MAX: Final = 1_000  # dataset names of one tenant; never freed, as numbers are not reused
FileStatus: TypeAlias = Literal["pending", "accepted", "rejected"]


class FileState(Struct, frozen=True, kw_only=True):
    """A file that is not deleted."""

    purpose: Purpose  # what it was uploaded for
    sha256: Sha256  # hash of its content
    blob: str  # key of its content
    bytes: int = 0  # how many it has
    status: FileStatus = "pending"  # result of its validation
    report_blob: str | None = None  # key of its validation report; None before


class Pin(Struct, frozen=True, kw_only=True):
    """The files that a running job needs; they cannot be deleted until it ends."""

    terms: PinTerms  # the files, and how they are prepared
    prepare_id: str  # `work` of the preparation


class LineageHold(Struct, frozen=True, kw_only=True):
    """The files in the lineage of a model; they cannot be deleted before the model."""

    model_id: str
    files: tuple[str, ...]


class Preparation(Struct, frozen=True, kw_only=True):
    """A preparation, which runs until it has a result."""

    sources: tuple[Sha256, ...]  # hashes of the files' content
    work: str = ""  # what equal preparations have in common
    prepared: Prepared | None = None  # the result; None while it runs


class PendingUpload(Struct, frozen=True, kw_only=True):
    """An upload in parts that is not complete."""

    terms: UploadTerms  # declared terms
    parts: Map[str, int] = Map()  # bytes of each part by its id


class TenantDatasets(Struct, frozen=True, kw_only=True):
    files: Map[str, FileState] = Map()  # files by id
    pins: Map[str, Pin] = Map()  # pinned files by the id of the job
    preparations: Map[str, Preparation] = Map()  # preparations by id
    prepared_by: Map[str, str] = Map()  # the id of the preparation of each `work`
    uploads: Map[str, PendingUpload] = Map()  # pending uploads by id
    expires: Map[str, Ms] = Map()  # when a file or an upload expires, by its id
    # files that models need, by the id of the job that trained the model
    kept: Map[str, LineageHold] = Map()
    versions: Map[str, int] = Map()  # latest version number, by the key of the dataset name
    stored_bytes: int = 0  # size of all files that count for the tenant's quota
    # the tenant is erased, or this is under way: what comes late is stored no more
    erased: bool = False


DatasetsByTenant: TypeAlias = Map[str, TenantDatasets]
INITIAL: Final[DatasetsByTenant] = Map()


def source_hashes(datasets: TenantDatasets, terms: PinTerms) -> tuple[Sha256, ...]:
    """The content hashes of a pin's files that exist."""
    return tuple(datasets.files[name].sha256 for name in terms.files if name in datasets.files)


def needed_blobs(datasets: TenantDatasets, tenant: str) -> set[str]:
    """The keys of all objects that files, uploads and preparations need."""
    files, prepared = datasets.files.values(), (p.prepared for p in datasets.preparations.values())
    return {
        *(file.blob for file in files),
        *(file.report_blob for file in files if file.report_blob is not None),
        *(blob for each in prepared if each is not None for blob in each.blobs),
        *(
            part_blob(tenant, upload_id, part)
            for upload_id, upload in datasets.uploads.items()
            for part in upload.parts
        ),
    }


def without_preparation(datasets: TenantDatasets, prepare_id: str) -> TenantDatasets:
    """Forget a preparation that is known. Equal work is under way again at most once it is gone."""
    work, by_work = datasets.preparations[prepare_id].work, datasets.prepared_by
    return replace(
        datasets,
        preparations=datasets.preparations.delete(prepare_id),
        prepared_by=by_work.delete(work) if by_work.get(work) == prepare_id else by_work,
    )


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
