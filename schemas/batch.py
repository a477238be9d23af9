"""Messages of `account` about batches: files of questions that are answered at low priority.

Answers to rows and the tokens that they took are decided together, so that whoever goes on with a
batch after a crash neither repeats nor bills what was answered.
"""

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from schemas.answers import USES_MAX, AnswerUse
from schemas.dataset import FileContent
from schemas.envelope import Message, Part
from schemas.sealed import Sealed
from schemas.units import Ms

BatchEndpoint: TypeAlias = Literal[
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"
]
# Why no more rows are answered: all are, the tenant says so, or the completion window is over.
BatchClosingReason: TypeAlias = Literal["completed", "cancelled", "expired"]
BatchProblemCode: TypeAlias = Literal[
    "empty_file",
    "too_many_rows",
    "file_missing",
    "invalid_json_line",
    "missing_required_parameter",
    "invalid_method",
    "invalid_url",
    "duplicate_custom_id",
    "invalid_request_body",
    "not_processed",
]
BATCHES_OPEN_MAX: Final = 50  # of one tenant
ROWS_MAX: Final = 50_000  # of one batch, as OpenAI
PROBLEMS_MAX: Final = 100  # that a failed batch names

Rows = Annotated[int, Meta(ge=0, le=ROWS_MAX)]


class BatchTerms(Part):
    """A batch as a tenant requested it."""

    batch_id: str
    endpoint: BatchEndpoint  # what all its rows are requests of
    input_file_id: str
    content: FileContent  # bytes of that file
    key_id: str  # the API key that answers are counted for
    window_ms: Ms  # time after which unanswered rows expire
    output_expires_after_ms: Ms | None = None  # expiry of the files with its answers; None: never
    metadata: Sealed | None = None  # JSON object of texts


class BatchCounts(Part):
    """Rows that have ended."""

    completed: Rows = 0  # number of answered rows
    failed: Rows = 0  # number of rows with errors

    @property
    def ended(self) -> int:
        """Number of rows that have ended, which are the first of the file."""
        return self.completed + self.failed


class BatchPart(Part):
    """Rows that have ended, and directly follow those that ended before."""

    first: Rows  # number of rows before them
    counts: BatchCounts  # rows that have ended, with these
    # lines of the output or error file for these rows, in their order
    lines: FileContent


class BatchProblem(Part):
    """A row, or a whole file, that cannot be processed."""

    code: BatchProblemCode
    line: int | None = None  # number of the row, from 1; None: the whole file
    param: str | None = None  # the field that is missing or wrong


class BatchResult(Part):
    """How a batch ended."""

    batch_id: str
    output_file_id: str | None = None  # file with answers; None: no row was answered
    error_file_id: str | None = None  # file with errors; None: no row has one
    problems: tuple[BatchProblem, ...] = ()  # why it failed; empty: it did not


# --- commands
class CreateBatch(Message):
    """A tenant wants a file of questions answered."""

    terms: BatchTerms  # the batch


class BeginBatch(Message):
    """The input file was checked: at least one row can be answered."""

    batch_id: str
    rows: Annotated[int, Meta(ge=1, le=ROWS_MAX)]  # number of rows


class AnswerBatchRows(Message):
    """Further rows have ended."""

    batch_id: str
    part: BatchPart  # these rows
    # tokens that they took, one record for each model
    uses: Annotated[tuple[AnswerUse, ...], Meta(max_length=USES_MAX)]


class CancelBatch(Message):
    """The tenant wants no more rows answered."""

    batch_id: str


class EndBatch(Message):
    """The files of a batch are written, or it failed."""

    result: BatchResult  # how it ends


# --- events
class BatchCreated(Message):
    """The input file is to be checked."""

    terms: BatchTerms  # the batch


class BatchBegun(Message):
    """Rows are answered from now on."""

    batch_id: str
    rows: Rows  # number of rows


class BatchRowsAnswered(Message):
    """Further rows have ended. An `AnswersCounted` with their tokens follows."""

    batch_id: str
    part: BatchPart  # these rows


class BatchClosing(Message):
    """No more rows are answered; what was answered is written to files."""

    batch_id: str
    why: BatchClosingReason


class BatchEnded(Message):
    """The batch is over."""

    result: BatchResult  # how it ended


BatchCommand: TypeAlias = CreateBatch | BeginBatch | AnswerBatchRows | CancelBatch | EndBatch
BatchEvent: TypeAlias = BatchCreated | BatchBegun | BatchRowsAnswered | BatchClosing | BatchEnded
