"""Grammars that constrain the text of an answer: JSON of a schema, and calls of tools."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from services.engine.adapters.tool_calls import CallForm
from tunery.work.engine import Question

JSON_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
#: of llguidance: no white space that a model could write for ever, and what it cannot hold is open
COMPACT: Final[Mapping[str, Any]] = {"whitespace_flexible": False, "lenient": True}

#: characters after a call that mark its end, where an answer is nothing else than calls or JSON
CLOSING_MAX: Final = 64


@dataclass(frozen=True)
class Constraint:
    """JSON that an answer is, or that it has in calls of tools."""

    schema: Mapping[str, Any]  # of all of the answer, or of a call
    calls: CallForm | None = None  # how calls are written, which may come; None: there are none
    otherwise: Mapping[str, Any] | None = None  # schema of an answer without calls; None: text

    def grammar(self) -> str:
        """The constraint in the language of llguidance, which llama.cpp is built with."""
        if self.calls is None:
            return _lark(start=_json(self.schema))
        if not self.calls.begin:
            other = "TEXT?" if self.otherwise is None else "other"
            return _lark(
                start=f"call | {other}",
                call=_json(self.schema),
                other=_json(self.otherwise or {}),
                TEXT=r"/[^\s{\[](.|\n)*/",
            )
        begin = re.escape(self.calls.begin).replace("/", r"\/")
        marked = json.dumps(self.calls.begin + self.calls.gap)
        more = "(before gap call)* REST"
        start = more if self.otherwise is None else f"{marked} call {more} | other"
        between = "(.|\\n)*" if self.otherwise is None else f"(.|\\n){{0,{CLOSING_MAX}}}"
        return _lark(
            start=start,
            gap=json.dumps(self.calls.gap),
            call=_json(self.schema),
            other=_json(self.otherwise or {}),
            **{"before[lazy]": f"/{between}{begin}/"},
            REST=f"/{between}/",
        )


def constraint_of(question: Question, form: CallForm | None) -> Constraint | None:
    """Return the grammar that constrains the answer to a question; None: any text is allowed.

    form: how calls are written
    """
    asked = question.response_format
    answer = None if asked is None else schema_of(asked)
    if form is None or not question.tools:
        return None if answer is None else Constraint(answer)
    if question.forced:
        return Constraint(call_schema(form, question.tools, question.forced))
    if answer is None and not question.strict:
        return None
    held = question.strict if answer is None else None
    return Constraint(call_schema(form, question.tools, held=held), form, answer)


def schema_of(response_format: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON schema of a format of answers."""
    if response_format["type"] == "json_object":
        return JSON_OBJECT
    schema: Mapping[str, Any] = response_format["json_schema"]["schema"]
    return schema


def call_schema(
    form: CallForm,
    tools: Iterable[Mapping[str, Any]],
    names: Iterable[str] | None = None,
    held: Iterable[str] | None = None,
) -> dict[str, Any]:
    """The schema of one call.

    names: the functions that may be called. held: those whose arguments are held to their schema.
    None means all of them.
    """
    definitions: dict[str, Any] = {}
    calls = []
    for number, tool in enumerate(tools):
        function = tool["function"]
        name = function["name"]
        if names is not None and name not in names:
            continue
        arguments: Any = JSON_OBJECT
        if (held is None or name in held) and function.get("parameters"):
            key = f"f{number}"
            definitions[key] = referring(function["parameters"], f"#/$defs/{key}")
            arguments = {"$ref": f"#/$defs/{key}"}
        calls.append(
            {
                "type": "object",
                "properties": {form.name: {"const": name}, form.arguments: arguments},
                "required": [form.name, form.arguments],
                "additionalProperties": False,
            }
        )
    return {"$defs": definitions, "anyOf": calls}


def referring(schema: Any, pointer: str) -> Any:
    """The schema with references that hold when it stands at this pointer of another one."""
    if isinstance(schema, list):
        return [referring(part, pointer) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: pointer + value[1:]
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else referring(value, pointer)
        for key, value in schema.items()
    }


def without_further_properties(schema: Any, *, is_part: bool = False) -> Any:
    """The schema without further properties of objects that do not ask for them, which a model
    could write for ever.

    is_part: of an `allOf`, whose parts know nothing of one another's properties
    """
    if isinstance(schema, list):
        return [without_further_properties(part, is_part=is_part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {
        key: without_further_properties(value, is_part=key == "allOf")
        for key, value in schema.items()
    }
    if not is_part and isinstance(schema.get("properties"), Mapping) and "allOf" not in schema:
        return {"additionalProperties": False, **inner}
    return inner


def _json(schema: Mapping[str, Any]) -> str:
    return "%json " + json.dumps({**without_further_properties(schema), "x-guidance": COMPACT})


def _lark(**rules: str) -> str:
    return "\n".join(("%llguidance {}", *(f"{name}: {rule}" for name, rule in rules.items())))
