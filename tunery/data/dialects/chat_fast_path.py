"""Chat rows without a fault, many at a time: most rows of most files.

A row passes only when the rules of `chat` find nothing to say about it; every doubt sends it there.
So both ways give the same findings, and this one is only faster.
"""

import re
from typing import Final, Literal, TypedDict

import msgspec

from tunery.data.dialects.chat import has_link
from tunery.data.dialects.detection import Conversation
from tunery.data.dialects.text_rules import PLACEHOLDER_CHARS_MAX, is_placeholder


class _Message(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


class _Row(TypedDict):
    messages: list[_Message]


# Escapes of control characters, and of ASCII that could hide a quote or a bracket.
_ESCAPES: Final = re.compile(rb"\\(?:[bf]|u00[0-7])")
_SPECIAL: Final = re.compile(rb"<(?:[|\xef]|/?s>|(?:bos|eos|pad|unk)>|start_of|end_of|/?SYS>)")
DELETE: Final = b"\x7f"
INSTRUCTION: Final = b"INST]"
QUOTES: Final = (2, 8)  # of a row, and of each of its messages: keys and texts
_decode: Final = msgspec.json.Decoder(_Row).decode_lines
_TRAINED: dict[tuple[str, ...], list[bool] | None] = {}
ORDERS_MAX: Final = 10_000  # kept in _TRAINED


def read(data: bytes, lines: int) -> list[Conversation] | None:
    """The conversations of so many lines that `spreading.is_regular` passed, or of one line.

    None when any line is not certainly without a fault.
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
    found: list[Conversation] = []
    texts = 0
    for row in rows:
        messages = row["messages"]
        trained = _trained(messages)
        if trained is None or not _speak(messages):
            return None
        texts += len(messages)
        found.append(Conversation(messages, trained))  # type: ignore[arg-type]  # objects too
    # As many quotes as the values need: no key stands twice, and there are no other keys.
    more = data.count(b'"') - QUOTES[0] * lines - QUOTES[1] * texts
    if more and more != sum(m["content"].count('"') for row in rows for m in row["messages"]):
        return None
    return found


def _speak(messages: list[_Message]) -> bool:
    """Whether every text says something, and no answer repeats what it answers."""
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
    """Which messages are learnt; None when roles do not alternate as they should."""
    roles = tuple([message["role"] for message in messages])
    try:
        return _TRAINED[roles]
    except KeyError:
        spoken = roles[1:] if roles[:1] == ("system",) else roles
        turns = ("user", "assistant") * (len(spoken) // 2)
        known = [role == "assistant" for role in roles] if spoken == turns != () else None
        if len(_TRAINED) < ORDERS_MAX:
            _TRAINED[roles] = known
        return known
