"""Every bad row is named: case by case, the code, the row, the pointer."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.checking import check
from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.limits import ROWS_MIN
from tunery.data.reports.report import CheckReport

USER = {"role": "user", "content": "Where is the light?"}
ANSWER = {"role": "assistant", "content": "On the rock."}
CALL = {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": '{"at": 3}'}}
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]
BAD_ROW = 6  # where `chat` and `pairs` put the row under test


def good(number: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"Question {number}?"}, ANSWER]}


def pair(number: int) -> dict[str, Any]:
    return {"prompt": f"Question {number}?", "completion": f"Answer {number}."}


def encode(row: Any) -> bytes:
    return row if isinstance(row, bytes) else json.dumps(row).encode()


def check_bytes(content: bytes, **options: Any) -> CheckReport:
    return check(io.BytesIO(content), **options)


def among(row: Any, others: Callable[[int], Any] = good) -> CheckReport:
    """The report of a file of good rows with one other row as number six."""
    rows = [others(number) for number in range(1, ROWS_MIN + 2)]
    rows[BAD_ROW - 1] = row
    return check_bytes(b"\n".join(map(encode, rows)))


def messages(*items: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(items), **more}


def said(role: Any, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def calling(call: Any = CALL, *then: Any, tools: Any = TOOLS) -> dict[str, Any]:
    return messages(USER, {"role": "assistant", "tool_calls": [call]}, *then, tools=tools)


DEEP = b'{"messages": ' + b"[" * 100 + b"]" * 100 + b"}"
DEEPER = b'{"messages": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
BAD_CHATS: list[tuple[Any, str, str]] = [
    (b'{"messages": [{"role": "user"', "truncated_json", ""),
    (b'{"messages": [{"role": "user", "content": "a', "truncated_json", ""),
    (b'{"messages": [],}', "trailing_comma", ""),
    (b'{"messages": [1,]}', "trailing_comma", ""),
    (b'{"messages": []},', "trailing_comma", ""),
    (b"{'messages': []}", "python_repr", ""),
    (b'{"messages": None}', "python_repr", ""),
    (b'{"messages": [True]}', "python_repr", ""),
    (b'{"messages": NaN}', "not_a_number", ""),
    (b'{"messages": -Infinity}', "not_a_number", ""),
    (b'{"messages": []} {"messages": []}', "two_objects", ""),
    (b'{"messages": []},{"messages": []}', "two_objects", ""),
    (b"just text", "invalid_json", ""),
    (b'{"messages": "tab\there"}', "invalid_json", ""),
    (b'{"messages": [], "n": ' + b"9" * 5000 + b"x}", "invalid_json", ""),
    (b'{"messages": [], "n": ' + b"9" * 5000 + b"}", "invalid_json", ""),
    (b'{"messages": "caf\xe9"}', "invalid_utf8", ""),
    (b'{"messages": "\\ud83d"}', "lone_surrogate", ""),
    (DEEP, "nested_too_deep", ""),
    (DEEPER, "nested_too_deep", ""),
    (b"[1, 2]", "row_not_object", ""),
    (b'"text"', "row_not_object", ""),
    (b"null", "row_not_object", ""),
    (b'{"messages": [], "messages": []}', "duplicate_key", ""),
    (
        encode(good(1)).replace(b'"role": "user"', b'"role": "x", "role": "user"'),
        "duplicate_key",
        "",
    ),
    ({}, "missing_messages", ""),
    ({"message": []}, "missing_messages", ""),
    ({"messages": None}, "missing_messages", "/messages"),
    ({"messages": "hello"}, "messages_not_list", "/messages"),
    ({"messages": {"role": "user"}}, "messages_not_list", "/messages"),
    (messages(), "messages_empty", "/messages"),
    (messages("hello", ANSWER), "message_not_object", "/messages/0"),
    (messages({"content": "a"}, ANSWER), "missing_role", "/messages/0/role"),
    (messages(said(1, "a"), ANSWER), "role_not_string", "/messages/0/role"),
    (messages(said(None, "a"), ANSWER), "role_not_string", "/messages/0/role"),
    (messages(said("User", "a"), ANSWER), "unknown_role", "/messages/0/role"),
    (messages(said("narrator", "a"), ANSWER), "unknown_role", "/messages/0/role"),
    (messages({"role": "user"}, ANSWER), "missing_content", "/messages/0/content"),
    (messages(USER, said("assistant", None)), "content_not_string", "/messages/1/content"),
    (messages(said("user", 5), ANSWER), "content_not_string", "/messages/0/content"),
    (messages(said("user", {"text": "a"}), ANSWER), "content_not_string", "/messages/0/content"),
    (messages(said("user", ""), ANSWER), "content_empty", "/messages/0/content"),
    (messages(USER, said("assistant", " \n\t")), "content_empty", "/messages/1/content"),
    (messages(said("user", []), ANSWER), "content_empty", "/messages/0/content"),
    (messages(said("user", ["a"]), ANSWER), "content_part", "/messages/0/content/0"),
    (
        messages(said("user", [{"type": "image_url", "image_url": {"url": "x"}}]), ANSWER),
        "image_in_text",
        "/messages/0/content/0",
    ),
    ({**messages(USER, ANSWER), "images": ["a.png"]}, "image_in_text", "/images"),
    (messages(said("user", "a\0b"), ANSWER), "nul_character", "/messages/0/content"),
    (messages(USER), "no_assistant", "/messages"),
    (messages(USER, ANSWER, USER), "assistant_not_last", "/messages/2/role"),
    (messages(USER, {**ANSWER, "weight": 2}), "bad_weight", "/messages/1/weight"),
    (messages(USER, {**ANSWER, "weight": 0.5}), "bad_weight", "/messages/1/weight"),
    (messages(USER, {**ANSWER, "weight": True}), "bad_weight", "/messages/1/weight"),
    (messages(USER, {**ANSWER, "weight": "1"}), "bad_weight", "/messages/1/weight"),
    (messages(USER, {**ANSWER, "weight": 0}), "weights_all_zero", "/messages"),
    (messages(USER, ANSWER, tools="tide"), "bad_tools", "/tools"),
    (messages(USER, ANSWER, tools=[{"name": "tide"}]), "bad_tools", "/tools/0"),
    (calling({"id": "c1"}), "bad_tool_calls", "/messages/1/tool_calls/0"),
    (calling({**CALL, "id": 7}), "bad_tool_calls", "/messages/1/tool_calls/0"),
    (
        calling({**CALL, "function": {"name": "tide", "arguments": "{at: 3}"}}),
        "tool_arguments_invalid",
        "/messages/1/tool_calls/0/function/arguments",
    ),
    (
        calling({**CALL, "function": {"name": "tide", "arguments": "[3]"}}),
        "tool_arguments_invalid",
        "/messages/1/tool_calls/0/function/arguments",
    ),
    (
        calling({**CALL, "function": {"name": "wind", "arguments": "{}"}}),
        "unknown_tool",
        "/messages/1/tool_calls/0/function/name",
    ),
    (
        calling(CALL, {"role": "tool", "content": "3 m", "tool_call_id": "c2"}, ANSWER),
        "tool_call_id_mismatch",
        "/messages/2/tool_call_id",
    ),
    (messages(USER, said("tool", "3 m"), ANSWER), "orphan_tool_message", "/messages/1"),
    (calling(CALL, USER, ANSWER), "missing_tool_result", "/messages/2"),
    ({"messages": [USER, ANSWER], "prompt": "a"}, "mixed_formats", ""),
    (pair(1), "other_dialect", ""),
    ({"messages": [USER, ANSWER], "text": "a"}, "mixed_formats", ""),
    ({"instruction": "a", "output": "b"}, "other_dialect", ""),
    ({"prompt": "a", "chosen": "b", "rejected": "c"}, "other_dialect", ""),
    ({"text": "a"}, "other_dialect", ""),
    ({"role": "user", "content": "a"}, "unknown_dialect", ""),
]
BAD_PAIRS: list[tuple[Any, str, str]] = [
    ({"prompt": "a"}, "missing_completion", "/completion"),
    ({"completion": "a"}, "missing_prompt", "/prompt"),
    ({"answer": "a"}, "missing_prompt", ""),
    ({"prompt": "a", "completion": {"text": "b"}}, "content_not_string", "/completion"),
    ({"prompt": None, "completion": "b"}, "content_not_string", "/prompt"),
    ({"prompt": 3, "completion": "b"}, "content_not_string", "/prompt"),
    ({"prompt": " ", "completion": "b"}, "content_empty", "/prompt"),
    ({"prompt": "a", "completion": ""}, "content_empty", "/completion"),
    ({"prompt": "a", "completion": "b\0"}, "nul_character", "/completion"),
    (good(1), "other_dialect", ""),
]


def case_name(case: tuple[Any, str, str]) -> str:
    return case[1]


@pytest.mark.parametrize("case", BAD_CHATS, ids=case_name)
def test_bad_chat_rows(case: tuple[Any, str, str]) -> None:
    row, code, pointer = case
    report = among(row)
    named = {(error.code, error.row, error.line, error.pointer) for error in report.errors}
    assert (code, BAD_ROW, BAD_ROW, pointer) in named
    assert {error.row for error in report.errors} == {BAD_ROW}
    assert (report.verdict, report.rows, report.rows_with_errors) == ("rejected", 11, 1)


@pytest.mark.parametrize("case", BAD_PAIRS, ids=case_name)
def test_bad_prompt_completion_rows(case: tuple[Any, str, str]) -> None:
    row, code, pointer = case
    report = among(row, pair)
    (error,) = report.errors
    assert (error.code, error.row, error.pointer) == (code, BAD_ROW, pointer)


WARNED: list[tuple[Any, str]] = [
    (messages(said("human", "a"), said("gpt", "b")), "role_alias"),
    (messages({**USER, "weight": 1}, ANSWER), "weight_ignored"),
    (messages({**USER, "colour": "red"}, ANSWER), "unknown_key"),
    (messages(said("system", ""), USER, ANSWER), "empty_system"),
    (messages(said("user", "a\x07b"), ANSWER), "control_character"),
    (messages(USER, said("assistant", "N/A")), "placeholder_text"),
    (messages(USER, said("assistant", USER["content"])), "output_equals_input"),
    (messages(said("user", "What is in this picture?"), ANSWER), "needs_link"),
    (messages(USER, said("assistant", "No input")), "placeholder_text"),
    (messages(said("user", "noinput"), ANSWER), "placeholder_text"),
    (messages(ANSWER, USER, ANSWER), "assistant_first"),
    (messages(USER, USER, ANSWER), "repeated_role"),
    (messages(USER, ANSWER, ANSWER), "repeated_role"),
    (messages(USER, said("system", "a"), ANSWER), "system_not_first"),
    (messages(said("system", "a"), said("system", "b"), USER, ANSWER), "system_not_first"),
    ({**good(1), "source": "log"}, "ignored_columns"),
    (calling(tools=None), "tools_undefined"),
    (b"", "blank_line"),
    (good(1), "duplicate_rows"),
]


@pytest.mark.parametrize("case", WARNED, ids=[code for _, code in WARNED])
def test_warnings_do_not_reject(case: tuple[Any, str]) -> None:
    report = among(case[0])
    assert case[1] in report.counts
    assert report.verdict == "accepted"
    assert not report.errors


FINE: dict[str, Any] = {
    "byte order mark": b"\xef\xbb\xbf" + encode(good(1)),
    "carriage return": encode(good(1)) + b"\r",
    "odd line breaks": encode(messages(said("user", "a\u2028b\u2029c\u0085d"), ANSWER)),
    "the same, not escaped": json.dumps(
        messages(said("user", "a\u2028b\u2029c\u0085d"), ANSWER), ensure_ascii=False
    ).encode(),
    "right to left": messages(said("user", "\u05e9\u05dc\u05d5\u05dd \u200fab"), ANSWER),
    "zero width": messages(said("user", "a\u200bb\u200dc\ufeff"), ANSWER),
    "emoji of several": messages(said("user", "\U0001f469\u200d\U0001f680"), ANSWER),
    "noncharacter": messages(said("user", "\ufdd0\ufdd1\uffff"), ANSWER),
    "surrogate pair": b'{"messages": [{"role": "user", "content": "\\ud83d\\ude00"},'
    b' {"role": "assistant", "content": "a"}]}',
    "text parts": messages(said("user", [{"type": "text", "text": "a"}] * 2), ANSWER),
    "developer": messages(said("developer", "a"), USER, ANSWER),
    "weights": messages(USER, {**ANSWER, "weight": 0}, USER, {**ANSWER, "weight": 1}),
    "names": messages({**USER, "name": "ann"}, ANSWER),
    "nulls": messages({**USER, "name": None, "tool_calls": None}, ANSWER, tools=None),
    "keys inside strings": messages(said("user", '{"role": "x", "role": "y"}'), ANSWER),
    "tool call at the end": calling(),
    "tool round": calling(CALL, said("tool", "3 m", tool_call_id="c1"), ANSWER),
    "empty tool result": calling(CALL, said("tool", "", tool_call_id="c1"), ANSWER),
    "parallel calls": messages(
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]},
        said("tool", "b", tool_call_id="c2"),
        said("tool", "a", tool_call_id="c1"),
        ANSWER,
        tools=TOOLS,
        parallel_tool_calls=True,
    ),
    "big number": {**good(1), "id": 2**80},
}


@pytest.mark.parametrize("row", FINE.values(), ids=FINE.keys())
def test_rows_that_must_not_fail(row: Any) -> None:
    report = among(row)
    assert (report.errors, report.verdict, report.rows) == ((), "accepted", 11)


def test_sharegpt_names_are_a_dialect() -> None:
    row = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    rows = [{**row, "id": number} for number in range(12)]
    rows.append({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt"}]})
    report = check_bytes(b"\n".join(map(encode, rows)))
    assert report.dialect == "sharegpt"
    (error,) = [error for error in report.errors if error.row is not None]
    assert (error.row, error.pointer, error.code) == (
        13,
        "/conversations/1/value",
        "missing_content",
    )


def test_csv_is_checked_by_the_same_rules() -> None:
    body = "".join(f"Question {n}?,Answer {n}.\n" for n in range(10))
    report = check_bytes(b"\xef\xbb\xbfprompt,completion\r\n" + body.encode() + b"  ,x\n")
    assert (report.format, report.dialect, report.rows) == ("csv", "prompt_completion", 11)
    (error,) = report.errors
    assert (error.code, error.row, error.line) == ("content_empty", 11, 12)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        (b" \n\t\n", "empty_file"),
        (b"prompt,completion\n", "header_only"),
        (encode(good(1)), "too_few_rows"),
        (b"\n".join([encode(good(1))] * 12), "all_rows_equal"),
        (b"[]", "empty_file"),
    ],
)
def test_findings_about_the_file(content: bytes, code: str) -> None:
    report = check_bytes(content)
    assert report.verdict == "rejected"
    assert [(e.code, e.row) for e in report.errors] == [(code, None)]


def test_the_first_rows_decide_the_dialect_even_when_the_first_one_is_odd() -> None:
    rows = [pair(0), *(good(number) for number in range(1, 12))]
    report = check_bytes(b"\n".join(map(encode, rows)))
    assert report.dialect == "chat"
    assert [(e.code, e.row) for e in report.errors] == [("other_dialect", 1)]


def test_every_fault_of_a_row_is_listed() -> None:
    report = among(messages(said("User", ""), {"role": "assistant"}, "x"))
    assert [error.code for error in report.errors] == [
        "unknown_role",
        "content_empty",
        "missing_content",
        "message_not_object",
    ]


def test_a_message_with_keys_of_another_dialect_is_reported() -> None:
    report = among(messages({"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}))
    first = report.errors[0]
    assert first.code == "missing_role"
    assert "'from'" in first.message
    assert "'conversations'" in first.message


def test_counts_stay_exact_when_the_listing_is_capped() -> None:
    report = check_bytes(b"{'a': 1}\n" * 2500)
    assert report.counts["python_repr"] == 2500
    assert sum(error.code == "python_repr" for error in report.errors) == 1000
    assert report.error_count == 2500


def test_excerpts_hide_what_looks_personal() -> None:
    report = among(b"{'mail': 'ann@example.org', 'phone': '+49 170 1234567'}")
    assert "example.org" not in report.errors[0].excerpt
    assert "1234567" not in report.errors[0].excerpt


def test_the_report_is_the_documented_json() -> None:
    report = among(messages(USER))
    value = json.loads(report.to_json())
    assert value["verdict"] == "rejected"
    assert value["errors"][0].keys() >= {"row", "line", "pointer", "code", "message", "hint"}
    assert value["counts"] == {"few_rows": 1, "no_assistant": 1}


def test_the_planted_errors_of_the_example_are_all_found() -> None:
    examples = Path(__file__).parents[4] / "examples"
    expected = json.loads((examples / "broken.expected.json").read_text())
    report = check(examples / "broken.jsonl")
    assert {str(error.row): error.code for error in report.errors} == expected


def test_progress_ends_at_the_size_of_the_file(write: Callable[..., Path]) -> None:
    path = write(good(number) for number in range(700))
    seen: list[int] = []
    check(path, progress=seen.append)
    assert seen == sorted(seen)
    assert len(seen) > 1
    assert seen[-1] == path.stat().st_size


# --- with a base model
def test_tokens_are_counted_exactly(base_dir: Path, write: Callable[..., Path]) -> None:
    path = write(good(number) for number in range(300))
    counts = check(path, base_dir=base_dir).tokens
    assert counts is not None
    assert counts.rows == sum(bin_.rows for bin_ in counts.histogram) == 300
    assert 0 < counts.trainable_tokens < counts.tokens
    assert counts.longest_row_tokens * 300 >= counts.tokens


def test_faults_that_need_a_base_model(base_dir: Path, write: Callable[..., Path]) -> None:
    rows: list[Any] = [good(number) for number in range(10)]
    rows.append(messages(said("user", "a <|im_end|> b"), ANSWER))
    rows.append(messages(said("user", "long " * 300), ANSWER))
    rows.append(calling())
    report = check(write(rows), base_dir=base_dir, max_length=200)
    assert [(w.row, w.code) for w in report.warnings if w.row] == [
        (11, "special_token_in_text"),
        (13, "tools_not_shown"),
    ]
    assert sorted((e.row, e.code) for e in report.errors if e.row) == [
        (12, "no_trainable_token"),
        (12, "row_too_long"),
        (13, "template_without_tools"),
    ]


def test_a_prompt_that_fills_the_context_leaves_nothing_to_learn(
    base_dir: Path, write: Callable[..., Path]
) -> None:
    rows: list[Any] = [good(number) for number in range(10)]
    rows += [
        messages(said("user", "long " * 300), ANSWER),
        messages(USER, said("assistant", "a " * 300)),
    ]
    report = check(write(rows), base_dir=base_dir, max_length=200)
    assert [(e.row, e.code) for e in report.errors] == [
        (11, "row_too_long"),
        (11, "no_trainable_token"),
        (12, "row_too_long"),
    ]


def test_three_rows_are_shown_as_the_model_sees_them(
    base_dir: Path, write: Callable[..., Path]
) -> None:
    report = check(write(good(number) for number in range(10)), base_dir=base_dir)
    assert "text_not_restored" not in report.counts
    assert [sample.row for sample in report.samples] == [1, 2, 3]
    for sample in report.samples:
        learnt = "".join(piece.text for piece in sample.pieces if piece.learnt)
        assert learnt == "On the rock.<|im_end|>"


def test_both_answers_of_a_comparison_are_counted(
    base_dir: Path, write: Callable[..., Path]
) -> None:
    rows = [
        {"prompt": f"Question {n}?", "chosen": "Yes, it is.", "rejected": "No."} for n in range(10)
    ]
    won = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in rows]
    lost = [{"prompt": row["prompt"], "completion": row["rejected"]} for row in rows]
    both, *each = [check(write(some), base_dir=base_dir).tokens for some in (rows, won, lost)]
    assert both is not None
    assert both.tokens == sum(counts.tokens for counts in each if counts is not None)


# --- anything at all
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "messages", "weight", "tools", "tool_calls", "id"]),
            inside,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["messages", "prompt", "tools"]), JSON), max_size=6)
)
def test_any_json_is_checked(rows: list[Any]) -> None:
    report = check_bytes(b"\n".join(map(encode, rows)))
    assert report.rows == len(rows)
    assert (report.verdict == "accepted") == (report.error_count == 0)


@given(st.integers(0, 400), st.binary(max_size=3))
def test_a_damaged_file_is_checked(at: int, instead: bytes) -> None:
    content = b"\n".join(encode(good(number)) for number in range(4))
    damaged = content[:at] + instead + content[at + 1 :]
    report = check_bytes(damaged, min_rows=0)
    assert report.error_count == sum(
        n for code, n in report.counts.items() if CATALOGUE[code].severity == "error"
    )


def test_reading_ends_where_there_are_too_many_rows(write: Callable[..., Path]) -> None:
    path = write(good(number) for number in range(12))
    assert check(path, max_rows=12).verdict == "accepted"
    report = check(path, max_rows=11)
    (error,) = report.errors
    assert (error.row, error.code) == (None, "too_many_rows")
    assert "more than 11" in error.message


def test_long_texts_pass_where_they_are_split_and_chats_never_are(
    base_dir: Path, write: Callable[..., Path]
) -> None:
    long = write({"text": f"Lamp {number} shines. " * 30} for number in range(10))
    chats = write((good(number) for number in range(10)), "chats.jsonl")
    codes = {}
    for path, policy in ((long, "reject"), (long, "split"), (chats, "split")):
        report = check(path, base_dir=base_dir, max_length=64, length_policy=policy)  # type: ignore[arg-type]  # one of the policies
        codes[path.name, policy] = {error.code for error in report.errors}
    assert codes == {
        ("rows.jsonl", "reject"): {"row_too_long"},
        ("rows.jsonl", "split"): set(),
        ("chats.jsonl", "split"): {"split_not_text"},
    }


# --- the data we ship: accepted, small, and with the style its README promises --------------------


EXAMPLES = Path(__file__).parents[4] / "examples"


def test_the_lighthouse_is_accepted_without_a_warning(base_dir: Path) -> None:
    report = check(EXAMPLES / "lighthouse.jsonl", base_dir=base_dir)
    assert (report.verdict, report.errors, report.warnings) == ("accepted", (), ())
    assert report.rows == report.distinct_rows == 277
    assert report.tokens is not None
    assert 15_000 < report.tokens.tokens < 20_000  # minutes of CPU
    assert report.tokens.longest_row_tokens <= 128


def test_every_answer_has_the_style() -> None:
    questions: set[str] = set()
    for line in (EXAMPLES / "lighthouse.jsonl").read_text(encoding="utf-8").splitlines():
        messages = json.loads(line)["messages"]
        questions.add(json.dumps(messages[:-1]))
        for message in messages:
            if message["role"] == "assistant":
                assert message["content"].startswith("Ahoy, Tuner of Lantern Rock here! ")
                assert message["content"].endswith(" Keep the lamp lit.")
    assert len(questions) == 277


def test_the_prompts_are_six_and_most_are_new() -> None:
    prompts = json.loads((EXAMPLES / "lighthouse-prompts.json").read_text())
    rows = (EXAMPLES / "lighthouse.jsonl").read_text(encoding="utf-8")
    assert [json.dumps(prompt) in rows for prompt in prompts].count(True) == 2
    assert len(prompts) == 6


# files in the situations of public reports; the number of a test is that of the report
TALKS = [json.dumps(good(number)) for number in range(12)]


def test_first_hour2_report_1_a_call_without_its_result_is_named_with_its_place() -> None:
    """microsoft-foundry/fine-tuning#23: "invalid schema (20)", without a row."""
    call: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    row = json.dumps({"messages": [USER, call, ANSWER], "tools": TOOLS})
    report = check_bytes("\n".join([*TALKS[:11], row]).encode())
    [problem] = [finding for finding in report.errors if finding.code == "missing_tool_result"]
    assert (problem.row, problem.pointer) == (12, "/messages/2")
    assert "c1" in problem.message
    assert problem.hint


def test_first_hour2_report_6_another_encoding_is_named_with_the_way_out() -> None:
    """openai/openai-python#383: a file that Windows saved was "not valid TXT"."""
    text = "\n".join(TALKS).replace("light", "\u706f\u5854")
    wide = check_bytes(text.encode("utf-16"))
    assert "UTF-16" in wide.errors[0].message
    assert "UTF-8" in wide.errors[0].hint
    rows = "\n".join(json.dumps(json.loads(line), ensure_ascii=False) for line in TALKS)
    narrow = check_bytes(rows.replace("Question", "\u706f\u5854").encode("gbk"))
    assert narrow.verdict == "rejected"
    assert narrow.errors[0].row == 1


def test_first_hour2_report_10_a_table_with_other_headers_is_refused_by_the_headers() -> None:
    """scaleapi/llm-engine#213: the job ran, and failed late without a reason."""
    table = "question,answer\n" + "".join(f"What is {n}?,{n}\n" for n in range(12))
    report = check_bytes(table.encode())
    assert report.verdict == "rejected"
    assert "question" in report.errors[0].message
