"""Decodes valid chat rows many at a time, which covers most rows of most files.

A block of rows passes only when the rules of `chat` have no finding about any of them. In every
doubt `read` returns None and `chat` checks the rows one by one, so both paths give the same
findings and this one is only faster.
"""

import re
from typing import Final, Literal, TypedDict

import msgspec

from tunery.data.dialects.chat import has_link
from tunery.data.dialects.conversation import Conversation
from tunery.data.dialects.text_rules import PLACEHOLDER_CHARS_MAX, is_placeholder


class _Message(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


class _Row(TypedDict):
    messages: list[_Message]


# Escapes of control characters, and of ASCII that could hide a quotation mark or a bracket.
_ESCAPES: Final = re.compile(rb"\\(?:[bf]|u00[0-7])")
_SPECIAL: Final = re.compile(rb"<(?:[|\xef]|/?s>|(?:bos|eos|pad|unk)>|start_of|end_of|/?SYS>)")
DELETE: Final = b"\x7f"
INSTRUCTION: Final = b"INST]"
QUOTES: Final = (2, 8)  # quotation marks of a row, and of each of its messages: keys and texts
_decode: Final = msgspec.json.Decoder(_Row).decode_lines
_TRAINED_OF_ROLES: dict[tuple[str, ...], list[bool] | None] = {}
ORDERS_MAX: Final = 10_000  # sequences of roles that the cache keeps


def read(data: bytes, lines: int) -> list[Conversation] | None:
    """Decode `lines` lines, each with one object (`reading.is_regular`), or one line.

    Returns None unless every line is certainly free of findings.
    """
    if _ESCAPES.search(data) or DELETE in data or INSTRUCTION in data:
        return None
    if b"<" in data and _SPECIAL.search(data):
        return None
    try:
        rows = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if len(rows) != lines:
        return None
    conversations: list[Conversation] = []
    texts = 0
    for row in rows:
        messages = row["messages"]
        trained = _trained(messages)
        if trained is None or not _texts_are_valid(messages):
            return None
        texts += len(messages)
        conversations.append(Conversation(messages, trained))  # type: ignore[arg-type]  # a typed dict is a dict
    # Exactly as many quotation marks as the values need: no key is repeated or unknown.
    more = data.count(b'"') - QUOTES[0] * lines - QUOTES[1] * texts
    if more and more != sum(m["content"].count('"') for row in rows for m in row["messages"]):
        return None
    return conversations


def _texts_are_valid(messages: list[_Message]) -> bool:
    """True if no text is blank, a placeholder, a repeat of the last, or refers to a link."""
    before = ""
    for message in messages:
        text = message["content"]
        bare = text.strip()
        if bare == before or (len(bare) <= PLACEHOLDER_CHARS_MAX and is_placeholder(text)):
            return False
        if message["role"] == "user" and has_link(text):
            return False
        before = bare
    return before != ""


def _trained(messages: list[_Message]) -> list[bool] | None:
    """Return which messages are trained on; None unless user and assistant alternate."""
    roles = tuple([message["role"] for message in messages])
    try:
        return _TRAINED_OF_ROLES[roles]
    except KeyError:
        dialogue = roles[1:] if roles[:1] == ("system",) else roles
        turns = ("user", "assistant") * (len(dialogue) // 2)
        known = [role == "assistant" for role in roles] if dialogue == turns != () else None
        if len(_TRAINED_OF_ROLES) < ORDERS_MAX:
            _TRAINED_OF_ROLES[roles] = known
        return known
