"""Rows of every dialect: what is fine, and each fault by its code and pointer."""

import io
import json
from typing import Any

import pytest

from tunery.data.checking import check
from tunery.data.dialects import chat
from tunery.data.dialects.conversation import Conversation
from tunery.data.findings.finding import Note
from tunery.data.reports.report import CheckReport

BAD_ROW = 6
TOOL = {"name": "tide", "description": "Tide", "parameters": {"type": "object"}}


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def alpaca(number: int) -> dict[str, Any]:
    return {"instruction": f"Say {number}.", "input": "", "output": f"This is {number}."}


def plain(number: int) -> dict[str, Any]:
    return {"text": f"The lamp of rock {number} is lit at dusk."}


def openai_dpo(number: int) -> dict[str, Any]:
    return {
        "input": {"messages": [turn("user", f"Question {number}?")], "tools": []},
        "preferred_output": [turn("assistant", "Yes, it is.")],
        "non_preferred_output": [turn("assistant", "No, not at all.")],
    }


def trl_dpo(number: int) -> dict[str, Any]:
    return {"prompt": f"Question {number}?", "chosen": "Yes, it is.", "rejected": "Hardly."}


def kto(number: int) -> dict[str, Any]:
    return {"prompt": f"Question {number}?", "completion": "Yes, it is.", "label": number % 2 == 0}


def sharegpt(number: int) -> dict[str, Any]:
    return {
        "conversations": [
            {"from": "human", "value": f"Question {number}?"},
            {"from": "gpt", "value": "Yes, it is."},
        ]
    }


def prompt(number: int) -> dict[str, Any]:
    return {"messages": [turn("user", f"Question {number}?")], "answer": f"Answer {number}"}


GOOD = {
    "prompts": prompt,
    "alpaca": alpaca,
    "text": plain,
    "dpo": trl_dpo,
    "kto": kto,
    "sharegpt": sharegpt,
    "openai": openai_dpo,
}


def among(row: Any, kind: str, at: int = BAD_ROW) -> CheckReport:
    rows = [GOOD[kind](number) for number in range(1, 13)]
    rows[at - 1] = row
    return check(io.BytesIO(b"\n".join(json.dumps(row).encode() for row in rows)))


FINE: list[tuple[str, Any]] = [
    ("alpaca", {"instruction": "Add.", "input": "2 and 3", "output": "Five."}),
    ("alpaca", {"instruction": "Say hello.", "input": None, "response": "Hello."}),
    ("alpaca", {**alpaca(1), "text": "### Instruction: Say 1."}),
    ("alpaca", {**alpaca(1), "system": "Be brief.", "history": [["Who?", "Me."]]}),
    ("text", {"text": "Fog is a cloud.\n\nIt lies on the sea.", "source": "book"}),
    ("dpo", {**trl_dpo(1), "system": "Be brief."}),
    (
        "dpo",
        {
            "chosen": [turn("user", "Who?"), turn("assistant", "Me.")],
            "rejected": [turn("user", "Who?"), turn("assistant", "You.")],
        },
    ),
    (
        "dpo",
        {
            "prompt": [turn("user", "Who?")],
            "chosen": [turn("assistant", "Me.")],
            "rejected": [turn("assistant", "You.")],
        },
    ),
    (
        "dpo",
        {
            "conversations": [{"from": "human", "value": "Who?"}],
            "chosen": {"from": "gpt", "value": "Me."},
            "rejected": {"from": "gpt", "value": "You."},
        },
    ),
    (
        "dpo",
        {
            "chosen": "\n\nHuman: Who?\n\nAssistant: Me.",
            "rejected": "\n\nHuman: Who?\n\nAssistant: You.",
        },
    ),
    ("prompts", {"messages": [turn("developer", "Be brief."), turn("user", "Who?")], "label": 3}),
    ("dpo", openai_dpo(1)),
    ("openai", {**openai_dpo(1), "id": 7}),
    ("kto", {"messages": [turn("user", "Who?"), turn("assistant", "Me.")], "label": True}),
    (
        "kto",
        {
            "prompt": [turn("user", "Who?")],
            "completion": [turn("assistant", "Me.")],
            "label": False,
        },
    ),
    ("kto", {**kto(1), "id": 7}),
    (
        "sharegpt",
        {
            "system": "Use tools.",
            "tools": json.dumps([TOOL]),
            "conversations": [
                {"from": "human", "value": "High water?"},
                {"from": "function_call", "value": '{"name": "tide", "arguments": {"at": 3}}'},
                {"from": "observation", "value": "3 m"},
                {"from": "gpt", "value": "Three metres."},
            ],
        },
    ),
]


@pytest.mark.parametrize("case", FINE, ids=[kind for kind, _ in FINE])
def test_rows_that_must_not_fail(case: tuple[str, Any]) -> None:
    kind, row = case
    report = among(row, kind)
    assert (report.errors, report.verdict, report.rows) == ((), "accepted", 12)


BAD: list[tuple[str, Any, str, str]] = [
    ("alpaca", {"instruction": "a", "output": {"text": "b"}}, "content_not_string", "/output"),
    ("alpaca", {"instruction": "a", "input": "b"}, "missing_output", "/output"),
    ("alpaca", {"input": "a", "output": "b"}, "missing_instruction", ""),
    ("alpaca", {"instruction": "", "output": "b"}, "content_empty", "/instruction"),
    ("alpaca", {"instruction": "a", "output": " "}, "content_empty", "/output"),
    ("alpaca", {"instruction": "a", "input": 3, "output": "b"}, "content_not_string", "/input"),
    ("alpaca", {**alpaca(1), "history": ["a"]}, "bad_history", "/history/0"),
    ("alpaca", {**alpaca(1), "history": "a"}, "bad_history", "/history"),
    ("alpaca", {**alpaca(1), "prompt": "a"}, "mixed_formats", ""),
    ("alpaca", kto(1), "other_dialect", ""),
    ("text", {"text": ""}, "content_empty", "/text"),
    ("text", {"text": ["a"]}, "content_not_string", "/text"),
    ("text", {"content": "a"}, "missing_text", ""),
    ("dpo", {"prompt": "a", "chosen": "b"}, "missing_rejected", "/rejected"),
    ("dpo", {"prompt": "a", "rejected": "b"}, "missing_chosen", "/chosen"),
    ("dpo", {"prompt": "a"}, "missing_chosen", "/chosen"),
    ("dpo", {"question": "a"}, "unknown_dialect", ""),
    ("dpo", {"id": 3}, "missing_chosen", ""),
    ("dpo", {"chosen": "a", "rejected": "b"}, "missing_prompt", "/prompt"),
    ("dpo", {**trl_dpo(1), "chosen": None}, "content_not_string", "/chosen"),
    ("dpo", {**trl_dpo(1), "rejected": ""}, "content_empty", "/rejected"),
    (
        "dpo",
        {"prompt": "a", "chosen": "b", "rejected": "b "},
        "chosen_equals_rejected",
        "/rejected",
    ),
    ("dpo", {"prompt": "a", "completion": "b"}, "other_dialect", ""),
    (
        "dpo",
        {
            "chosen": [turn("user", "Who?"), turn("assistant", "Me.")],
            "rejected": [turn("user", "What?"), turn("assistant", "You.")],
        },
        "prompts_differ",
        "/rejected",
    ),
    (
        "dpo",
        {
            "chosen": "\n\nHuman: Who?\n\nAssistant: Me.",
            "rejected": "\n\nHuman: What?\n\nAssistant: You.",
        },
        "prompts_differ",
        "/rejected",
    ),
    ("openai", {**openai_dpo(1), "input": {}}, "missing_messages", "/input/messages"),
    ("openai", {**openai_dpo(1), "input": "a"}, "missing_prompt", "/input"),
    (
        "openai",
        {**openai_dpo(1), "non_preferred_output": [turn("user", "a")]},
        "prompts_differ",
        "/non_preferred_output",
    ),
    (
        "openai",
        {**openai_dpo(1), "non_preferred_output": openai_dpo(1)["preferred_output"]},
        "chosen_equals_rejected",
        "/non_preferred_output",
    ),
    ("openai", {**openai_dpo(1), "preferred_output": []}, "messages_empty", "/preferred_output"),
    ("kto", {**kto(1), "label": "true"}, "label_not_boolean", "/label"),
    ("prompts", {"messages": [turn("user", "Who?")]}, "missing_item", "/"),
    (
        "prompts",
        {"messages": [turn("user", "Who?"), turn("assistant", "Me.")], "answer": "me"},
        "prompt_has_answer",
        "/messages/1",
    ),
    (
        "prompts",
        {"messages": [turn("user", " ")], "answer": "me"},
        "content_empty",
        "/messages/0/content",
    ),
    ("prompts", {"answer": "me"}, "missing_messages", ""),
    ("kto", {**kto(1), "label": 1}, "label_not_boolean", "/label"),
    ("kto", {**kto(1), "label": None}, "label_not_boolean", "/label"),
    ("kto", {"prompt": "a", "completion": "b"}, "missing_label", "/label"),
    ("kto", {"prompt": "a", "label": True}, "missing_completion", "/completion"),
    (
        "sharegpt",
        {"conversations": [{"from": "human", "value": "a"}, {"from": "bot", "value": "b"}]},
        "unknown_role",
        "/conversations/1/from",
    ),
    (
        "sharegpt",
        {
            "conversations": [
                {"from": "human", "value": "a"},
                {"from": "function_call", "value": "{tide}"},
            ]
        },
        "bad_tool_calls",
        "/conversations/1/value",
    ),
    ("sharegpt", {**sharegpt(1), "tools": "[tide]"}, "bad_tools", "/tools"),
]


@pytest.mark.parametrize("case", BAD, ids=[f"{case[0]} {case[2]}" for case in BAD])
def test_bad_rows(case: tuple[str, Any, str, str]) -> None:
    kind, row, code, pointer = case
    report = among(row, kind)
    assert (code, BAD_ROW, pointer) in {(e.code, e.row, e.pointer) for e in report.errors}
    assert {error.row for error in report.errors} == {BAD_ROW}
    assert report.rows_with_errors == 1


def test_a_class_named_label_is_no_judgement() -> None:
    rows = [{"prompt": f"a {n}", "completion": f"b {n}", "label": "x", "id": n} for n in range(12)]
    report = check(io.BytesIO(b"\n".join(json.dumps(row).encode() for row in rows)))
    assert (report.verdict, report.dialect) == ("accepted", "prompt_completion")


@pytest.mark.parametrize(
    ("header", "record", "dialect"),
    [
        ("instruction,input,output", "Add {n}.,,Five {n}.", "alpaca"),
        ("text", "Fog {n}", "text"),
        ("prompt,chosen,rejected", "Q {n}?,Yes,No", "dpo"),
        ("prompt,completion,label", "Q {n}?,Yes,TRUE", "kto"),
        ("id,prompt,response", "{n},Q {n}?,Yes", "prompt_completion"),
        (
            "messages",
            '"[{{""role"":""user"",""content"":""{n}""}},{{""role"":""gpt"",""content"":""a""}}]"',
            "chat",
        ),
    ],
)
def test_csv_of_every_dialect(header: str, record: str, dialect: str) -> None:
    body = "\n".join([header, *(record.format(n=number) for number in range(12))])
    report = check(io.BytesIO(body.encode()))
    assert (report.errors, report.format, report.dialect) == ((), "csv", dialect)


def test_the_losing_answer_stands_on_the_same_prompt() -> None:
    won = [turn("user", "a"), turn("assistant", "b")]
    lost = [turn("user", "a"), turn("assistant", "c")]
    other = Conversation(won, [False, True], rejected=lost).rejected_conversation()
    assert other is not None
    assert (other.messages, other.trained) == (lost, [False, True])


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_training_m2_the_reasoning_of_an_answer_has_three_names(name: str) -> None:
    notes: list[Note] = []
    answer = {"role": "assistant", "content": "4", name: "2+2"}
    row = {"messages": [{"role": "user", "content": "2+2?"}, answer]}
    conversation = chat.check_chat(chat.CHAT, row, notes)
    assert conversation is not None
    assert notes == []
    assert conversation.messages[1] == {
        "role": "assistant",
        "content": "4",
        "reasoning_content": "2+2",
    }


def test_training_m2_only_answers_have_reasoning_and_it_is_text() -> None:
    notes: list[Note] = []
    question = {"role": "user", "content": "2+2?", "thinking": "hard"}
    answer = {"role": "assistant", "content": "4", "reasoning": ["hm"]}
    assert chat.check_chat(chat.CHAT, {"messages": [question, answer]}, notes) is None
    assert [(note.code, note.pointer) for note in notes] == [
        ("unknown_key", "/messages/0/thinking"),
        ("content_not_string", "/messages/1/reasoning"),
    ]
