"""Locates each message in a rendered text by marks that pass through the chat template.

The text of each message is put between two tags with its number, and special tokens of the base
model that the user wrote are put between quotes. Marks are Unicode noncharacters that the row does
not contain. Removing them from the rendered text gives the text and their positions.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from tunery.data.dialects.parsing import Object

NONCHARACTERS: Final = tuple(chr(point) for point in range(0xFDD0, 0xFDF0))
MARKS: Final = 6


@dataclass(frozen=True, slots=True)
class Marks:
    """The six noncharacters that serve as marks in one row.

    tag_opens, tag_closes: around the number of a message
    plain_opens, plain_closes: around a special token that must remain plain text
    block_opens, block_closes: around what `{% generation %}` encloses
    """

    tag_opens: str
    tag_closes: str
    plain_opens: str
    plain_closes: str
    block_opens: str
    block_closes: str

    def pattern(self) -> re.Pattern[str]:
        """Matches a tag with its number, or any other mark."""
        others = f"{self.plain_opens}{self.plain_closes}{self.block_opens}{self.block_closes}"
        tags = f"[{self.tag_opens}{self.tag_closes}]"
        return re.compile(f"{self.tag_opens}(\\d+){self.tag_closes}|([{others}])|{tags}")


@dataclass(slots=True)
class MarkedText:
    """A rendered text without its marks, and where they were, as character spans [start, end).

    text: the text without marks
    messages: for each message, the span from its first to its last occurrence
    plain: special tokens that the user wrote
    blocks: what `{% generation %}` encloses
    """

    text: str = ""
    messages: dict[int, tuple[int, int]] = field(default_factory=dict)
    plain: list[tuple[int, int]] = field(default_factory=list)
    blocks: list[tuple[int, int]] = field(default_factory=list)


def choose_marks(messages: list[Object], tools: list[Any] | None) -> Marks | None:
    """Choose marks that do not occur in a row; None when too few characters are left."""
    seen: set[str] = set()
    for text in collect_texts((messages, tools)):
        if not text.isascii():
            seen.update(text)
    free = [mark for mark in NONCHARACTERS if mark not in seen]
    return Marks(*free[:MARKS]) if len(free) >= MARKS else None


def collect_texts(value: object) -> list[str]:
    """Collect all strings inside a value, including dictionary keys, without recursion."""
    texts: list[str] = []
    todo = [value]
    while todo:
        match todo.pop():
            case str(text):
                texts.append(text)
            case dict() as inside:
                todo.extend(inside.keys())
                todo.extend(inside.values())
            case list() | tuple() as items:
                todo.extend(items)
            case _:
                pass
    return texts


def quote_special(value: Any, special: re.Pattern[str], marks: Marks) -> Any:
    """Put every special token inside the strings of a value between quotes."""
    match value:
        case str():
            return special.sub(f"{marks.plain_opens}\\g<0>{marks.plain_closes}", value)
        case dict():
            return {key: quote_special(item, special, marks) for key, item in value.items()}
        case list():
            return [quote_special(item, special, marks) for item in value]
        case _:
            return value


def tag_message(message: Object, number: int, marks: Marks) -> Object:
    """Put the text of a message, or the name of its first tool call, between tags.

    Tags are placed inside leading and trailing white space, so that `trim` in a template works.
    """
    if message["content"].strip():
        return {**message, "content": _tag_text(message["content"], number, marks)}
    if message.get("tool_calls"):
        first, *rest = message["tool_calls"]
        name = _tag_text(first["function"]["name"], number, marks)
        call = {**first, "function": {**first["function"], "name": name}}
        return {**message, "tool_calls": [call, *rest]}
    return message


def _tag_text(text: str, number: int, marks: Marks) -> str:
    core = text.strip()
    lead = text[: len(text) - len(text.lstrip())]
    trail = text[len(text.rstrip()) :]
    mark = f"{marks.tag_opens}{number}{marks.tag_closes}"
    return f"{lead}{mark}{core}{mark}{trail}"


def remove_marks(rendered: str, marks: Marks) -> MarkedText:
    """Remove the marks from a rendered text and record where they were."""
    marked = MarkedText()
    pieces: list[str] = []
    at, length = 0, 0
    plain_from = block_from = 0
    for match in marks.pattern().finditer(rendered):
        pieces.append(rendered[at : match.start()])
        length += match.start() - at
        at = match.end()
        number, other = match.groups()
        if number is not None:
            first, _ = marked.messages.get(int(number), (length, length))
            marked.messages[int(number)] = (first, length)
        elif other == marks.plain_opens:
            plain_from = length
        elif other == marks.plain_closes:
            marked.plain.append((plain_from, length))
        elif other == marks.block_opens:
            block_from = length
        elif other == marks.block_closes:
            marked.blocks.append((block_from, length))
    pieces.append(rendered[at:])
    marked.text = "".join(pieces)
    return marked
