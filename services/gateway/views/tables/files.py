"""Read models of files, named datasets, and uploads in parts."""

from typing import Final, Literal

from schemas.dataset import Validation
from schemas.reasons import Failure
from schemas.sealed import Sealed
from schemas.storage import Purpose
from schemas.units import Ms
from services.gateway.views.table import Table, TableIndex, TableRow

FileStatus = Literal["uploaded", "processed", "error"]
UploadStatus = Literal["pending", "completed", "cancelled", "expired"]


class FileRow(TableRow):
    """A file."""

    tenant: str
    sequence: int
    created_at: Ms
    purpose: Purpose
    name: Sealed
    bytes: int
    sha256: str
    blob: str
    status: FileStatus
    expires_at: Ms | None
    dataset: str | None  # the key that the versions of one dataset share
    dataset_name: Sealed | None  # sealed
    version: int | None  # its number in that dataset
    validation: Validation | None = None
    failure: Failure | None = None  # why its rows could not be read at all


class DatasetRow(TableRow):
    """A named dataset and its newest version. `id`: the key that its versions share."""

    tenant: str
    sequence: int
    name: Sealed
    version: int
    file_id: str
    updated_at: Ms


class UploadRow(TableRow):
    """An upload in parts."""

    tenant: str
    sequence: int
    created_at: Ms
    expires_at: Ms
    purpose: Purpose
    name: Sealed
    media_type: str
    bytes: int  # declared size
    expires_after_ms: Ms | None
    status: UploadStatus
    part_ids: tuple[str, ...] | None = None  # parts of a completed upload
    file_id: str | None = None


class PartRow(TableRow):
    tenant: str
    upload_id: str
    sequence: int
    created_at: Ms
    bytes: int
    sha256: str


FILES: Final = Table(
    "files",
    FileRow,
    key=("tenant", "id"),
    order="sequence",
    indexes=(
        TableIndex(("tenant", "sequence")),
        TableIndex(("tenant", "dataset", "version"), where="dataset IS NOT NULL"),
    ),
)
DATASETS: Final = Table("datasets", DatasetRow, key=("tenant", "id"), order="sequence")
UPLOADS: Final = Table("uploads", UploadRow, key=("tenant", "id"), order="sequence")
UPLOAD_PARTS: Final = Table(
    "upload_parts", PartRow, key=("tenant", "upload_id", "id"), order="sequence"
)
