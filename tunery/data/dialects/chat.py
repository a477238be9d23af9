"""The rules of a chat row. Every fault of the row is noted, not only the first."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import Struct

from tunery.data.dialects import tools
from tunery.data.dialects.detection import Conversation
from tunery.data.dialects.parsing import Object, kind
from tunery.data.dialects.text_rules import check_text
from tunery.data.findings.finding import Note, excerpt

ROLES: Final = ("system", "user", "assistant", "tool")
ALIASES: Final = {
    "developer": "system",  # OpenAI's newer name of the same turn
    "human": "user",
    "prompter": "user",
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
FUNCTION_CALL: Final = "function_call"
LINK_CHARS: Final = 200  # how far into a question a link is looked for
_LINK: Final = re.compile(
    r"\b(?:this|the following|attached|above) (?:link|url|website|image|picture|photo)\b"
)


@dataclass(frozen=True, slots=True)
class Names:
    """What a dialect calls things."""

    messages: str
    role: str
    content: str
    keys: frozenset[str]
    aliases_warn: bool


class Turns(Struct, frozen=True):
    """Messages under our names, and the JSON pointer of each."""

    messages: list[Object]
    places: list[str]

    def __add__(self, other: "Turns") -> "Turns":
        return Turns(self.messages + other.messages, self.places + other.places)


CHAT: Final = Names("messages", "role", "content", KEYS, aliases_warn=True)
SHAREGPT: Final = Names("conversations", "from", "value", SHAREGPT_KEYS, aliases_warn=False)


def check_chat(names: Names, value: Object, notes: list[Note]) -> Conversation | None:
    """The conversation of a row; None when an error was noted."""
    before = len(notes)
    turns = read_turns(value.get(names.messages), f"/{names.messages}", names, notes)
    offered = tools.check_tools(value.get("tools"), "/tools", notes)
    if turns is None:
        return None
    if isinstance(value.get("system"), str) and value["system"].strip():
        turns = Turns([{"role": "system", "content": value["system"]}], ["/system"]) + turns
    check_turns(turns, f"/{names.messages}", names.role, offered.names, notes)
    if any(note.is_error for note in notes[before:]):
        return None
    return conversation(turns.messages, offered.tools)


def check_link(text: str, at: str, notes: list[Note]) -> None:
    """Note an instruction that cannot be followed without something that is not in the row."""
    if has_link(text):
        notes.append(Note("needs_link", at, excerpt=excerpt(text)))


def has_link(text: str) -> bool:
    """Whether the beginning points at a link or picture. Most texts have none of the words."""
    head = text[:LINK_CHARS].lower()
    return (
        "this " in head or "following " in head or "attached " in head or "above " in head
    ) and _LINK.search(head) is not None


def read_turns(listed: object, at: str, names: Names, notes: list[Note]) -> Turns | None:
    """The messages of a list at pointer `at`; None when an error was noted."""
    if listed is None:
        notes.append(Note("missing_messages", at))
    elif not isinstance(listed, list):
        notes.append(Note("messages_not_list", at, f"it is {kind(listed)}"))
    elif not listed:
        notes.append(Note("messages_empty", at))
    else:
        places = [f"{at}/{index}" for index in range(len(listed))]
        read = [
            _message(item, place, names, notes) for item, place in zip(listed, places, strict=True)
        ]
        shaped = [message for message in read if message is not None]
        return Turns(shaped, places) if len(shaped) == len(read) else None
    return None


def check_turns(
    turns: Turns, at: str, role_key: str, offered: frozenset[str] | None, notes: list[Note]
) -> None:
    """Who speaks after whom, what is learnt, which call has which result."""
    _order(turns, role_key, notes)
    _answers(turns, at, role_key, notes)
    tools.check_calls(turns.messages, offered, turns.places, notes)


def conversation(messages: list[Object], offered: list[Any] | None) -> Conversation:
    """Checked messages as a template reads them, and which of them are learnt."""
    trained = [m["role"] == "assistant" and m.get("weight", 1) == 1 for m in messages]
    plain = [{key: item for key, item in m.items() if key != "weight"} for m in messages]
    return Conversation([tools.decoded(message) for message in plain], trained, tools=offered)


def _message(item: object, at: str, names: Names, notes: list[Note]) -> Object | None:
    """The message under our names, or None when it has no usable shape."""
    if not isinstance(item, dict):
        notes.append(Note("message_not_object", at, f"it is {kind(item)}"))
        return None
    unknown = sorted(key for key in item.keys() - names.keys if item[key] is not None)
    if unknown:
        notes.append(Note("unknown_key", f"{at}/{unknown[0][:40]}", repr(unknown[0][:40])))
    if item.get(names.role) == FUNCTION_CALL and names.role == "from":
        return _function_call(item, f"{at}/{names.content}", names, notes)
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


def _function_call(item: Object, at: str, names: Names, notes: list[Note]) -> Object | None:
    """ShareGPT's turn that calls a tool: its text is one call, or a list of calls, as JSON."""
    value = item.get(names.content)
    try:
        calls = msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        notes.append(Note("bad_tool_calls", at, str(error)[:200], excerpt(str(value))))
        return None
    calls = calls if isinstance(calls, list) else [calls]
    if not calls or not all(isinstance(call, dict) and "name" in call for call in calls):
        notes.append(Note("bad_tool_calls", at, "no name and arguments"))
        return None
    made = [{"type": "function", "function": {**call}} for call in calls]
    return {"role": "assistant", "content": "", "tool_calls": made}


def _role(item: Object, at: str, names: Names, notes: list[Note]) -> str | None:
    at = f"{at}/{names.role}"
    if names.role not in item:
        other = CHAT if names.role == SHAREGPT.role else SHAREGPT
        detail = ""
        if other.role in item:
            detail = f"it has {other.role!r}; a list of such messages is called {other.messages!r}"
        notes.append(Note("missing_role", at, detail))
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
    if role == "user":
        check_link(content, at, notes)
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


def _order(turns: Turns, role_key: str, notes: list[Note]) -> None:
    """Who speaks after whom."""
    roles = [message["role"] for message in turns.messages]
    for index, role in enumerate(roles):
        at = f"{turns.places[index]}/{role_key}"
        if role == "system" and index > 0:
            detail = "it is the second" if roles[0] == "system" else ""
            notes.append(Note("system_not_first", at, detail))
        elif role in ("user", "assistant") and index and roles[index - 1] == role:
            notes.append(Note("repeated_role", at, repr(role)))


def _answers(turns: Turns, at: str, role_key: str, notes: list[Note]) -> None:
    """Whether there is something to learn."""
    roles = [message["role"] for message in turns.messages]
    spoken = [role for role in roles if role != "system"]
    if "assistant" not in spoken:
        notes.append(Note("no_assistant", at))
        return
    if spoken[0] == "assistant":
        first = turns.places[roles.index("assistant")]
        notes.append(Note("assistant_first", f"{first}/{role_key}"))
    if spoken[-1] != "assistant":
        last = f"{turns.places[-1]}/{role_key}"
        notes.append(Note("assistant_not_last", last, f"it is {spoken[-1]!r}"))
    answers = [message for message in turns.messages if message["role"] == "assistant"]
    if all(message.get("weight") == 0 for message in answers):
        notes.append(Note("weights_all_zero", at))
    for before, answer in pairwise(turns.messages):
        same = answer["content"].strip() == before["content"].strip() != ""
        if answer["role"] == "assistant" and before["role"] == "user" and same:
            notes.append(Note("output_equals_input", at, excerpt=excerpt(answer["content"])))
