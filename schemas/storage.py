"""What a tenant may store, and the terms of files and uploads. Nouns of `dataset`."""

from typing import Final, Literal, TypeAlias

from schemas.envelope import Part, Sha256
from schemas.sealed import Sealed
from schemas.units import Ms

Purpose: TypeAlias = Literal["fine-tune", "fine-tune-results", "base-model"]
NOT_COUNTED: Final[Purpose] = "base-model"  # bytes that operators add for all tenants


class DatasetName(Part):
    """A name whose files are its versions.

    key: tells equal names without revealing them.
    name: the name.
    """

    key: str
    name: Sealed


class FileTerms(Part):
    """What is declared about a file before its bytes are there.

    purpose: what it is for.
    name: its name on the client's machine.
    expires_after_ms: when it expires, counted from its registration, None: never.
    dataset: the name that it is the next version of.
    rows_max: what the tenant's plan allows.
    niceness: of the process that checks it, by the plan; None: as others.
    """

    purpose: Purpose
    name: Sealed
    expires_after_ms: Ms | None = None
    dataset: DatasetName | None = None
    rows_max: int | None = None
    niceness: int | None = None


class UploadTerms(Part):
    """A file that will come in parts.

    media_type: of the file.
    bytes: of all parts together.
    file: what is declared about the file.
    """

    media_type: str
    bytes: int
    file: FileTerms


class StorageQuota(Part):
    """What a tenant may keep at a time, by its plan.

    bytes: of files and of what pending uploads declare, together; base models do not count.
    files: that are not deleted, whatever their check said.
    uploads: that are pending.
    """

    bytes: int
    files: int
    uploads: int


class UploadPart(Part):
    """A part of an upload. Its bytes are under `part_blob`.

    part_id: the part.
    bytes: how many.
    sha256: of all of them.
    """

    part_id: str
    bytes: int
    sha256: Sha256
