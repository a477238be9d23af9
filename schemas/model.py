"""Stream `model` (key: tenant, owner: registry): base models, adapter versions, stages.

Base models are global: `AddBase` is sent once to every partition, with the key `GLOBAL`.
"""

from typing import Literal, TypeAlias

from schemas.envelope import Message, Part, Rejected, Repeated, Sha256
from schemas.reasons import Failure
from schemas.training import BlobFile

GLOBAL = "*"
Stage: TypeAlias = Literal["dev", "staging", "production", "archived"]
Verdict: TypeAlias = Literal["pass", "block", "inconclusive"]


class Base(Part):
    """A base model that jobs may start from. `path` is where nodes find it, checked by hash."""

    base_id: str
    sha256: Sha256
    path: str
    parameters: int
    context_length: int
    family: str
    licence: str
    hidden_size: int


class Lineage(Part):
    """Where a version comes from: every input by content hash."""

    job_id: str
    base_id: str
    base_sha256: Sha256
    dataset_version: str
    training_sha256: Sha256
    config_sha256: Sha256
    steps: int
    verdict: Verdict
    scores_sha256: Sha256


class Share(Part):
    """Who may fetch a checkpoint besides its owner: another tenant, by its id."""

    permission_id: str
    project_id: str


# --- commands
class AddBase(Message):
    base: Base


class PinBase(Message):
    job_id: str
    base_id: str
    base_sha256: Sha256


class RegisterVersion(Message):
    """`series` groups versions (tenant, base, suffix); stages are per series."""

    model_id: str
    series: str
    lineage: Lineage
    adapter: tuple[BlobFile, ...]


class RecordPublished(Message):
    """Outcome of the publish effect: the artifact's files under their final, content-named keys."""

    model_id: str
    files: tuple[BlobFile, ...]
    failure: Failure | None = None


class Promote(Message):
    """Compare-and-swap: `expected` must be the version that holds the stage now (null: nobody)."""

    model_id: str
    stage: Stage
    expected: str | None


class RollBack(Message):
    """The stage goes back to the version it held before; `expected` as in `Promote`."""

    series: str
    stage: Stage
    expected: str


class DeleteVersion(Message):
    model_id: str


class ShareCheckpoint(Message):
    """Each of the tenants may fetch the checkpoint; those who may already are left as they are."""

    checkpoint_id: str
    shares: tuple[Share, ...]


class UnshareCheckpoint(Message):
    permission_id: str


# --- events
class BaseAdded(Message):
    base: Base


class BasePinned(Message):
    job_id: str
    base: Base


class BaseRefused(Message):
    job_id: str
    failure: Failure


class VersionSubmitted(Message):
    model_id: str
    series: str
    lineage: Lineage
    adapter: tuple[BlobFile, ...]


class VersionPublished(Message):
    """In stage dev, or quarantined when the gate blocked it: kept, downloadable, not promotable."""

    model_id: str
    series: str
    lineage: Lineage
    files: tuple[BlobFile, ...]
    quarantined: bool


class VersionFailed(Message):
    model_id: str
    job_id: str
    failure: Failure


class StageMoved(Message):
    """`replaced` leaves the stage (back to dev); `by` tells promotion from rollback."""

    model_id: str
    series: str
    stage: Stage
    replaced: str | None
    by: Literal["promotion", "rollback"]


class VersionDeleted(Message):
    """`files`: what was published, to be removed from storage. `job_id`: whose model it was."""

    model_id: str
    files: tuple[BlobFile, ...] = ()
    job_id: str | None = None


class CheckpointShared(Message):
    checkpoint_id: str
    permission_id: str
    project_id: str


class CheckpointUnshared(Message):
    checkpoint_id: str
    permission_id: str
    project_id: str


Command: TypeAlias = (
    AddBase
    | PinBase
    | RegisterVersion
    | RecordPublished
    | Promote
    | RollBack
    | DeleteVersion
    | ShareCheckpoint
    | UnshareCheckpoint
)
Event: TypeAlias = (
    BaseAdded
    | BasePinned
    | BaseRefused
    | VersionSubmitted
    | VersionPublished
    | VersionFailed
    | StageMoved
    | VersionDeleted
    | CheckpointShared
    | CheckpointUnshared
    | Rejected
    | Repeated
)
