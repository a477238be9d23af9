"""Stream `dataset` (key: tenant, owner: ingest): files, their validation, prepared caches."""

from typing import Final, Literal, TypeAlias

from schemas.envelope import Message, Part, Rejected, Repeated, Sha256, Tick
from schemas.reasons import Failure
from schemas.sealed import Sealed
from schemas.units import Ms, Tokens

LengthPolicy: TypeAlias = Literal["reject", "truncate", "split"]
Purpose: TypeAlias = Literal["fine-tune", "fine-tune-results"]
UploadOutcome: TypeAlias = Literal["completed", "cancelled", "expired"]
# Which rows validate follows from the file alone: jobs with other seeds share what is prepared, are
# judged on the same rows, and know their steps before they run.
SPLIT_SEED: Final = 42


class PackPlan(Part, array_like=True):
    """What the rows that train will be, packed to `max_length`, when this share validates."""

    max_length: int
    validation_fraction_ppm: int
    packed_rows: int
    tokens: Tokens


class BaseTokens(Part):
    """Exact token counts of one file under one base model's tokenizer and chat template."""

    base_id: str
    base_sha256: Sha256
    tokens: Tokens
    trainable_tokens: Tokens
    longest_row_tokens: Tokens
    plans: tuple[PackPlan, ...] = ()


class Validation(Part):
    """What the validator found; the rows themselves are in the report blob.

    `failure`: why the file is not accepted.
    """

    accepted: bool
    dialect: str
    rows: int
    errors: int
    warnings: int
    tokens: tuple[BaseTokens, ...]
    report_blob: str
    failure: Failure | None = None


class DatasetName(Part):
    """A name whose files are its versions. `key` tells equal names without revealing them."""

    key: str
    name: Sealed


class PrepareSpec(Part):
    """All that the bytes of a prepared cache depend on besides the files' content."""

    base_id: str
    base_sha256: Sha256
    max_length: int
    length_policy: LengthPolicy
    validation_fraction_ppm: int
    seed: int


class Prepared(Part):
    """A packed cache in object storage. Blob keys are content-named; `version` is the cache key."""

    version: str
    train_blob: str
    train_sha256: Sha256
    validation_blob: str
    validation_sha256: Sha256
    prompts_blob: str
    prompts_sha256: Sha256
    train_rows: int
    validation_rows: int
    packed_rows: int
    tokens: Tokens
    trainable_tokens: Tokens


def part_blob(tenant: str, upload_id: str, part_id: str) -> str:
    """Where the bytes of a part lie until its upload ends."""
    return f"t/{tenant}/uploads/{upload_id}/{part_id}"


# --- commands
class RegisterFile(Message):
    """The bytes are in object storage under `blob` already; their SHA-256 was taken on the way.

    `expires_after_ms`: counted from the moment it is registered. `job_id`: the job it comes from.
    `dataset`: the name that it is the next version of. `rows_max`: what the tenant's plan allows.
    """

    file_id: str
    purpose: Purpose
    name: Sealed
    bytes: int
    sha256: Sha256
    blob: str
    expires_after_ms: Ms | None = None
    job_id: str | None = None
    dataset: DatasetName | None = None
    rows_max: int | None = None


class DeleteFile(Message):
    file_id: str


class CreateUpload(Message):
    """A file that will come in parts, `bytes` in all. What may be left out is the file's."""

    upload_id: str
    purpose: Purpose
    name: Sealed
    media_type: str
    bytes: int
    expires_after_ms: Ms | None = None
    dataset: DatasetName | None = None
    rows_max: int | None = None


class AddPart(Message):
    """The bytes are under `part_blob` already."""

    upload_id: str
    part_id: str
    bytes: int
    sha256: Sha256


class CompleteUpload(Message):
    """The file made of these parts, in this order, is under `blob` already."""

    upload_id: str
    parts: tuple[str, ...]
    file_id: str
    bytes: int
    sha256: Sha256
    blob: str


class CancelUpload(Message):
    upload_id: str


class RecordValidation(Message):
    """Outcome of the validate effect. `failure` says why there is none (retries exhausted)."""

    file_id: str
    validation: Validation | None
    failure: Failure | None = None


class PinDataset(Message):
    """A job needs these files prepared like this, and kept while it lives."""

    job_id: str
    training_file: str
    validation_file: str | None
    spec: PrepareSpec


class UnpinDataset(Message):
    job_id: str


class KeepDataset(Message):
    """The job has a model now, whose lineage names the files that the job pins."""

    job_id: str
    model_id: str


class ReleaseDataset(Message):
    """The model of this job is gone."""

    job_id: str


class RecordPrepared(Message):
    """Outcome of the prepare effect, for every job that waits for it."""

    prepare_id: str
    prepared: Prepared | None
    failure: Failure | None = None


# --- events
class FileRegistered(Message):
    """`version` counts the files of a `dataset` from 1; a number is never given twice."""

    file_id: str
    purpose: Purpose
    name: Sealed
    bytes: int
    sha256: Sha256
    blob: str
    expires_at: Ms | None = None
    job_id: str | None = None
    dataset: DatasetName | None = None
    version: int | None = None
    rows_max: int | None = None


class UploadCreated(Message):
    """`expires_at` is the upload's, `expires_after_ms` the file's."""

    upload_id: str
    purpose: Purpose
    name: Sealed
    media_type: str
    bytes: int
    expires_at: Ms
    expires_after_ms: Ms | None = None
    dataset: DatasetName | None = None
    rows_max: int | None = None


class PartAdded(Message):
    upload_id: str
    part_id: str
    bytes: int
    sha256: Sha256


class UploadEnded(Message):
    """`parts`: all of them, those of the file first, in its order. Nobody needs their bytes now."""

    upload_id: str
    outcome: UploadOutcome
    parts: tuple[str, ...]
    file_id: str | None = None


class FileValidated(Message):
    file_id: str
    validation: Validation


class FileUnreadable(Message):
    """Validation could not be done at all; the file counts as rejected."""

    file_id: str
    failure: Failure


class FileDeleted(Message):
    """`erase`: keys of stored bytes that nothing else of the tenant needs any more.

    `cancelled`: preparations under way that nobody waits for any more.
    """

    file_id: str
    blob: str
    report_blob: str | None
    erase: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


class PreparationDue(Message):
    """`prepare_id` follows from the files' content and the spec: equal work is done once."""

    prepare_id: str
    training_blob: str
    training_sha256: Sha256
    validation_blob: str | None
    spec: PrepareSpec
    validation_sha256: Sha256 | None = None


class DatasetPinned(Message):
    job_id: str
    training_file: str
    validation_file: str | None
    prepare_id: str
    spec: PrepareSpec


class DatasetPrepared(Message):
    prepare_id: str
    prepared: Prepared


class PreparationFailed(Message):
    prepare_id: str
    failure: Failure


class DatasetReady(Message):
    """The pinned dataset of this job can be trained on."""

    job_id: str
    prepared: Prepared


class PinRefused(Message):
    job_id: str
    failure: Failure


class DatasetUnpinned(Message):
    job_id: str


class DatasetKept(Message):
    """These files stay as long as the model does."""

    job_id: str
    model_id: str
    training_file: str
    validation_file: str | None


class DatasetReleased(Message):
    job_id: str


Command: TypeAlias = (
    RegisterFile
    | DeleteFile
    | CreateUpload
    | AddPart
    | CompleteUpload
    | CancelUpload
    | RecordValidation
    | PinDataset
    | UnpinDataset
    | KeepDataset
    | ReleaseDataset
    | RecordPrepared
    | Tick
)
Event: TypeAlias = (
    FileRegistered
    | UploadCreated
    | PartAdded
    | UploadEnded
    | FileValidated
    | FileUnreadable
    | FileDeleted
    | PreparationDue
    | DatasetPinned
    | DatasetPrepared
    | PreparationFailed
    | DatasetReady
    | PinRefused
    | DatasetUnpinned
    | DatasetKept
    | DatasetReleased
    | Rejected
    | Repeated
)
