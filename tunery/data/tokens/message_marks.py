"""Locates each message in a rendered text by marks that pass through the chat template.

A message has parts: its text, its reasoning, its tool calls. Each part is put between two tags with
its number, and special tokens of the base model that the user wrote are put between quotes. Marks
are Unicode noncharacters that the row does not contain. Removing them from the rendered text gives
the text, their positions, and the parts that the template left out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from tunery.data.dialects.conversation import REASONING, THINK_TAGS
from tunery.data.dialects.parsing import Object

PartKind: TypeAlias = Literal["text", "reasoning", "call"]

NONCHARACTERS: Final = tuple(chr(point) for point in range(0xFDD0, 0xFDF0))
MARKS: Final = 6
_THINK: Final = re.compile("({}|{})".format(*THINK_TAGS))


@dataclass(frozen=True, slots=True)
class Marks:
    """The six noncharacters that serve as marks in one row."""

    # tag_opens, tag_closes: around the number of a part
    tag_opens: str
    tag_closes: str
    # plain_opens, plain_closes: around a special token that must remain plain text
    plain_opens: str
    plain_closes: str
    # block_opens, block_closes: around what `{% generation %}` encloses
    block_opens: str
    block_closes: str

    def pattern(self) -> re.Pattern[str]:
        """Matches a tag with its number, or any other mark."""
        others = f"{self.plain_opens}{self.plain_closes}{self.block_opens}{self.block_closes}"
        tags = f"[{self.tag_opens}{self.tag_closes}]"
        return re.compile(f"{self.tag_opens}(\\d+){self.tag_closes}|([{others}])|{tags}")


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A part of a message that a template may move or leave out."""

    message: int  # number of the message
    kind: PartKind  # what it is
    text: str  # its text; for a call the name of the function


@dataclass(slots=True)
class MarkedText:
    """A rendered text without its marks, and where they were, as character spans [start, end)."""

    text: str = ""  # the text without marks
    # for each message, the span from its first to its last part
    messages: dict[int, tuple[int, int]] = field(default_factory=dict)
    plain: list[tuple[int, int]] = field(default_factory=list)  # special tokens that the user wrote
    blocks: list[tuple[int, int]] = field(default_factory=list)  # what `{% generation %}` encloses
    # the parts that the template left out, whole or in part
    dropped: list[MessagePart] = field(default_factory=list)


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


class MessageTagger:
    """Puts the parts of messages between tags.

    parts: the parts in the order of their numbers
    """

    def __init__(self, marks: Marks) -> None:
        self.parts: list[MessagePart] = []
        self._marks = marks

    def tag(self, number: int, message: Object) -> Object:
        """Put the text, the reasoning and the names of the calls of a message between tags.

        Reasoning inside the text of an answer is its own part.
        """
        pieces = [message["content"]]
        if message["role"] == "assistant":
            pieces = _THINK.split(message["content"])
        for at, piece in enumerate(pieces):
            if piece not in THINK_TAGS:
                is_reasoning = pieces[at + 1 : at + 2] == [THINK_TAGS[1]]
                pieces[at] = self._tag(number, "reasoning" if is_reasoning else "text", piece)
        tagged = {**message, "content": "".join(pieces)}
        if REASONING in message:
            tagged[REASONING] = self._tag(number, "reasoning", message[REASONING])
        if message.get("tool_calls"):
            tagged["tool_calls"] = [self._tag_call(number, call) for call in message["tool_calls"]]
        return tagged

    def _tag_call(self, number: int, call: Object) -> Object:
        function = call["function"]
        name = self._tag(number, "call", function["name"])
        return {**call, "function": {**function, "name": name}}

    def _tag(self, number: int, kind: PartKind, text: str) -> str:
        """Tags stand inside leading and trailing white space, so that `trim` works."""
        core = text.strip()
        if not core:
            return text
        lead = text[: len(text) - len(text.lstrip())]
        trail = text[len(text.rstrip()) :]
        mark = f"{self._marks.tag_opens}{len(self.parts)}{self._marks.tag_closes}"
        self.parts.append(MessagePart(number, kind, core))
        return f"{lead}{mark}{core}{mark}{trail}"


def remove_marks(rendered: str, marks: Marks, parts: Sequence[MessagePart]) -> MarkedText:
    """Remove the marks of these parts from a rendered text and record where they were.

    A part that the template writes twice counts where it is first.
    """
    marked = MarkedText()
    pieces: list[str] = []
    tags: dict[int, list[int]] = {}  # positions of the tags of each part
    at, length = 0, 0
    plain_from = block_from = -1
    for match in marks.pattern().finditer(rendered):
        pieces.append(rendered[at : match.start()])
        length += match.start() - at
        at = match.end()
        number, other = match.groups()
        if number is not None:
            tags.setdefault(int(number), []).append(length)
        elif other == marks.plain_opens:
            plain_from = length
        elif other == marks.plain_closes and plain_from >= 0:
            marked.plain.append((plain_from, length))
            plain_from = -1
        elif other == marks.block_opens:
            block_from = length
        elif other == marks.block_closes:
            marked.blocks.append((block_from, length))
    pieces.append(rendered[at:])
    marked.text = "".join(pieces)
    for number, part in enumerate(parts):
        positions = tags.get(number, [])
        if len(positions) < 2:
            marked.dropped.append(part)
            continue
        first, last = marked.messages.get(part.message, (positions[0], positions[1]))
        marked.messages[part.message] = (min(first, positions[0]), max(last, positions[1]))
    return marked
