"""Rows of a batch: requests with an id of their own, and the lines that answer them."""

from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from schemas.answers import AnswerUse
from schemas.batch import BatchProblem, BatchProblemCode
from services.gateway.web.domain.errors import ApiError

ROW_BYTES_MAX: Final = 1 << 20
CUSTOM_ID_MAX: Final = 512
REQUIRED: Final = ("custom_id", "method", "url", "body")
#: what is wrong with a row or a file, in OpenAI's words where it has some
PROBLEM_WORDS: Final[dict[BatchProblemCode, str]] = {
    "empty_file": "The batch input file is empty. Please ensure that the batch contains at least "
    "one request.",
    "too_many_rows": "The batch input file has more rows than the 50,000 that a batch may have.",
    "file_missing": "The batch input file was deleted.",
    "invalid_json_line": "This line is not parseable as valid JSON.",
    "missing_required_parameter": "Missing required parameter: '{param}'.",
    "invalid_method": "The method of each request of a batch must be POST.",
    "invalid_url": "The URL provided for this request does not match the batch endpoint.",
    "duplicate_custom_id": "The custom_id for this request is a duplicate of another request. The "
    "custom_id parameter must be unique for each request in a batch.",
    "invalid_request_body": "The body of this request is not valid: see {param}.",
    "not_processed": "The batch could not be processed. The operator's log says why.",
}
EXPIRED: Final = {
    "code": "batch_expired",
    "message": "This request could not be executed before the completion window expired.",
}


class BatchLine(NamedTuple):
    """A line of the input file: its number from 1, and its bytes."""

    number: int
    content: bytes


class RowRequest(Struct, frozen=True):
    """A row that can be asked."""

    custom_id: Annotated[str, Meta(min_length=1, max_length=CUSTOM_ID_MAX)]
    method: str
    url: str
    body: dict[str, Any]


class EndedRow(NamedTuple):
    """The line that a row gets in a file, and the tokens that it took."""

    line: dict[str, Any]
    use: AnswerUse | None = None

    @property
    def completed(self) -> bool:
        """Return whether the line belongs in the output file."""
        return belongs_in_output(self.line)


def belongs_in_output(line: dict[str, Any]) -> bool:
    """Return whether a line has an answer. Others belong in the error file."""
    return line["response"] is not None and line["response"]["status_code"] == 200


def cut_lines(rest: bytes, chunk: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines that a chunk completes, and the begin of the next one.

    rest: the begin that the chunk before has left. One of more than ROW_BYTES_MAX is cut short.
    """
    *whole, rest = (rest + chunk).split(b"\n")
    return whole, rest[: ROW_BYTES_MAX + 1]


def read_row(line: BatchLine, endpoint: str, known: set[str]) -> RowRequest | BatchProblem:
    """Read a row, whose custom_id joins `known`."""
    try:
        document = msgspec.json.decode(line.content)
    except (msgspec.DecodeError, RecursionError):
        return BatchProblem(code="invalid_json_line", line=line.number)
    if not isinstance(document, dict) or len(line.content) > ROW_BYTES_MAX:
        return BatchProblem(code="invalid_json_line", line=line.number)
    for name in REQUIRED:
        if document.get(name) in (None, ""):
            code: BatchProblemCode = "missing_required_parameter"
            return BatchProblem(code=code, line=line.number, param=name)
    try:
        row = msgspec.convert(document, RowRequest)
    except msgspec.ValidationError as error:
        param = str(error).rpartition("$.")[2].rstrip("`") or "body"
        return BatchProblem(code="invalid_request_body", line=line.number, param=param)
    if row.method != "POST":
        return BatchProblem(code="invalid_method", line=line.number, param="method")
    if row.url != endpoint:
        return BatchProblem(code="invalid_url", line=line.number, param="url")
    if row.custom_id in known:
        return BatchProblem(code="duplicate_custom_id", line=line.number, param="custom_id")
    known.add(row.custom_id)
    return row


def problem_words(problem: BatchProblem) -> str:
    """Return what is wrong as a sentence."""
    return PROBLEM_WORDS[problem.code].format(param=problem.param)


def answered_line(line_id: str, row: RowRequest, status: int, body: Any) -> dict[str, Any]:
    """The line of a row that was asked."""
    response = {"status_code": status, "request_id": line_id, "body": body}
    return {"id": line_id, "custom_id": row.custom_id, "response": response, "error": None}


def error_line(line_id: str, row: RowRequest, error: ApiError) -> dict[str, Any]:
    """The line of a row that was refused."""
    return answered_line(line_id, row, error.status, error.body().model_dump())


def problem_line(line_id: str, problem: BatchProblem) -> dict[str, Any]:
    """The line of a row that cannot be asked."""
    error = {"code": problem.code, "message": problem_words(problem), "line": problem.line}
    return {"id": line_id, "custom_id": None, "response": None, "error": error}


def expired_line(line_id: str, row: RowRequest) -> dict[str, Any]:
    """The line of a row whose turn did not come in time."""
    return {"id": line_id, "custom_id": row.custom_id, "response": None, "error": EXPIRED}


def tokens_of(body: dict[str, Any], key_id: str, model: str, engine_ms: int) -> AnswerUse:
    """Return the tokens that an answer says it took, in the shape of any of the endpoints."""
    usage = body["usage"]
    if "input_tokens" in usage:
        read, written = usage["input_tokens"], usage["output_tokens"]
        cached = usage["input_tokens_details"]["cached_tokens"]
    else:
        # embeddings write none, and say of none that it was in memory
        read, written = usage["prompt_tokens"], usage.get("completion_tokens", 0)
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return AnswerUse(
        key_id=key_id,
        model=model,
        requests=1,
        prompt_tokens=read,
        cached_tokens=cached,
        completion_tokens=written,
        engine_ms=engine_ms,
    )
