"""Tasks of the preview process and its answers: rows as tokens, comparisons of files and models."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from schemas.dataset import BaseTokens, LengthPolicy, ReasoningPolicy

MEMORY_BYTES_MAX: Final = 2 * 1024**3  # of the process of one task
READ_FILES: Final = "Read its teacher_file_id and the output files of its batches."
COMPARE_LOCALLY: Final = "Download both and use `tunery data diff`."


class Preview(Struct, frozen=True, kw_only=True, tag="preview"):
    path: str
    base_path: str
    rows: int
    max_length: int | None
    length_policy: LengthPolicy
    reasoning: ReasoningPolicy = "keep"
    # folder of another tokenizer, with a job's own chat format; None: the base model's
    tokenizer: str | None = None


class Count(Struct, frozen=True, kw_only=True, tag="count"):
    """Try rows with a job's own chat format, and count their tokens."""

    path: str
    # base_id, base_sha256, base_path: the base model
    base_id: str
    base_sha256: str
    base_path: str
    tokenizer: str  # folder of the tokenizer with the chat format
    reasoning: ReasoningPolicy
    source: str  # field of the request and id of the file, for a refusal


class Comparison(Struct, frozen=True, kw_only=True, tag="comparison"):
    before: str
    after: str


class MovedModels(Struct, frozen=True, kw_only=True, tag="moved"):
    """Models of an import beside the old ones, as a page.

    moves: file with what became of them; old: file with what old models answered
    new: files with the answers of batches; judged: files with those of a judge
    """

    moves: str
    old: str
    new: list[str]
    judged: list[str]


class Segment(Struct, frozen=True, kw_only=True):
    """Neighbouring tokens of one kind."""

    text: str
    learnt: bool  # whether they are labels of the loss
    tokens: int


class RowShown(Struct, frozen=True, kw_only=True):
    """A row as tokens; a row that was split is shown as several, `part` of `parts`."""

    row: int
    part: int
    parts: int
    tokens: int  # number of tokens before truncation
    trainable_tokens: int
    truncated: bool
    token_ids: list[int]
    loss_mask: list[int]  # 0 or 1 for each token
    segments: list[Segment]


class PreviewProblem(Struct, frozen=True, kw_only=True):
    row: int | None
    pointer: str
    code: str
    message: str
    hint: str


class PreviewAnswer(Struct, frozen=True, kw_only=True, tag="shown"):
    data: list[RowShown]
    problems: list[PreviewProblem]


class CountAnswer(Struct, frozen=True, kw_only=True, tag="counted"):
    tokens: BaseTokens | None  # None: no row could be read


class ComparisonAnswer(Struct, frozen=True, kw_only=True, tag="compared"):
    """Result of a comparison of two versions."""

    difference: dict[str, Any]  # fields of `tunery.data.versions.Difference`


class PageAnswer(Struct, frozen=True, kw_only=True, tag="page"):
    html: str


class RefusedTask(Struct, frozen=True, kw_only=True, tag="refused"):
    message: str
    param: str


Task: TypeAlias = Preview | Count | Comparison | MovedModels
Answer: TypeAlias = PreviewAnswer | CountAnswer | ComparisonAnswer | PageAnswer | RefusedTask
#: the parameter that a refusal names where a task takes too much memory or time
PARAMS: Final[Mapping[type[Task], str]] = {
    Preview: "rows",
    Count: "training.chat_template",
    Comparison: "before",
    MovedModels: "import_id",
}
