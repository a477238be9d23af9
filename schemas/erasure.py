"""Erasure of a tenant: what its streams are asked, and what they say when their part is gone.

It begins in `account`. The parts follow each other: first the jobs end, then models and files go
with all that is stored of them, at last the data key, with which every sealed text on the log goes.
"""

from typing import Final, Literal, TypeAlias

from schemas.envelope import Message, Part, Sha256
from schemas.units import Ms

ErasurePart: TypeAlias = Literal["jobs", "models", "files", "key"]
ERASURE_PARTS: Final[tuple[tuple[ErasurePart, ...], ...]] = (
    ("jobs",),
    ("models", "files"),
    ("key",),
)


class ErasedPart(Part):
    """A part of a tenant that is gone.

    part: which.
    at: since when, by the time of the broker.
    """

    part: ErasurePart
    at: Ms


class ErasureRecord(Part):
    """What was done, for those who have to show it. It has no text of the tenant.

    tenant: who was erased.
    begun_at: when its keys were closed.
    parts: in the order in which they were gone.
    """

    tenant: str
    begun_at: Ms
    parts: tuple[ErasedPart, ...]


# --- commands of `account`
class EraseTenant(Message):
    """Everything that the tenant wrote shall be gone, for good."""


class RecordErasedPart(Message):
    """A part of the tenant is gone (reaction of its stream, or result of an effect).

    part: which.
    """

    part: ErasurePart


# --- events of `account`
class TenantErasureBegun(Message):
    """The tenant can do nothing any more, and its parts go. It cannot be taken back.

    begins: parts that go now.
    """

    begins: tuple[ErasurePart, ...]


class ErasurePartDone(Message):
    """A part of the tenant is gone.

    part: which.
    begins: parts that go now, because all before them are gone.
    """

    part: ErasurePart
    begins: tuple[ErasurePart, ...] = ()


class TenantErased(Message):
    """All parts are gone, the data key last: sealed texts of the tenant open nowhere any more.

    record: what was done.
    sha256: of the record as JSON.
    """

    record: ErasureRecord
    sha256: Sha256


# --- of `job`
class CloseJobs(Message):
    """The tenant is erased: its jobs, sweeps and serving pools end (reaction of account)."""


class JobsClosed(Message):
    """The tenant submits nothing any more; what is open ends.

    more: further jobs are open, and are cancelled next.
    """

    more: bool = False


class JobsErased(Message):
    """Nothing of the tenant runs any more, and what was known of its jobs is forgotten."""


# --- of `dataset`
class EraseFiles(Message):
    """The tenant is erased: its files go (reaction of account)."""


class FilesErased(Message):
    """All files, uploads and prepared data of the tenant are gone, and whatever else was stored.

    files: those that were kept until now; the next event has further ones.
    more: there are further ones.
    """

    files: tuple[str, ...] = ()
    more: bool = False


# --- of `model`
class EraseModels(Message):
    """The tenant is erased: its versions go (reaction of account)."""


class ModelsErased(Message):
    """All versions, deployments, policies and permissions of the tenant are gone.

    models: those that were kept until now; the next event has further ones.
    more: there are further ones.
    """

    models: tuple[str, ...] = ()
    more: bool = False


ErasureCommand: TypeAlias = EraseTenant | RecordErasedPart
ErasureEvent: TypeAlias = TenantErasureBegun | ErasurePartDone | TenantErased
JobErasureEvent: TypeAlias = JobsClosed | JobsErased
