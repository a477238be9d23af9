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
    """A part of a tenant that is gone."""

    part: ErasurePart  # the erased part
    at: Ms  # broker time of its erasure


class ErasureRecord(Part):
    """Proof that a tenant was erased. It contains no text of the tenant."""

    tenant: str  # the erased tenant
    begun_at: Ms  # time when its keys were closed
    parts: tuple[ErasedPart, ...]  # erased parts, in the order in which their erasure ended


# --- commands of `account`
class EraseTenant(Message):
    """Erase everything that the tenant wrote, for good."""


class RecordErasedPart(Message):
    """A part of the tenant is gone (reaction of its stream, or result of an effect)."""

    part: ErasurePart  # the erased part


# --- events of `account`
class TenantErasureBegun(Message):
    """The tenant can do nothing any more, and its parts go. It cannot be taken back."""

    begins: tuple[ErasurePart, ...]  # parts that go now


class ErasurePartDone(Message):
    """A part of the tenant is gone."""

    part: ErasurePart  # the erased part
    begins: tuple[ErasurePart, ...] = ()  # parts that go now, because all before them are gone


class TenantErased(Message):
    """All parts are gone, the data key last: sealed texts of the tenant cannot be opened."""

    record: ErasureRecord  # what was done
    sha256: Sha256  # hash of the record as JSON


# --- of `job`
class CloseJobs(Message):
    """The tenant is erased: its jobs, sweeps and serving pools end (reaction of account)."""


class JobsClosed(Message):
    """The tenant submits nothing any more; what is open ends."""

    more: bool = False  # further jobs are open, and are cancelled next


class JobsErased(Message):
    """No work of the tenant runs, and the state of its jobs is forgotten."""


# --- of `dataset`
class EraseFiles(Message):
    """The tenant is erased: its files go (reaction of account)."""


class FilesErased(Message):
    """All files, uploads and prepared data of the tenant are gone, and whatever else was stored."""

    files: tuple[str, ...] = ()  # those that were kept until now; the next event has further ones
    more: bool = False  # there are further ones


# --- of `model`
class EraseModels(Message):
    """The tenant is erased: its versions go (reaction of account)."""


class ModelsErased(Message):
    """All versions, deployments, policies and permissions of the tenant are gone."""

    models: tuple[str, ...] = ()  # those that were kept until now; the next event has further ones
    more: bool = False  # there are further ones


ErasureCommand: TypeAlias = EraseTenant | RecordErasedPart
ErasureEvent: TypeAlias = TenantErasureBegun | ErasurePartDone | TenantErased
JobErasureEvent: TypeAlias = JobsClosed | JobsErased
