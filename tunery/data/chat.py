"""The rules of a chat row. Every fault of the row is noted, not only the first."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from tunery.data import tools
from tunery.data.dialects import Conversation
from tunery.data.findings import Note, excerpt
from tunery.data.parsing import Object, kind
from tunery.data.texts import check_text

ROLES: Final = ("system", "user", "assistant", "tool")
ALIASES: Final = {
    "developer": "system",  # OpenAI's newer name of the same turn
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "observation": "tool",
}
KEYS: Final = frozenset(
    ("role", "content", "weight", "name", "tool_calls", "tool_call_id", "refusal", "audio")
)
SHAREGPT_KEYS: Final = frozenset(("from", "value", "weight"))
LINK_CHARS: Final = 400  # how far into a question a link is looked for
_LINK: Final = re.compile(
    r"\b(?:this|the following|attached|above) (?:link|url|website|image|picture|photo)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Names:
    """What a dialect calls things."""

    messages: str
    role: str
    content: str
    keys: frozenset[str]
    aliases_warn: bool


CHAT: Final = Names("messages", "role", "content", KEYS, aliases_warn=True)
SHAREGPT: Final = Names("conversations", "from", "value", SHAREGPT_KEYS, aliases_warn=False)


def check_chat(value: Object, names: Names, notes: list[Note]) -> Conversation | None:
    """The conversation of a row; None when an error was noted."""
    before = len(notes)
    listed = value.get(names.messages)
    if listed is None:
        notes.append(Note("missing_messages", f"/{names.messages}"))
    elif not isinstance(listed, list):
        notes.append(Note("messages_not_list", f"/{names.messages}", f"it is {kind(listed)}"))
    elif not listed:
        notes.append(Note("messages_empty", f"/{names.messages}"))
    else:
        offered = tools.check_tools(value.get("tools"), notes)
        messages = [
            _message(item, f"/{names.messages}/{at}", names, notes)
            for at, item in enumerate(listed)
        ]
        shaped = [message for message in messages if message is not None]
        if len(shaped) == len(messages):
            _order(shaped, names, notes)
            tools.check_calls(shaped, offered, names.messages, notes)
            if not any(note.is_error for note in notes[before:]):
                return Conversation(*_trained(shaped), tools=value.get("tools") or None)
    return None


def keys_of(value: Object, names: Names) -> int:
    """Keys of the row and of its messages: what a row without repeated keys has at least."""
    listed = value.get(names.messages)
    inner = listed if isinstance(listed, list) else ()
    return len(value) + sum(len(item) for item in inner if isinstance(item, dict))


def _message(item: object, at: str, names: Names, notes: list[Note]) -> Object | None:
    """The message under our names, or None when it has no usable shape."""
    if not isinstance(item, dict):
        notes.append(Note("message_not_object", at, f"it is {kind(item)}"))
        return None
    unknown = sorted(item.keys() - names.keys)
    if unknown:
        notes.append(Note("unknown_key", f"{at}/{unknown[0][:40]}", repr(unknown[0][:40])))
    role = _role(item, at, names, notes)
    content = _content(item, role, at, names, notes)
    if role is None or content is None:
        return None
    _weight(item, role, at, notes)
    message: Object = {"role": role, "content": content}
    for key in ("name", "weight", "tool_calls", "tool_call_id"):
        if item.get(key) is not None:
            message[key] = item[key]
    return message


def _role(item: Object, at: str, names: Names, notes: list[Note]) -> str | None:
    at = f"{at}/{names.role}"
    if names.role not in item:
        notes.append(Note("missing_role", at))
        return None
    role = item[names.role]
    if not isinstance(role, str):
        notes.append(Note("role_not_string", at, f"it is {kind(role)}"))
        return None
    if role in ROLES:
        return role
    if role in ALIASES:
        if names.aliases_warn and role != "developer":
            notes.append(Note("role_alias", at, repr(role)))
        return ALIASES[role]
    near = role.strip().lower()
    meant = near if near in ROLES else ALIASES.get(near)
    detail = f"{excerpt(role)!r}" + (f", did you mean {meant!r}?" if meant else "")
    notes.append(Note("unknown_role", at, detail))
    return None


def _content(
    item: Object, role: str | None, at: str, names: Names, notes: list[Note]
) -> str | None:
    """The text; "" where there may be none (a tool call, an empty tool result)."""
    at = f"{at}/{names.content}"
    content = item.get(names.content)
    calls = role == "assistant" and bool(item.get("tool_calls"))
    if content is None and calls:
        return ""
    if names.content not in item:
        notes.append(Note("missing_content", at))
        return None
    if isinstance(content, list):
        content = _joined(content, at, notes)
        if content is None:
            return None
    if not isinstance(content, str):
        notes.append(Note("content_not_string", at, f"it is {kind(content)}"))
        return None
    if not content.strip():
        if role == "system":
            notes.append(Note("empty_system", at))
        elif not calls and role != "tool":
            notes.append(Note("content_empty", at))
        return content
    check_text(content, at, notes)
    if role == "user" and _LINK.search(content, 0, LINK_CHARS):
        notes.append(Note("needs_link", at, excerpt=excerpt(content)))
    return content


def _joined(parts: list[Any], at: str, notes: list[Note]) -> str | None:
    """The text of text parts, joined; other parts are noted."""
    texts: list[str] = []
    for index, part in enumerate(parts):
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image_url" | "image" | "input_image"} | {"image_url": _}:
                notes.append(Note("image_in_text", f"{at}/{index}"))
            case _:
                notes.append(Note("content_part", f"{at}/{index}", f"it is {kind(part)}"))
    return "".join(texts) if len(texts) == len(parts) else None


def _weight(item: Object, role: str, at: str, notes: list[Note]) -> None:
    weight = item.get("weight")
    if weight is None:
        return
    if isinstance(weight, bool) or weight not in (0, 1):
        notes.append(Note("bad_weight", f"{at}/weight", f"it is {excerpt(str(weight))}"))
    elif role != "assistant":
        notes.append(Note("weight_ignored", f"{at}/weight"))


def _order(messages: list[Object], names: Names, notes: list[Note]) -> None:
    """Who speaks after whom."""
    at = f"/{names.messages}"
    roles = [message["role"] for message in messages]
    for index, role in enumerate(roles):
        if role == "system" and index > 0:
            detail = "it is the second" if roles[0] == "system" else ""
            notes.append(Note("system_not_first", f"{at}/{index}/{names.role}", detail))
        elif role in ("user", "assistant") and index and roles[index - 1] == role:
            notes.append(Note("repeated_role", f"{at}/{index}/{names.role}", repr(role)))
    turns = [role for role in roles if role != "system"]
    if "assistant" not in turns:
        notes.append(Note("no_assistant", at))
        return
    if turns[0] == "assistant":
        notes.append(Note("assistant_first", f"{at}/{roles.index('assistant')}/{names.role}"))
    if turns[-1] != "assistant":
        last = f"{at}/{len(roles) - 1}/{names.role}"
        notes.append(Note("assistant_not_last", last, f"it is {turns[-1]!r}"))
    answers = [message for message in messages if message["role"] == "assistant"]
    if all(message.get("weight") == 0 for message in answers):
        notes.append(Note("weights_all_zero", at))
    for before, answer in pairwise(messages):
        same = answer["content"].strip() == before["content"].strip() != ""
        if answer["role"] == "assistant" and before["role"] == "user" and same:
            notes.append(Note("output_equals_input", at, excerpt=excerpt(answer["content"])))


def _trained(messages: list[Object]) -> tuple[list[Object], list[bool]]:
    trained = [m["role"] == "assistant" and m.get("weight", 1) == 1 for m in messages]
    plain = [{key: item for key, item in m.items() if key != "weight"} for m in messages]
    return [tools.decoded(message) for message in plain], trained
