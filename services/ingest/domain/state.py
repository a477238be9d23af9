"""What `dataset` remembers of each tenant: files, pins of jobs, preparations."""

from typing import Final, Literal, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.dataset import DatasetName, Prepared, PrepareSpec, Purpose
from schemas.envelope import Sha256
from schemas.sealed import Sealed
from schemas.units import Ms

FILES_MAX: Final = 10_000  # files of one tenant that are not deleted
NAMES_MAX: Final = 1_000  # of data sets of one tenant, for ever: numbers are never given twice
FileStatus: TypeAlias = Literal["pending", "accepted", "rejected"]


class File(Struct, frozen=True, kw_only=True):
    purpose: Purpose
    sha256: Sha256
    blob: str
    status: FileStatus = "pending"
    report_blob: str | None = None


class Pin(Struct, frozen=True, kw_only=True):
    """A living job's need of files; they cannot be deleted meanwhile."""

    training_file: str
    validation_file: str | None
    prepare_id: str
    spec: PrepareSpec

    @property
    def files(self) -> tuple[str, ...]:
        second = () if self.validation_file is None else (self.validation_file,)
        return (self.training_file, *second)


class Kept(Struct, frozen=True, kw_only=True):
    """A model's lineage names these files; they cannot be deleted before it."""

    model_id: str
    files: tuple[str, ...]


class Preparation(Struct, frozen=True, kw_only=True):
    """Under way while `prepared` is null. `sources` are the hashes of the files' content."""

    sources: tuple[Sha256, ...]
    prepared: Prepared | None = None


class Upload(Struct, frozen=True, kw_only=True):
    """A file on its way, in parts. What may be null is the file's."""

    purpose: Purpose
    name: Sealed
    bytes: int
    expires_after_ms: Ms | None
    dataset: DatasetName | None = None
    rows_max: int | None = None
    parts: Map[str, int] = Map()  # id → bytes


class Library(Struct, frozen=True, kw_only=True):
    """One tenant's files, and what is made of them.

    `expires`: when files and uploads go by themselves, by their ids. `kept` is by jobs, `versions`
    are the latest numbers by the names' keys.
    """

    files: Map[str, File] = Map()
    pins: Map[str, Pin] = Map()
    preparations: Map[str, Preparation] = Map()
    uploads: Map[str, Upload] = Map()
    expires: Map[str, Ms] = Map()
    kept: Map[str, Kept] = Map()
    versions: Map[str, int] = Map()


Libraries: TypeAlias = Map[str, Library]
NOTHING: Final[Libraries] = Map()


def sources_of(library: Library, pin: Pin) -> tuple[Sha256, ...]:
    """Content hashes of a pin's files, as far as they exist."""
    return tuple(library.files[name].sha256 for name in pin.files if name in library.files)


def orphaned(library: Library, file_id: str) -> tuple[str, ...]:
    """Preparations that are made of this file's content and of no other file's equal content."""
    sha256 = library.files[file_id].sha256
    if any(f.sha256 == sha256 for name, f in library.files.items() if name != file_id):
        return ()
    made = (name for name, it in library.preparations.items() if sha256 in it.sources)
    return tuple(sorted(made))
