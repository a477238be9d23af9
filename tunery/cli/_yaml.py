"""A bounded part of YAML 1.2: mappings, lists and scalars with their places, and nothing else.

Numbers are those of YAML 1.2: `2e-4` is a number and `no` is text, which PyYAML reads otherwise.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml

BYTES_MAX: Final = 64 * 1024
DEPTH_MAX: Final = 8
NODES_MAX: Final = 4_096
WHOLE: Final = re.compile(r"[-+]?[0-9]{1,300}")
NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./@-]*")  # YAML needs no quotes for these
QUOTED: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
WORDS: Final[Mapping[str, bool | None]] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
}


class TextPosition(NamedTuple):
    """A position in a text, both counted from 1."""

    line: int
    column: int


class YamlProblem(Exception):
    """A text that is not YAML, or has more than this part of it."""

    def __init__(self, message: str, position: TextPosition) -> None:
        super().__init__(message)
        self.message, self.position = message, position


@dataclass
class YamlDocument:
    """A mapping, and where each of its fields begins: positions by the path `training.rank`."""

    value: dict[str, Any]
    positions: dict[str, TextPosition] = field(default_factory=dict)


def read_yaml(text: str) -> YamlDocument:
    """Read one mapping. Raises YamlProblem."""
    if len(text.encode()) > BYTES_MAX:
        raise YamlProblem(f"is larger than {BYTES_MAX // 1024} KiB", TextPosition(1, 1))
    reader = _Reader(text)
    try:
        return reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (0, 0) if mark is None else (mark.line, mark.column)
        position = TextPosition(line + 1, column + 1)
        raise YamlProblem(
            f"is not valid YAML: {error.problem or error.context}", position
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlProblem(
            "has a character that YAML does not allow", TextPosition(line, 1)
        ) from None


class _Reader:
    """Builds values from the events of the safe parser, which makes no objects by itself."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        self._nodes = 0
        self._document = YamlDocument({})

    def document(self) -> YamlDocument:
        self._next()  # the stream begins
        start = self._next()
        if isinstance(start, yaml.StreamEndEvent):
            raise YamlProblem("is empty", TextPosition(1, 1))
        root = self._next()
        if not isinstance(root, yaml.MappingStartEvent):
            raise YamlProblem("must be a mapping of fields, like `version: 1`", _position(root))
        self._document.value = self._mapping("", root, 1)
        self._next()  # the document ends
        if not isinstance(end := self._next(), yaml.StreamEndEvent):
            raise YamlProblem("has more than one document", _position(end))
        return self._document

    def _next(self) -> Any:
        event = next(self._events)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise YamlProblem("anchors (&) and aliases (*) are not allowed", _position(event))
        tag = getattr(event, "tag", None)
        if isinstance(event, yaml.NodeEvent) and tag is not None:
            raise YamlProblem("tags (!) are not allowed", _position(event))
        return event

    def _mapping(self, path: str, start: Any, depth: int) -> dict[str, Any]:
        self._count(start, depth)
        values: dict[str, Any] = {}
        while not isinstance(key := self._next(), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise YamlProblem("names of fields must be words", _position(key))
            name = str(key.value)
            if name in values:
                raise YamlProblem(f"{name} is there twice", _position(key))
            inner = f"{path}.{name}" if path else name
            self._document.positions[inner] = _position(key)
            values[name] = self._value(inner, self._next(), depth)
        return values

    def _value(self, path: str, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path, event, depth + 1)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(path, event, depth + 1)
        self._count(event, depth)
        return _scalar(event)

    def _list(self, path: str, start: Any, depth: int) -> list[Any]:
        self._count(start, depth)
        values: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            inner = f"{path}.{len(values)}"
            self._document.positions[inner] = _position(event)
            values.append(self._value(inner, event, depth))
        return values

    def _count(self, event: Any, depth: int) -> None:
        self._nodes += 1
        if depth > DEPTH_MAX:
            raise YamlProblem(f"is nested more than {DEPTH_MAX} deep", _position(event))
        if self._nodes > NODES_MAX:
            raise YamlProblem(f"has more than {NODES_MAX} values", _position(event))


def _position(event: Any) -> TextPosition:
    return TextPosition(event.start_mark.line + 1, event.start_mark.column + 1)


def _scalar(event: Any) -> Any:
    text = str(event.value)
    if event.style is not None:  # quoted, or a block of text
        return text
    if text in WORDS:
        return WORDS[text]
    if WHOLE.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


def write_yaml(value: Mapping[str, Any]) -> str:
    """A text from which `read_yaml` reads the value again."""
    return "".join(f"{line}\n" for line in _lines(value, ""))


def _lines(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield f"{indent}{_written(name)}:"
            yield from _lines(inner, f"{indent}  ")
        else:
            yield f"{indent}{_written(name)}: {_written(inner)}"


def _written(value: Any) -> str:
    """JSON on one line, which is YAML; words that are nothing else have no quotes."""
    if isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in QUOTED:
        return value
    text = json.dumps(value, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
