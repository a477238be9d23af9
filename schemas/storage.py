"""What a tenant may store, and the terms of files and uploads. Nouns of `dataset`."""

from typing import Final, Literal, TypeAlias

from schemas.envelope import Part, Sha256
from schemas.sealed import Sealed
from schemas.units import Ms

Purpose: TypeAlias = Literal[
    "fine-tune", "fine-tune-results", "base-model", "batch", "batch_output"
]
NOT_COUNTED: Final[Purpose] = "base-model"  # bytes that operators add for all tenants


class DatasetName(Part):
    """A name whose files are its versions."""

    key: str  # equal for equal names, without revealing them
    name: Sealed


class FileTerms(Part):
    """Metadata of a file that is declared before its bytes are uploaded."""

    purpose: Purpose  # what it is for
    name: Sealed  # its name on the client's machine
    # when it expires, counted from its registration, None: never
    expires_after_ms: Ms | None = None
    dataset: DatasetName | None = None  # the name that it is the next version of
    rows_max: int | None = None  # what the tenant's plan allows
    # CPU niceness of the process that checks it, by the plan; None: the default
    niceness: int | None = None


class UploadTerms(Part):
    """A file that will come in parts."""

    media_type: str  # media type of the file
    bytes: int  # size of all parts together
    file: FileTerms  # what is declared about the file


class StorageQuota(Part):
    """Storage limits of a tenant's plan."""

    bytes: int  # size of files and declared size of pending uploads, together, without base models
    files: int  # number of files that are not deleted, regardless of the result of their check
    uploads: int  # number of pending uploads


class UploadPart(Part):
    """A part of an upload. Its bytes are under `part_blob`."""

    part_id: str
    bytes: int
    sha256: Sha256  # hash of all its bytes
