"""Rows of batches as they are read, and the lines that answer them."""

import json
from typing import Any

import pytest

from schemas.batch import BatchProblem, BatchProblemCode
from services.gateway.batches.domain.rows import (
    PROBLEM_WORDS,
    ROW_BYTES_MAX,
    BatchLine,
    RowRequest,
    cut_lines,
    problem_words,
    read_row,
    tokens_of,
)

URL = "/v1/chat/completions"
ROW: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": URL, "body": {"model": "m"}}


def read(row: Any, known: set[str] | None = None) -> RowRequest | BatchProblem:
    content = row if isinstance(row, bytes) else json.dumps(row).encode()
    return read_row(BatchLine(7, content), URL, set() if known is None else known)


def test_a_line_without_an_end_takes_no_memory() -> None:
    rest = b""
    for _ in range(8):
        lines, rest = cut_lines(rest, b"x" * 1_000_000)
        assert lines == []
    assert len(rest) == ROW_BYTES_MAX + 1
    problem = read_row(BatchLine(1, rest), URL, set())
    assert isinstance(problem, BatchProblem)
    assert problem.code == "invalid_json_line"


@pytest.mark.parametrize(
    ("row", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b"[" * 10_000, "invalid_json_line", None),
        (["a"], "invalid_json_line", None),
        ({**ROW, "custom_id": ""}, "missing_required_parameter", "custom_id"),
        ({"custom_id": "a", "method": "POST", "url": URL}, "missing_required_parameter", "body"),
        ({**ROW, "body": "no object"}, "invalid_request_body", "body"),
        ({**ROW, "custom_id": 7}, "invalid_request_body", "custom_id"),
        ({**ROW, "method": "GET"}, "invalid_method", "method"),
        ({**ROW, "url": "/v1/responses"}, "invalid_url", "url"),
    ],
)
def test_a_bad_row_is_named(row: Any, code: BatchProblemCode, param: str | None) -> None:
    assert read(row) == BatchProblem(code=code, line=7, param=param)


def test_an_id_is_used_once() -> None:
    known = set[str]()
    assert isinstance(read(ROW, known), RowRequest)
    again = read(ROW, known)
    assert isinstance(again, BatchProblem)
    assert again.code == "duplicate_custom_id"


def test_each_problem_has_words() -> None:
    for code in PROBLEM_WORDS:
        assert problem_words(BatchProblem(code=code, param="model")).endswith(".")


def test_tokens_are_read_in_both_shapes() -> None:
    chat = {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    response = {
        "input_tokens": 9,
        "output_tokens": 2,
        "input_tokens_details": {"cached_tokens": 4},
    }
    of_chat, of_response = (
        tokens_of({"usage": usage}, "key_1", "m", 5) for usage in (chat, response)
    )
    assert of_chat == of_response
    assert (of_chat.prompt_tokens, of_chat.cached_tokens, of_chat.completion_tokens) == (9, 4, 2)
