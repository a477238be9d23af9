"""Requests: what is taken, what is refused by its name."""

from typing import Any

import pytest
from pydantic import ValidationError

from services.gateway.chat.domain.bodies import (
    ChatRequest,
    ToolUse,
    chat_sampling,
    chat_tools,
    messages,
)
from services.gateway.web.domain.errors import ApiError
from tunery.work.engine import Sampling

HI = [{"role": "user", "content": "Hi"}]


CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "rain", "arguments": '{"at": "A"}'},
}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def request(**fields: Any) -> ChatRequest:
    return ChatRequest.model_validate({"model": "tiny", "messages": HI, **fields})


def schema(form: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": form}}


def nested(levels: int) -> dict[str, Any]:
    form: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        form = {"type": "array", "items": form}
    return form


def test_json_is_asked_for_in_any_form_or_by_a_schema() -> None:
    assert request(response_format={"type": "text"}).response_format is None
    any_form = request(response_format={"type": "json_object"}).response_format
    assert any_form == {"type": "json_object"}
    by_schema = request(response_format=schema(nested(9))).response_format
    assert by_schema == {"type": "json_schema", "json_schema": {"schema": nested(9)}}


def test_probabilities_are_sent_when_requested() -> None:
    assert chat_sampling(request(logprobs=True, top_logprobs=3)).top_logprobs == 3
    assert chat_sampling(request(logprobs=True)).top_logprobs == 0
    assert chat_sampling(request(logprobs=False)).top_logprobs is None
    with pytest.raises(ApiError) as refused:
        chat_sampling(request(top_logprobs=3))
    assert refused.value.param == "top_logprobs"


def test_what_a_request_leaves_out_is_as_in_openais_api() -> None:
    assert chat_sampling(request()) == Sampling(temperature=1.0, top_p=1.0, tokens_max=None)


def test_all_of_sampling_is_taken() -> None:
    asked = request(
        temperature=0, top_p=0.5, max_tokens=9, seed=-3, stop="x", presence_penalty=1, n=2
    )
    assert chat_sampling(asked) == Sampling(
        temperature=0.0, top_p=0.5, presence_penalty=1.0, tokens_max=9, seed=-3, stop=("x",)
    )


def test_the_newer_name_of_the_limit_wins() -> None:
    assert chat_sampling(request(max_tokens=9, max_completion_tokens=4)).tokens_max == 4


def test_parts_of_text_are_joined_and_developers_are_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    said = [{"role": "developer", "content": parts}, {"role": "user", "content": "c", "name": "x"}]
    assert messages(request(messages=said)) == (
        {"role": "system", "content": "ab"},
        {"role": "user", "content": "c"},
    )


def test_calls_and_their_results_are_what_chat_templates_know() -> None:
    said = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "dry", "tool_call_id": "call_1"},
    ]
    body = request(messages=[*HI, *said], tools=[tool("rain")])
    assert messages(body)[1:] == (
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "dry", "tool_call_id": "call_1"},
    )
    assert chat_tools(body) == ToolUse((tool("rain"),))
    assert chat_tools(request(tools=[tool("rain")], tool_choice="none")) == ToolUse()


def test_first_hour2_u4_a_call_is_forced_and_its_arguments_are_held() -> None:
    functions = [tool("rain"), tool("sun", strict=True)]
    written = (tool("rain"), tool("sun"))
    assert chat_tools(request(tools=functions)) == ToolUse(written, (), ("sun",))
    forced = chat_tools(request(tools=functions, tool_choice="required"))
    assert forced == ToolUse(written, ("rain", "sun"), ("sun",))
    rain = {"type": "function", "function": {"name": "rain"}}
    assert chat_tools(request(tools=functions, tool_choice=rain)).forced == ("rain",)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"tools": [tool("f")], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "Tool choice 'g' not found in 'tools' parameter.",
        ),
        ({"tool_choice": "required"}, "'tool_choice' is only allowed when 'tools' are specified."),
    ],
)
def test_a_choice_of_no_tool_is_refused_in_openais_words(fields: Any, words: str) -> None:
    with pytest.raises(ApiError) as refused:
        chat_tools(request(**fields))
    assert (refused.value.message, refused.value.param) == (words, "tool_choice")


@pytest.mark.parametrize(
    ("form", "is_taken"),
    [
        ({"type": "object", "properties": {"next": {"$ref": "#"}}}, True),
        (
            {
                "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                "$ref": "#/$defs/n",
            },
            True,
        ),
        ({"$ref": "#"}, False),
        ({"anyOf": [{"type": "integer"}, {"$ref": "#"}]}, False),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}, False),
        ({"properties": {str(i): {} for i in range(256)}}, True),
        ({"properties": {str(i): {} for i in range(257)}}, False),
        ({"maxItems": 10**5, "items": {}}, True),
        ({"maxItems": 10**3, "items": {"minItems": 10**3}}, False),
        ({"properties": {"minItems": {"type": "integer"}, "anyOf": {"enum": [1]}}}, True),
        ({"$ref": "#/none/0/x", "anyOf": 3, "properties": []}, True),
    ],
)
def test_a_schema_is_as_large_and_recursive_as_the_engine_can_hold(
    form: dict[str, Any], is_taken: bool
) -> None:
    for fields in ({"response_format": schema(form)}, {"tools": [tool("f", parameters=form)]}):
        if is_taken:
            request(**fields)
        else:
            with pytest.raises(ValidationError):
                request(**fields)


def test_an_image_is_refused_in_openais_words() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(ValidationError, match=r"content type\. image_url is only"):
        request(messages=[{"role": "user", "content": [picture]}])


def test_an_answer_may_be_sent_back_as_it_came() -> None:
    answer = {"role": "assistant", "content": "Ho", "refusal": None, "tool_calls": None}
    assert messages(request(messages=[*HI, answer]))[1] == {"role": "assistant", "content": "Ho"}


@pytest.mark.parametrize(
    "harmless",
    [
        {"logprobs": False},
        {"tools": []},
        {"response_format": {"type": "text"}},
        {"store": False},
        {"modalities": ["text"]},
        {"user": "u", "metadata": {"a": "b"}, "service_tier": "auto"},
        {"stop": None, "temperature": None, "n": None},
    ],
)
def test_what_asks_for_nothing_is_taken(harmless: dict[str, Any]) -> None:
    assert request(**harmless).model == "tiny"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"stop": ["x"] * 10_000}, "stop"),
        ({"stop": "x" * 300}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 9}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"tools": [{}]}, "tools"),
        ({"tools": [tool("f")] * 129}, "tools"),
        ({"tools": [tool("no spaces")]}, "tools"),
        ({"tools": [tool("f", strict="yes")]}, "tools"),
        ({"tools": [tool("f", parameters=nested(100_000))]}, "tools"),
        ({"tools": [tool("f")], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [tool("f")], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [tool("f")], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": []}]}, "messages"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": schema({"enum": ["x" * 40_000]})}, "response_format"),
        ({"response_format": schema(nested(100_000))}, "response_format"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_name(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError) as refused:
        request(**fields)
    assert {problem["loc"][0] for problem in refused.value.errors()} == {where}


def test_one_bad_call_of_a_message_is_reported_and_not_all_hundred_thousand() -> None:
    many = {"role": "assistant", "content": "x", "tool_calls": [{}] * 100}
    with pytest.raises(ValidationError) as refused:
        request(messages=[many] * 1_000)
    assert refused.value.error_count() <= 2_000
