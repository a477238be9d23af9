"""Stream `dataset` (key: tenant, owner: ingest): files, their validation, prepared caches."""

from typing import Final, Literal, TypeAlias

from schemas.envelope import Message, Part, Rejected, Repeated, Sha256, Tick
from schemas.erasure import EraseFiles, FilesErased
from schemas.reasons import Failure
from schemas.sealed import Sealed
from schemas.storage import FileTerms, StorageQuota, UploadPart, UploadTerms
from schemas.units import Ms, Tokens

LengthPolicy: TypeAlias = Literal["reject", "truncate", "split"]
# What becomes of the reasoning before an answer: it is learned, or removed before rendering.
ReasoningPolicy: TypeAlias = Literal["keep", "drop"]
# What a row is: answers to learn, a preferred answer and another one, an answer with a label, a
# prompt to be answered with what a grader reads.
RowKind: TypeAlias = Literal["answers", "pairs", "labels", "prompts"]
UploadOutcome: TypeAlias = Literal["completed", "cancelled", "expired"]
# Which rows validate follows from the file alone: jobs with other seeds share what is prepared, are
# judged on the same rows, and know their steps before they run.
SPLIT_SEED: Final = 42
EMPTY_SHA256: Final = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class PackPlan(Part, array_like=True):
    """Size of the packed training rows for one maximum length and validation fraction."""

    max_length: int  # tokens of one packed row
    validation_fraction_ppm: int  # share of the rows held out for validation, in millionths
    packed_rows: int  # rows after packing
    tokens: Tokens  # tokens of all packed rows


class BaseTokens(Part):
    """Exact token counts of one file under one base model's tokenizer and chat template."""

    # base_id, base_sha256: the base model
    base_id: str
    base_sha256: Sha256
    tokens: Tokens  # number of tokens in all rows
    trainable_tokens: Tokens  # tokens that the loss counts
    longest_row_tokens: Tokens  # number of tokens in the longest row
    plans: tuple[PackPlan, ...] = ()  # sizes after packing
    # what the counts are of; "drop": with its reasoning the base model's chat template refuses it
    reasoning: ReasoningPolicy = "keep"


class Validation(Part):
    """Summary of the checks of a file; the rows with errors are in the report blob."""

    accepted: bool
    dialect: str
    rows: int
    errors: int
    warnings: int
    tokens: tuple[BaseTokens, ...]
    report_blob: str
    failure: Failure | None = None  # why the file is not accepted


class FileContent(Part):
    """Bytes in object storage."""

    bytes: int
    sha256: Sha256  # hash of all bytes, computed during the upload
    blob: str  # key of the object


class ChatFormat(Part):
    """A job's own chat template and end tokens, in place of its base model's."""

    sha256: Sha256  # hash of both, as the tenant wrote them
    template: Sealed | None = None  # None: the base model's
    # tokens that end a turn besides the base model's own, as JSON; None: only those
    eot_tokens: Sealed | None = None


class PrepareSpec(Part):
    """All that the bytes of a prepared cache depend on besides the files' content."""

    # base_id, base_sha256: the base model
    base_id: str
    base_sha256: Sha256
    max_length: int  # tokens of one packed row
    length_policy: LengthPolicy  # what happens to longer rows
    validation_fraction_ppm: int  # share of the rows that validates, in millionths
    seed: int  # seed of the choice of validation rows
    # kind of rows that the job's method learns from; files of other kinds are refused
    rows: RowKind = "answers"
    reasoning: ReasoningPolicy = "keep"  # what becomes of the reasoning of answers
    chat: ChatFormat | None = None  # None: the base model's template and end tokens


class MixedFile(Part):
    """A further file that a job trains on."""

    file_id: str
    # how often an epoch sees each of its rows, in millionths; of a fraction of one, that share of
    # the rows is drawn
    weight_ppm: int


class MixedBlob(Part):
    """The content of a further file, and its weight as in `MixedFile`."""

    blob: str
    sha256: Sha256
    weight_ppm: int


class PinTerms(Part):
    """Files of a job, and their preparation, that are kept for the lifetime of the job."""

    training_file: str  # the file it trains on
    validation_file: str | None  # the file it validates on, None: a share of the files it trains on
    spec: PrepareSpec  # how they are prepared
    mixture: tuple[MixedFile, ...] = ()  # further files it trains on

    @property
    def files(self) -> tuple[str, ...]:
        """The ids of all of them."""
        second = () if self.validation_file is None else (self.validation_file,)
        return (self.training_file, *second, *(mixed.file_id for mixed in self.mixture))


class Prepared(Part):
    """A packed cache in object storage, under content-named keys."""

    version: str  # key of the cache
    # train_blob, train_sha256: packed rows that train
    train_blob: str
    train_sha256: Sha256
    # validation_blob, validation_sha256: packed rows that validate
    validation_blob: str
    validation_sha256: Sha256
    # prompts_blob, prompts_sha256: prompts that an evaluation answers
    prompts_blob: str
    prompts_sha256: Sha256
    train_rows: int  # rows that train, before packing
    validation_rows: int  # rows that validate, before packing
    packed_rows: int  # rows that train, after packing
    tokens: Tokens  # number of tokens in the training rows
    trainable_tokens: Tokens  # tokens that the loss counts

    @property
    def blobs(self) -> tuple[str, ...]:
        """Keys of its objects."""
        return (self.train_blob, self.validation_blob, self.prompts_blob)


def no_rows() -> Prepared:
    """Return the empty preparation of an evaluation that reads no rows of the tenant."""
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
    """Return the key of the blob that holds a part until its upload ends."""
    return f"t/{tenant}/uploads/{upload_id}/{part_id}"


def report_folder(tenant: str, file_id: str) -> str:
    """Return the folder for the reports of a file's checks; only those write to it."""
    return f"t/{tenant}/reports/{file_id}/"


def prepared_folder(tenant: str, prepare_id: str) -> str:
    """Return the folder for the files of one preparation's attempts; only those write to it."""
    return f"t/{tenant}/prepared/{prepare_id}/"


# --- commands
class RegisterFile(Message):
    """The bytes of a file are in object storage."""

    file_id: str
    terms: FileTerms  # what was declared about it
    content: FileContent  # its bytes
    job_id: str | None = None  # the job that it comes from
    # what it must fit into, None: nothing but the limits of all tenants
    quota: StorageQuota | None = None


class DeleteFile(Message):
    """The file goes, unless a job or a model needs it."""

    file_id: str


class CreateUpload(Message):
    """A file will come in parts."""

    upload_id: str
    terms: UploadTerms  # what is declared about it
    # what it must fit into, None: nothing but the limits of all tenants
    quota: StorageQuota | None = None


class AddPart(Message):
    """The bytes of a part are in object storage."""

    upload_id: str
    part: UploadPart


class CompleteUpload(Message):
    """The file made of these parts is in object storage."""

    upload_id: str
    parts: tuple[str, ...]  # their ids, in the order of the file
    file_id: str
    content: FileContent  # its bytes
    quota: StorageQuota | None = None  # how many files there may be, None: as many as of any tenant


class CancelUpload(Message):
    """There will be no file."""

    upload_id: str


class RecordValidation(Message):
    """Outcome of the validate effect. `failure` says why there is none (retries exhausted)."""

    file_id: str
    validation: Validation | None
    failure: Failure | None = None


class PinDataset(Message):
    """A job needs its dataset."""

    job_id: str
    terms: PinTerms  # what it needs


class UnpinDataset(Message):
    """The job does not need its dataset any more."""

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


class EraseUnnamed(Message):
    """Objects that no record names go. Operators send it, after an inventory of object storage."""

    blobs: tuple[str, ...]  # keys of the objects
    before: Ms  # what was stored at this time or later stays, by the clock of the storage


# --- events
class FileRegistered(Message):
    """The file is there."""

    file_id: str
    terms: FileTerms  # what was declared about it
    content: FileContent  # its bytes
    expires_at: Ms | None = None  # when it expires, None: never
    job_id: str | None = None  # the job that it comes from
    # counts the files of its dataset from 1; a number is never given twice
    version: int | None = None


class UploadCreated(Message):
    """The upload takes parts."""

    upload_id: str
    terms: UploadTerms  # what was declared about it
    expires_at: Ms  # when the upload expires


class PartAdded(Message):
    """The upload has another part."""

    upload_id: str
    part: UploadPart


class UploadEnded(Message):
    """The upload is over; the bytes of its parts are not needed any more."""

    upload_id: str
    outcome: UploadOutcome  # what became of it
    parts: tuple[str, ...]  # all of them, those of the file first, in its order
    file_id: str | None = None  # the file, if there is one


class FileValidated(Message):
    file_id: str
    validation: Validation


class FileUnreadable(Message):
    """Validation could not be done at all; the file counts as rejected."""

    file_id: str
    failure: Failure


class FileDeleted(Message):
    """The file is gone."""

    file_id: str
    blob: str  # key of the deleted object
    report_blob: str | None  # key of the report of its validation
    # keys of stored bytes that go, and folders (they end in "/") with all that is below
    erase: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()  # preparations under way that no job waits for any more


class PreparationDue(Message):
    """Files are to be prepared."""

    prepare_id: str  # unique id of this preparation, and of its folder
    # training_blob, training_sha256: the file that trains
    training_blob: str
    training_sha256: Sha256
    # validation_blob, validation_sha256: the file that validates, if it is another one
    validation_blob: str | None
    spec: PrepareSpec  # how they are prepared
    validation_sha256: Sha256 | None = None
    mixture: tuple[MixedBlob, ...] = ()  # further files that train
    # follows from the files' content and the spec: equal work is done once; None: `prepare_id`
    work: str | None = None


class DatasetPinned(Message):
    """The files stay until the job has ended."""

    job_id: str
    terms: PinTerms  # what it needs
    prepare_id: str  # `work` of the preparation that it waits for


class DatasetPrepared(Message):
    """The preparation has succeeded."""

    prepare_id: str  # the preparation
    prepared: Prepared  # what it made


class PreparationFailed(Message):
    prepare_id: str
    failure: Failure


class WorkDiscarded(Message):
    """A check or a preparation has ended after its files were deleted."""

    erase: tuple[str, ...]  # folders (they end in "/") in which it has stored what nothing needs


class UnnamedDiscarded(Message):
    """Objects that no record names are not kept any longer."""

    blobs: tuple[str, ...]  # keys of the objects
    before: Ms  # what was stored at this time or later stays, by the clock of the storage


class DatasetReady(Message):
    """The job can train on its dataset."""

    job_id: str
    prepared: Prepared  # the dataset


class PinRefused(Message):
    job_id: str
    failure: Failure


class DatasetUnpinned(Message):
    """The job does not keep its files any more."""

    job_id: str


class DatasetKept(Message):
    """These files stay as long as the model does."""

    job_id: str  # the job that made it
    model_id: str
    # training_file, validation_file: the files in its lineage
    training_file: str
    validation_file: str | None
    mixture: tuple[str, ...] = ()  # further files in it


class DatasetReleased(Message):
    """No model needs these files any more."""

    job_id: str  # the job that made the model


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
    | EraseUnnamed
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
    | WorkDiscarded
    | UnnamedDiscarded
    | DatasetReady
    | PinRefused
    | DatasetUnpinned
    | DatasetKept
    | DatasetReleased
    | FilesErased
    | Rejected
    | Repeated
)
