"""Where each message ends up in a rendered text, told by marks that travel through the template.

Each message's text is put between two tags that carry its number; special tokens of the base model
that stand in people's text are put between quotes. Marks are Unicode noncharacters that the row
itself does not contain. Taking them out gives the text, and their places.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from tunery.data.dialects.parsing import Object

NONCHARACTERS: Final = tuple(chr(point) for point in range(0xFDD0, 0xFDF0))
MARKS: Final = 6


@dataclass(frozen=True, slots=True)
class Marks:
    """Characters that stand for: a tag, text that must stay plain, a generated block."""

    tag_opens: str
    tag_closes: str
    plain_opens: str
    plain_closes: str
    block_opens: str
    block_closes: str

    def pattern(self) -> re.Pattern[str]:
        others = f"{self.plain_opens}{self.plain_closes}{self.block_opens}{self.block_closes}"
        tags = f"[{self.tag_opens}{self.tag_closes}]"
        return re.compile(f"{self.tag_opens}(\\d+){self.tag_closes}|([{others}])|{tags}")


@dataclass(slots=True)
class Placed:
    """A text without its marks. Spans are character offsets [start, end) into `text`.

    `messages[i]`: from the first to the last place where message i shows. `plain`: special tokens
    that people wrote. `blocks`: what `{% generation %}` encloses.
    """

    text: str = ""
    messages: dict[int, tuple[int, int]] = field(default_factory=dict)
    plain: list[tuple[int, int]] = field(default_factory=list)
    blocks: list[tuple[int, int]] = field(default_factory=list)


def choose(messages: list[Object], tools: list[Any] | None) -> Marks | None:
    """Marks that do not occur in a row; None when too few are left."""
    seen: set[str] = set()
    for text in texts((messages, tools)):
        if not text.isascii():
            seen.update(text)
    free = [mark for mark in NONCHARACTERS if mark not in seen]
    return Marks(*free[:MARKS]) if len(free) >= MARKS else None


def texts(value: object) -> list[str]:
    """All strings inside a value, dictionary keys too; without recursion."""
    found: list[str] = []
    todo = [value]
    while todo:
        match todo.pop():
            case str(text):
                found.append(text)
            case dict() as inside:
                todo.extend(inside.keys())
                todo.extend(inside.values())
            case list() | tuple() as items:
                todo.extend(items)
            case _:
                pass
    return found


def quote(value: Any, special: re.Pattern[str], marks: Marks) -> Any:
    """The value with every special token inside its strings put between quotes."""
    match value:
        case str():
            return special.sub(f"{marks.plain_opens}\\g<0>{marks.plain_closes}", value)
        case dict():
            return {key: quote(item, special, marks) for key, item in value.items()}
        case list():
            return [quote(item, special, marks) for item in value]
        case _:
            return value


def tag(message: Object, number: int, marks: Marks) -> Object:
    """The message with its text, or the name of its first call, between tags.

    Tags stay inside white space at the edges, so that a template's `trim` does what it would.
    """
    if message["content"].strip():
        return {**message, "content": _between(message["content"], number, marks)}
    if message.get("tool_calls"):
        first, *rest = message["tool_calls"]
        name = _between(first["function"]["name"], number, marks)
        call = {**first, "function": {**first["function"], "name": name}}
        return {**message, "tool_calls": [call, *rest]}
    return message


def _between(text: str, number: int, marks: Marks) -> str:
    core = text.strip()
    lead = text[: len(text) - len(text.lstrip())]
    trail = text[len(text.rstrip()) :]
    mark = f"{marks.tag_opens}{number}{marks.tag_closes}"
    return f"{lead}{mark}{core}{mark}{trail}"


def take_out(marked: str, marks: Marks) -> Placed:
    """The text without marks, and where they were."""
    placed = Placed()
    pieces: list[str] = []
    at, length = 0, 0
    plain_from = block_from = 0
    for match in marks.pattern().finditer(marked):
        pieces.append(marked[at : match.start()])
        length += match.start() - at
        at = match.end()
        number, other = match.groups()
        if number is not None:
            first, _ = placed.messages.get(int(number), (length, length))
            placed.messages[int(number)] = (first, length)
        elif other == marks.plain_opens:
            plain_from = length
        elif other == marks.plain_closes:
            placed.plain.append((plain_from, length))
        elif other == marks.block_opens:
            block_from = length
        elif other == marks.block_closes:
            placed.blocks.append((block_from, length))
    pieces.append(marked[at:])
    placed.text = "".join(pieces)
    return placed
