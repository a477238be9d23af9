"""Stream `dataset` (key: tenant, owner: ingest): files, their validation, prepared caches."""

from typing import Final, Literal, TypeAlias

from schemas.envelope import Message, Part, Rejected, Repeated, Sha256, Tick
from schemas.erasure import EraseFiles, FilesErased
from schemas.reasons import Failure
from schemas.storage import FileTerms, StorageQuota, UploadPart, UploadTerms
from schemas.units import Ms, Tokens

LengthPolicy: TypeAlias = Literal["reject", "truncate", "split"]
# What a row is: answers to learn, a preferred answer and another one, an answer with a label, a
# prompt to be answered with what a grader reads.
RowKind: TypeAlias = Literal["answers", "pairs", "labels", "prompts"]
UploadOutcome: TypeAlias = Literal["completed", "cancelled", "expired"]
# Which rows validate follows from the file alone: jobs with other seeds share what is prepared, are
# judged on the same rows, and know their steps before they run.
SPLIT_SEED: Final = 42
EMPTY_SHA256: Final = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class PackPlan(Part, array_like=True):
    """What the rows that train will be, for one length and one share that validates.

    max_length: tokens of one packed row.
    validation_fraction_ppm: share of the rows that validates, in millionths.
    packed_rows: rows after packing.
    tokens: in all of them.
    """

    max_length: int
    validation_fraction_ppm: int
    packed_rows: int
    tokens: Tokens


class BaseTokens(Part):
    """Exact token counts of one file under one base model's tokenizer and chat template.

    base_id, base_sha256: the base model.
    tokens: in all rows.
    trainable_tokens: those that the loss counts.
    longest_row_tokens: in the longest row.
    plans: what packing makes of them.
    """

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


class FileContent(Part):
    """Bytes in object storage.

    bytes: how many.
    sha256: of all of them, taken on the way.
    blob: where they are.
    """

    bytes: int
    sha256: Sha256
    blob: str


class PrepareSpec(Part):
    """All that the bytes of a prepared cache depend on besides the files' content.

    base_id, base_sha256: the base model.
    max_length: tokens of one packed row.
    length_policy: what happens to longer rows.
    validation_fraction_ppm: share of the rows that validates, in millionths.
    seed: decides which rows those are.
    rows: what the job's method learns from; files of others are refused.
    """

    base_id: str
    base_sha256: Sha256
    max_length: int
    length_policy: LengthPolicy
    validation_fraction_ppm: int
    seed: int
    rows: RowKind = "answers"


class MixedFile(Part):
    """A further file that a job trains on.

    file_id: the file.
    weight_ppm: how often an epoch sees each of its rows, in millionths; of a part of one time, so
      many of its rows are drawn.
    """

    file_id: str
    weight_ppm: int


class MixedBlob(Part):
    """The content of a further file, and its weight as in `MixedFile`."""

    blob: str
    sha256: Sha256
    weight_ppm: int


class PinTerms(Part):
    """Which files a job needs, prepared how, and kept while it lives.

    training_file: the file it trains on.
    validation_file: the file it validates on, None: a share of the files it trains on.
    spec: how they are prepared.
    mixture: further files it trains on.
    """

    training_file: str
    validation_file: str | None
    spec: PrepareSpec
    mixture: tuple[MixedFile, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The ids of all of them."""
        second = () if self.validation_file is None else (self.validation_file,)
        return (self.training_file, *second, *(mixed.file_id for mixed in self.mixture))


class Prepared(Part):
    """A packed cache in object storage, under content-named keys.

    version: key of the cache.
    train_blob, train_sha256: packed rows that train.
    validation_blob, validation_sha256: packed rows that validate.
    prompts_blob, prompts_sha256: prompts that an evaluation answers.
    train_rows: rows that train, before packing.
    validation_rows: rows that validate, before packing.
    packed_rows: rows that train, after packing.
    tokens: in the rows that train.
    trainable_tokens: those that the loss counts.
    """

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


def no_rows() -> Prepared:
    """What an evaluation without rows of the tenant is given: no file is read."""
    return Prepared(
        version="",
        train_blob="",
        train_sha256=EMPTY_SHA256,
        validation_blob="",
        validation_sha256=EMPTY_SHA256,
        prompts_blob="",
        prompts_sha256=EMPTY_SHA256,
        train_rows=0,
        validation_rows=0,
        packed_rows=0,
        tokens=0,
        trainable_tokens=0,
    )


def part_blob(tenant: str, upload_id: str, part_id: str) -> str:
    """Where the bytes of a part lie until its upload ends."""
    return f"t/{tenant}/uploads/{upload_id}/{part_id}"


# --- commands
class RegisterFile(Message):
    """The bytes of a file are in object storage.

    file_id: the file.
    terms: what was declared about it.
    content: its bytes.
    job_id: the job that it comes from.
    quota: what it must fit into, None: nothing but the limits of all tenants.
    """

    file_id: str
    terms: FileTerms
    content: FileContent
    job_id: str | None = None
    quota: StorageQuota | None = None


class DeleteFile(Message):
    """The file goes, unless a job or a model needs it.

    file_id: the file.
    """

    file_id: str


class CreateUpload(Message):
    """A file will come in parts.

    upload_id: the upload.
    terms: what is declared about it.
    quota: what it must fit into, None: nothing but the limits of all tenants.
    """

    upload_id: str
    terms: UploadTerms
    quota: StorageQuota | None = None


class AddPart(Message):
    """The bytes of a part are in object storage.

    upload_id: the upload.
    part: the part.
    """

    upload_id: str
    part: UploadPart


class CompleteUpload(Message):
    """The file made of these parts is in object storage.

    upload_id: the upload.
    parts: their ids, in the order of the file.
    file_id: the file.
    content: its bytes.
    quota: how many files there may be, None: as many as of any tenant.
    """

    upload_id: str
    parts: tuple[str, ...]
    file_id: str
    content: FileContent
    quota: StorageQuota | None = None


class CancelUpload(Message):
    """There will be no file.

    upload_id: the upload.
    """

    upload_id: str


class RecordValidation(Message):
    """Outcome of the validate effect. `failure` says why there is none (retries exhausted)."""

    file_id: str
    validation: Validation | None
    failure: Failure | None = None


class PinDataset(Message):
    """A job needs its dataset.

    job_id: the job.
    terms: what it needs.
    """

    job_id: str
    terms: PinTerms


class UnpinDataset(Message):
    """The job does not need its dataset any more.

    job_id: the job.
    """

    job_id: str


class KeepDataset(Message):
    """The job has a model now, whose lineage names the files that the job pins.

    job_id: the job.
    model_id: the model.
    """

    job_id: str
    model_id: str


class ReleaseDataset(Message):
    """The model of this job is gone.

    job_id: the job.
    """

    job_id: str


class RecordPrepared(Message):
    """Outcome of the prepare effect, for every job that waits for it."""

    prepare_id: str
    prepared: Prepared | None
    failure: Failure | None = None


# --- events
class FileRegistered(Message):
    """The file is there.

    file_id: the file.
    terms: what was declared about it.
    content: its bytes.
    expires_at: when it expires, None: never.
    job_id: the job that it comes from.
    version: counts the files of its dataset from 1; a number is never given twice.
    """

    file_id: str
    terms: FileTerms
    content: FileContent
    expires_at: Ms | None = None
    job_id: str | None = None
    version: int | None = None


class UploadCreated(Message):
    """The upload takes parts.

    upload_id: the upload.
    terms: what was declared about it.
    expires_at: when the upload expires.
    """

    upload_id: str
    terms: UploadTerms
    expires_at: Ms


class PartAdded(Message):
    """The upload has another part.

    upload_id: the upload.
    part: the part.
    """

    upload_id: str
    part: UploadPart


class UploadEnded(Message):
    """The upload is over; the bytes of its parts are not needed any more.

    upload_id: the upload.
    outcome: what became of it.
    parts: all of them, those of the file first, in its order.
    file_id: the file, if there is one.
    """

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
    """The file is gone.

    file_id: the file.
    blob: where its bytes were.
    report_blob: where the report of its validation was.
    erase: keys of stored bytes that nothing else of the tenant needs any more.
    cancelled: preparations under way that no job waits for any more.
    """

    file_id: str
    blob: str
    report_blob: str | None
    erase: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


class PreparationDue(Message):
    """Files are to be prepared.

    prepare_id: follows from the files' content and the spec: equal work is done once.
    training_blob, training_sha256: the file that trains.
    validation_blob, validation_sha256: the file that validates, if it is another one.
    spec: how they are prepared.
    mixture: further files that train.
    """

    prepare_id: str
    training_blob: str
    training_sha256: Sha256
    validation_blob: str | None
    spec: PrepareSpec
    validation_sha256: Sha256 | None = None
    mixture: tuple[MixedBlob, ...] = ()


class DatasetPinned(Message):
    """The files stay until the job has ended.

    job_id: the job.
    terms: what it needs.
    prepare_id: the preparation that it waits for.
    """

    job_id: str
    terms: PinTerms
    prepare_id: str


class DatasetPrepared(Message):
    """The preparation has succeeded.

    prepare_id: the preparation.
    prepared: what it made.
    """

    prepare_id: str
    prepared: Prepared


class PreparationFailed(Message):
    prepare_id: str
    failure: Failure


class DatasetReady(Message):
    """The job can train on its dataset.

    job_id: the job.
    prepared: the dataset.
    """

    job_id: str
    prepared: Prepared


class PinRefused(Message):
    job_id: str
    failure: Failure


class DatasetUnpinned(Message):
    """The job does not keep its files any more.

    job_id: the job.
    """

    job_id: str


class DatasetKept(Message):
    """These files stay as long as the model does.

    job_id: the job that made it.
    model_id: the model.
    training_file, validation_file: the files in its lineage.
    mixture: further files in it.
    """

    job_id: str
    model_id: str
    training_file: str
    validation_file: str | None
    mixture: tuple[str, ...] = ()


class DatasetReleased(Message):
    """No model needs these files any more.

    job_id: the job that made the model.
    """

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
    | EraseFiles
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
    | FilesErased
    | Rejected
    | Repeated
)
