"""Constraints on answers, in the formats of llama.cpp and servers."""

from typing import Any

import pytest

from services.engine.adapters.constraints import (
    call_schema,
    constraint_of,
    referring,
    without_further_properties,
)
from services.engine.adapters.served import format_fields
from services.engine.adapters.tool_calls import CallForm
from services.engine.ports import Refusal
from tests.unit.services.engine.memory_engine import model
from tunery.work.engine import Question, Sampling

TAGS = CallForm("<tool_call>", "name", "arguments", "\n")
BARE = CallForm("", "name", "parameters")
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"at": {"$ref": "#/$defs/City"}, "next": {"$ref": "#"}},
    "$defs": {"City": {"enum": ["A", "B"]}},
}
TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "rain", "parameters": CITY}},
    {"type": "function", "function": {"name": "sun"}},
)
JSON: dict[str, Any] = {"type": "json_object"}


def asked(**fields: Any) -> Question:
    return Question(model("tiny"), (), Sampling(), **fields)


def test_references_hold_where_the_schema_stands() -> None:
    pointer = "#/$defs/f0"
    held = referring(CITY, pointer)
    assert held["properties"] == {
        "at": {"$ref": f"{pointer}/$defs/City"},
        "next": {"$ref": pointer},
    }
    assert held["$defs"] == CITY["$defs"]


def test_objects_have_the_properties_that_they_name() -> None:
    part: dict[str, Any] = {"properties": {"b": {}}}
    assert (
        without_further_properties({"properties": {"a": part}})["properties"]["a"][
            "additionalProperties"
        ]
        is False
    )
    assert (
        without_further_properties({"properties": {}, "additionalProperties": True})[
            "additionalProperties"
        ]
        is True
    )
    assert without_further_properties({"allOf": [part, part]}) == {"allOf": [part, part]}
    assert without_further_properties({"type": "object"}) == {"type": "object"}


def test_only_functions_that_may_be_called_are_choices() -> None:
    (call,) = call_schema(BARE, TOOLS, ("sun",))["anyOf"]
    assert call["properties"] == {"name": {"const": "sun"}, "parameters": {"type": "object"}}
    rain, sun = call_schema(TAGS, TOOLS, held=())["anyOf"]
    assert rain["properties"]["arguments"] == sun["properties"]["arguments"] == {"type": "object"}


def test_nothing_is_held_that_was_not_asked_for() -> None:
    assert constraint_of(asked(tools=TOOLS), TAGS) is None
    assert constraint_of(asked(), TAGS) is None


def test_a_template_in_a_grammar_is_text() -> None:
    odd = CallForm("[a/b]", "name", "arguments", ' "(')
    held = constraint_of(asked(tools=TOOLS, strict=("rain",)), odd)
    assert held is not None
    assert r"before[lazy]: /(.|\n)*\[a\/b\]/" in held.grammar()
    assert r'gap: " \"("' in held.grammar()


def test_servers_get_a_constraint_that_they_support() -> None:
    def fields(form: CallForm, **fields: Any) -> Any:
        question = asked(**fields)
        held = constraint_of(question, form)
        assert held is not None
        return format_fields(question, held).get("response_format")

    assert fields(TAGS, response_format=JSON) == JSON
    forced = fields(TAGS, tools=TOOLS, forced=("rain",))
    assert forced["json_schema"]["schema"] == call_schema(TAGS, TOOLS, ("rain",))
    strict = fields(TAGS, tools=TOOLS, strict=("rain",))
    assert strict["triggers"] == ["<tool_call>"]
    assert strict["structures"][0]["begin"] == "<tool_call>\n"
    assert fields(BARE, tools=TOOLS, strict=("rain",)) is None
    with pytest.raises(Refusal, match="beside calls of tools"):
        fields(TAGS, tools=TOOLS, response_format=JSON)
