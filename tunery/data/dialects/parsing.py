"""Parses the bytes of one JSON row, or says why they are not a valid row."""

import json
import re
from typing import Any, Final, TypeAlias

import msgspec

from tunery.data.findings.finding import Note, excerpt
from tunery.data.findings.limits import EXCERPT_CHARS_MAX, NESTING_MAX

Object: TypeAlias = dict[str, Any]

_KEY: Final = re.compile(rb'"\s*:')
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_decode: Final = msgspec.json.Decoder().decode


def parse(raw: bytes) -> Object | Note:
    """Parse one JSON object. Returns a `Note` when the bytes are not a valid row."""
    try:
        value = _decode(raw)
    except RecursionError:
        return Note("nested_too_deep", excerpt=excerpt(raw))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _diagnose(raw, error)
    if not isinstance(value, dict):
        detail = f"it is {json_type(value)}"
        return Note("row_not_object", detail=detail, excerpt=excerpt(raw))
    if raw.count(b"[") + raw.count(b"{") > NESTING_MAX and _depth(value) > NESTING_MAX:
        return Note("nested_too_deep", excerpt=excerpt(raw))
    return value


def parse_cell(text: str) -> Any:
    """Parse the JSON text of a table cell. Returns a `Note` when it is not valid JSON."""
    raw = text.encode("utf-8", "replace")
    wrapped = parse(b'{"":%b}' % raw)
    return wrapped if isinstance(wrapped, Note) else wrapped[""]


def repeated_key(raw: bytes, value: object) -> str | None:
    """The name of a key that is repeated in one object; None without such a key.

    `value` is what the bytes were parsed to. JSON parsers silently keep the last of two equal keys.
    When the value has as many keys as the bytes, none was lost, and the bytes are not read again.
    """
    if len(_KEY.findall(raw)) <= count_keys(value):
        return None
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in items]
        if len(set(names)) < len(names):
            repeated.extend(name for name in set(names) if names.count(name) > 1)

    try:
        json.loads(raw, object_pairs_hook=pairs)
    except (ValueError, RecursionError):  # this parser has limits that the first one does not have
        return None
    return min(repeated, default=None)


def count_keys(value: object) -> int:
    """Count the keys of all objects inside a value, without recursion."""
    count = 0
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            count += len(item)
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
    return count


def json_type(value: object) -> str:
    """The JSON type of a value with its article, such as "a string"."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


def _depth(value: object) -> int:
    """The levels of nesting, counted without recursion up to `NESTING_MAX` + 1."""
    level, depth = [value], 0
    while level and depth <= NESTING_MAX:
        depth += 1
        inside: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inside.extend(item.values())
            elif isinstance(item, list):
                inside.extend(item)
        level = [item for item in inside if isinstance(item, dict | list)]
    return depth


def _diagnose(raw: bytes, error: Exception) -> Note:
    """Find out why the bytes are not valid JSON, with a slower parser that reports positions."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as bad:
        detail = f"byte {bad.start + 1} is 0x{raw[bad.start]:02x}"
        return Note("invalid_utf8", detail=detail, excerpt=excerpt(raw))
    constants: list[str] = []
    try:
        json.loads(text, parse_constant=constants.append)
    except RecursionError:
        return Note("nested_too_deep", excerpt=excerpt(raw))
    except json.JSONDecodeError as fault:
        code, detail = _syntax(text, fault, constants)
        return Note(code, detail=detail, excerpt=_around(text, fault.pos))
    except ValueError:
        return Note("invalid_json", detail="a number is too long", excerpt=excerpt(text))
    if constants:
        return Note("not_a_number", detail=constants[0], excerpt=excerpt(text))
    if _SURROGATE.search(raw):
        return Note("lone_surrogate", excerpt=excerpt(text))
    return Note("invalid_json", detail=str(error)[:200], excerpt=excerpt(text))


def _around(text: str, position: int) -> str:
    """An excerpt around a character position."""
    return excerpt(text, max(0, min(position, len(text)) - EXCERPT_CHARS_MAX // 2))


def _syntax(text: str, fault: json.JSONDecodeError, constants: list[str]) -> tuple[str, str]:
    """The code and the detail of a JSON syntax error."""
    at = f"column {fault.pos + 1}"
    here = text[fault.pos : fault.pos + 9]
    before = text[: fault.pos].rstrip()
    if fault.msg.startswith("Extra data"):
        if not here.strip(", \t"):
            return "trailing_comma", at
        return ("two_objects" if here.lstrip(", \t")[:1] in "{[" else "invalid_json"), at
    if fault.msg.startswith("Unterminated string") or fault.pos >= len(text):
        return "truncated_json", at
    if here.startswith(("'", "None", "True", "False")):
        return "python_repr", at
    if here.lower().startswith(("nan", "inf", "-inf", "+inf")) or constants:
        return "not_a_number", at
    if here[0] in "}]" and before.endswith(","):
        return "trailing_comma", at
    if fault.msg.startswith("Illegal trailing comma"):
        return "trailing_comma", at
    return "invalid_json", f"{fault.msg.lower()}, {at}"
