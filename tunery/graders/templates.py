"""Templates of graders: `{{item.answer}}`, `{{sample.output_text}}`, `{{item.steps[0].name}}`.

A variable is replaced by its text, or by JSON where it is none. There is nothing else: no filters,
no conditions, no code. What is put in is not looked through for variables again.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

TEMPLATE_CHARACTERS_MAX: Final = 16_384
RENDERED_CHARACTERS_MAX: Final = 65_536
VARIABLES_MAX: Final = 64
NAMESPACES: Final = ("item", "sample")
SAMPLE_VARIABLES: Final = ("output_text", "output_json")
_VARIABLE: Final = re.compile(r"\{\{([^{}]{1,200})\}\}")
_PATH: Final = re.compile(r"\s*(\w+)((?:\.\w+|\[\d{1,6}\])+)\s*", re.ASCII)
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]", re.ASCII)


class VariableUnknown(KeyError):
    """A variable that an item or a sample does not have. `args[0]`: as it was written."""


@dataclass(frozen=True)
class RenderedTemplate:
    """A text whose variables were replaced."""

    text: str
    cut: bool = False  # it was longer than is graded


def template_problem(template: str) -> str | None:
    """Return what is wrong with a template; None: nothing."""
    if len(template) > TEMPLATE_CHARACTERS_MAX:
        return f"it has {len(template)} characters, and {TEMPLATE_CHARACTERS_MAX} at most are read"
    variables = _VARIABLE.findall(template)
    if len(variables) > VARIABLES_MAX:
        return f"it has {len(variables)} variables, and {VARIABLES_MAX} at most are replaced"
    for variable in variables:
        path = _PATH.fullmatch(variable)
        shown = f"{{{{{variable}}}}}"
        if path is None or path[1] not in NAMESPACES:
            return f"{shown} is no variable: write {{{{item.NAME}}}} or {{{{sample.output_text}}}}"
        step = _STEP.match(path[2])
        if path[1] == "sample" and (step is None or step[1] not in SAMPLE_VARIABLES):
            known = ", ".join(f"sample.{name}" for name in SAMPLE_VARIABLES)
            return f"{shown} is not known: of a sample there are {known}"
    return None


def render(template: str, values: Mapping[str, Any]) -> RenderedTemplate:
    """Replace the variables of a template without problems. Raises `VariableUnknown`.

    values: objects for the names `item` and `sample`
    """
    parts: list[str] = []
    length, at = 0, 0
    for match in _VARIABLE.finditer(template):
        value = _as_text(_look_up(match[1].strip(), values))
        for part in (template[at : match.start()], value):
            parts.append(part[: max(0, RENDERED_CHARACTERS_MAX - length)])
            length += len(part)
        at = match.end()
    parts.append(template[at:][: max(0, RENDERED_CHARACTERS_MAX - length)])
    length += len(template) - at
    return RenderedTemplate("".join(parts), length > RENDERED_CHARACTERS_MAX)


def _look_up(variable: str, values: Mapping[str, Any]) -> Any:
    path = _PATH.fullmatch(variable)
    if path is None:
        raise VariableUnknown(variable)
    value: Any = values[path[1]]
    for name, index in _STEP.findall(path[2]):
        try:
            value = value[int(index)] if index and isinstance(value, list) else value[name]
        except (KeyError, IndexError, TypeError) as error:
            raise VariableUnknown(variable) from error
    return value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
