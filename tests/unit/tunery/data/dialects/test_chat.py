"""Rows in the shapes of OpenAI's guides and cookbook: what OpenAI accepts is accepted."""

import io
import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.tunery.data.tokens.test_tokenizer import CHATML, chat, with_template
from tunery.data.checking import check
from tunery.data.dialects import chat as chat_rules
from tunery.data.dialects.conversation import Conversation
from tunery.data.findings.finding import Note
from tunery.data.reports.report import CheckReport
from tunery.data.tokens.tokenizer import Tokenizer

Message = dict[str, Any]
WEATHER: Final = {
    "name": "get_weather",
    "description": "The weather at a place",
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["place"],
    },
}
ARGUMENTS: Final = '{"place": "Lantern Rock", "unit": "celsius"}'
TOOL_CALL: Final = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": ARGUMENTS},
}
SECOND_CALL: Final = {**TOOL_CALL, "id": "call_2"}
ALTERNATING: Final = CHATML.replace(
    "{% for message in messages %}",
    "{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}",
)


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def calling(function_call: Any) -> Message:
    return {"role": "assistant", "function_call": function_call}


def answer(text: str, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


SHAPES: Final[dict[str, dict[str, Any]]] = {
    "style and tone": {"messages": [system("Be wry."), user("Where is it?"), answer("Up there.")]},
    "weights of turns": {
        "messages": [user("Hi"), answer("No.", weight=0), user("And?"), answer("Yes.", weight=1)]
    },
    "names of speakers": {"messages": [{**user("Hi"), "name": "ann"}, answer("Hello, Ann.")]},
    "tool call without its result": {
        "messages": [user("Warm?"), {"role": "assistant", "tool_calls": [TOOL_CALL]}],
        "parallel_tool_calls": False,
        "tools": [{"type": "function", "function": WEATHER}],
    },
    "function call without its result": {
        "messages": [
            user("Warm?"),
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "get_weather", "arguments": ARGUMENTS},
            },
        ],
        "functions": [WEATHER],
    },
    "function call, its result, an answer": {
        "messages": [
            user("Warm?"),
            {"role": "assistant", "function_call": {"name": "now", "arguments": "{}"}},
            {"role": "function", "name": "now", "content": "19"},
            answer("Yes, 19 degrees."),
        ],
        "functions": [{"name": "now", "description": "a function may have no parameters"}],
    },
    "developer": {
        "messages": [{"role": "developer", "content": "Be brief."}, user("Hi"), answer("Yo")]
    },
    "parallel tool calls, their results, an answer": {
        "messages": [
            user("Warm at both lamps?"),
            {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL, SECOND_CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "19"},
            {"role": "tool", "tool_call_id": "call_2", "content": "7"},
            answer("At one of them."),
        ],
        "tools": [{"type": "function", "function": WEATHER}],
        "parallel_tool_calls": True,
    },
    "tools that an answer does not need": {
        "messages": [user("Who are you?"), answer("The keeper.")],
        "tools": [{"type": "function", "function": WEATHER}],
    },
    "text in parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Which lamp?"}]},
            answer("The upper one."),
        ]
    },
    "a class as the answer": {
        "messages": [system("Say calm or storm."), user("Waves of nine metres"), answer("storm")]
    },
    "structured output as the answer": {
        "messages": [user("Lamp 3 is out since noon."), answer('{"lamp": 3, "since": "12:00"}')]
    },
}
SEEN: Final = {
    "type": "image_url",
    "image_url": {"url": "https://example.com/lamp.png", "detail": "low"},
}
UNUSUAL: Final[dict[str, tuple[list[Message], str]]] = {
    "two questions in a row": (
        [user("Hi"), user("Are you there?"), answer("I am.")],
        "repeated_role",
    ),
    "two answers in a row": ([user("Hi"), answer("Hello."), answer("Go on.")], "repeated_role"),
    "a greeting first": ([answer("Ahoy!"), user("Hi"), answer("Hello.")], "assistant_first"),
    "a greeting after the system": (
        [system("Be kind."), answer("Ahoy!"), user("Hi"), answer("Hello.")],
        "assistant_first",
    ),
    "a system message in the middle": (
        [user("Hi"), answer("Hello."), system("Be brief."), user("So?"), answer("So.")],
        "system_not_first",
    ),
}


def report_of(row: dict[str, Any], base_dir: Path | None = None) -> CheckReport:
    rows = [{"messages": [user(f"Question {n}?"), answer(f"Answer {n}.")]} for n in range(10)]
    content = b"\n".join(json.dumps(each).encode() for each in [*rows, row])
    return check(io.BytesIO(content), base_dir=base_dir)


@pytest.mark.parametrize("shape", SHAPES)
def test_first_hour_04_shapes_of_the_cookbook_have_no_finding(shape: str) -> None:
    report = report_of(SHAPES[shape])
    assert (report.verdict, report.errors, report.rows) == ("accepted", (), 11)
    assert report.counts.keys() <= {"few_rows"}


def test_first_hour_04_rows_for_vision_are_refused_with_words() -> None:
    question = {"role": "user", "content": [{"type": "text", "text": "Which lamp?"}, SEEN]}
    report = report_of({"messages": [question, answer("The upper one.")]})
    (error,) = report.errors
    assert (report.verdict, error.row, error.code) == ("rejected", 11, "image_in_text")
    assert error.pointer == "/messages/0/content/1"
    assert (error.message, error.hint) == (
        "A text model cannot learn from images",
        "Remove the image part.",
    )


def test_first_hour_04_rows_of_preferences_have_no_error() -> None:
    rows = [
        {
            "input": {
                "messages": [user(f"May I put out lamp {n}?")],
                "tools": [],
                "parallel_tool_calls": True,
            },
            "preferred_output": [answer(f"No. Ships need lamp {n}.")],
            "non_preferred_output": [answer(f"Of course, lamp {n} is yours.")],
        }
        for n in range(12)
    ]
    report = check(io.BytesIO(b"\n".join(json.dumps(row).encode() for row in rows)))
    assert (report.verdict, report.errors, report.rows) == ("accepted", (), 12)


@pytest.mark.parametrize("shape", UNUSUAL)
def test_first_hour_04_unusual_orders_of_roles_are_learned_with_a_warning(
    shape: str, base_dir: Path
) -> None:
    messages, code = UNUSUAL[shape]
    report = report_of({"messages": messages}, base_dir)
    assert (report.verdict, report.errors) == ("accepted", ())
    assert [warning.code for warning in report.warnings if warning.row == 11] == [code]
    tokens = report.tokens
    assert tokens is not None
    assert tokens.rows == 11


def test_first_hour_04_each_answer_of_an_unusual_order_is_learned(tokenizer: Tokenizer) -> None:
    messages = [answer("Ahoy!"), user("Hi"), user("You?"), answer("Me."), answer("Aye.")]
    row = Conversation(messages, [message["role"] == "assistant" for message in messages])
    rendered = tokenizer.render(row)
    assert not isinstance(rendered, Note)
    assert [rendered.text[start:end] for start, end in rendered.trained] == [
        "Ahoy!<|im_end|>",
        "Me.<|im_end|>",
        "Aye.<|im_end|>",
    ]


@pytest.mark.parametrize("shape", UNUSUAL)
def test_first_hour_04_a_template_that_cannot_render_the_order_says_so(
    shape: str, base_dir: Path, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.load(with_template(base_dir, tmp_path, ALTERNATING))
    assert not isinstance(tokenizer.render(chat("a", "b")), Note)
    messages, _ = UNUSUAL[shape]
    trained = [message["role"] == "assistant" for message in messages]
    rendered = tokenizer.render(Conversation(messages, trained))
    assert isinstance(rendered, Note)
    assert (rendered.code, rendered.detail) == (
        "template_failed",
        "roles must alternate user/assistant",
    )


def test_first_hour_04_a_function_call_is_a_tool_call() -> None:
    notes: list[Note] = []
    row = SHAPES["function call, its result, an answer"]
    conversation = chat_rules.check_chat(chat_rules.CHAT, row, notes)
    assert conversation is not None
    assert notes == []
    function = {"name": "now", "arguments": {}}
    assert conversation.messages[1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": function}],
    }
    assert conversation.messages[2] == {"role": "tool", "content": "19", "name": "now"}
    assert conversation.tools is not None
    assert [tool["function"]["name"] for tool in conversation.tools] == ["now"]


BAD: Final[list[tuple[dict[str, Any], str, str]]] = [
    ({"messages": [user("a"), calling("now")]}, "bad_tool_calls", "/messages/1/function_call"),
    (
        {"messages": [user("a"), calling({"arguments": "{}"})]},
        "bad_tool_calls",
        "/messages/1/function_call",
    ),
    (
        {"messages": [user("a"), calling({"name": "now", "arguments": "{at: 3}"})]},
        "tool_arguments_invalid",
        "/messages/1/function_call/arguments",
    ),
    (
        {"messages": [user("a"), calling({"name": "now"})], "functions": [WEATHER]},
        "unknown_tool",
        "/messages/1/function_call/name",
    ),
    (
        {"messages": [user("a"), {**calling({"name": "now"}), "tool_calls": [TOOL_CALL]}]},
        "bad_tool_calls",
        "/messages/1/function_call",
    ),
    (
        {"messages": [{**user("a"), "function_call": {"name": "now"}}, answer("b")]},
        "bad_tool_calls",
        "/messages/0/function_call",
    ),
    (
        {"messages": [user("a"), answer("b")], "functions": [{"parameters": {}}]},
        "bad_tools",
        "/functions/0",
    ),
    ({"messages": [user("a"), answer("b")], "functions": "tide"}, "bad_tools", "/functions"),
]


@pytest.mark.parametrize(("row", "code", "pointer"), BAD, ids=[f"{c} {p}" for _, c, p in BAD])
def test_first_hour_04_faults_of_functions_point_at_functions(
    row: dict[str, Any], code: str, pointer: str
) -> None:
    errors = report_of(row).errors
    assert [(error.code, error.row, error.pointer) for error in errors] == [(code, 11, pointer)]


@pytest.mark.parametrize(
    "text",
    ["No input", "no input.", "noinput", "<noinput>", "<No Input>", "No_Input", "<nooutput>"],
)
def test_first_hour_placeholders_of_alpaca_are_warned_of(text: str) -> None:
    row = {"instruction": "Name a lamp.", "input": text, "output": "The Fresnel lamp."}
    others = [{"instruction": f"Say {n}.", "input": "", "output": f"It is {n}."} for n in range(10)]
    content = b"\n".join(json.dumps(each).encode() for each in [*others, row])
    warnings = check(io.BytesIO(content)).warnings
    assert [(w.code, w.pointer) for w in warnings if w.row == 11] == [
        ("placeholder_text", "/input")
    ]
