"""The rules of chat and ShareGPT rows. Every fault of a row is noted, not only the first."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import Struct

from tunery.data.dialects import tools
from tunery.data.dialects.conversation import REASONING, REASONING_NAMES, Conversation
from tunery.data.dialects.parsing import Object, json_type
from tunery.data.dialects.text_rules import check_text
from tunery.data.findings.finding import Note, excerpt

ROLES: Final = ("system", "user", "assistant", "tool")
ALIASES: Final = {
    "developer": "system",  # OpenAI's newer name of the same role
    "human": "user",
    "prompter": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "observation": "tool",
    "function": "tool",  # OpenAI's older name of the same role
}
STANDARD_ALIASES: Final = frozenset(("developer", "function"))  # OpenAI's own names: no warning
_OPENAI_KEYS: Final = (
    "role",
    "content",
    "weight",
    "name",
    "tool_calls",
    "tool_call_id",
    tools.FUNCTION_CALL,
    "refusal",
    "audio",
)
KEYS: Final = frozenset((*_OPENAI_KEYS, *REASONING_NAMES))
SHAREGPT_KEYS: Final = frozenset(("from", "value", "weight"))
TRAINER_KEYS: Final = frozenset(("weight", tools.FUNCTION_CALL))  # no chat template reads them
LINK_CHARS: Final = 200  # the beginning of a question that is searched for a link
_LINK: Final = re.compile(
    r"\b(?:this|the following|attached|above) (?:link|url|website|image|picture|photo)\b"
)


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The names that a dialect uses."""

    messages: str  # key of the list of messages
    role: str  # key of a message's role
    content: str  # key of a message's text
    keys: frozenset[str]  # all keys a message may have
    aliases_warn: bool  # whether another format's name for a role is a warning


class Turns(Struct, frozen=True):
    """Messages with OpenAI's field names, and the JSON pointer of each."""

    messages: list[Object]
    pointers: list[str]

    def __add__(self, other: "Turns") -> "Turns":
        return Turns(self.messages + other.messages, self.pointers + other.pointers)


CHAT: Final = FieldNames("messages", "role", "content", KEYS, aliases_warn=True)
SHAREGPT: Final = FieldNames("conversations", "from", "value", SHAREGPT_KEYS, aliases_warn=False)


def check_chat(names: FieldNames, value: Object, notes: list[Note]) -> Conversation | None:
    """Check a row and return its conversation; None when an error was noted."""
    before = len(notes)
    turns = read_turns(value.get(names.messages), f"/{names.messages}", names, notes)
    definitions = tools.check_row(value, notes)
    if turns is None:
        return None
    if isinstance(value.get("system"), str) and value["system"].strip():
        turns = Turns([{"role": "system", "content": value["system"]}], ["/system"]) + turns
    check_turns(turns, f"/{names.messages}", names.role, definitions.names, notes)
    if any(note.is_error for note in notes[before:]):
        return None
    return build_conversation(turns.messages, definitions.tools)


def check_link(text: str, at: str, notes: list[Note]) -> None:
    """Note a text that refers to a link or picture that is not in the row."""
    if has_link(text):
        notes.append(Note("needs_link", at, excerpt=excerpt(text)))


def has_link(text: str) -> bool:
    """True if the first LINK_CHARS characters of a text refer to a link or picture.

    The search for words before the pattern is a shortcut: most texts have none of them.
    """
    head = text[:LINK_CHARS].lower()
    return (
        "this " in head or "following " in head or "attached " in head or "above " in head
    ) and _LINK.search(head) is not None


def read_turns(listed: object, at: str, names: FieldNames, notes: list[Note]) -> Turns | None:
    """Read a list of messages at JSON pointer `at`; None when an error was noted."""
    if listed is None:
        notes.append(Note("missing_messages", at))
    elif not isinstance(listed, list):
        notes.append(Note("messages_not_list", at, f"it is {json_type(listed)}"))
    elif not listed:
        notes.append(Note("messages_empty", at))
    else:
        pointers = [f"{at}/{index}" for index in range(len(listed))]
        read = [
            _message(item, pointer, names, notes)
            for item, pointer in zip(listed, pointers, strict=True)
        ]
        valid = [message for message in read if message is not None]
        return Turns(valid, pointers) if len(valid) == len(read) else None
    return None


def check_turns(
    turns: Turns, at: str, role_key: str, defined: frozenset[str] | None, notes: list[Note]
) -> None:
    """Note faults of the order of roles, of the answers, and of tool calls and their results.

    `at` is the JSON pointer of the messages, `defined` the names of the row's tools.
    """
    _check_order(turns, role_key, notes)
    _check_answers(turns, at, role_key, notes)
    tools.check_calls(turns.messages, defined, turns.pointers, notes)


def build_conversation(messages: list[Object], definitions: list[Any] | None) -> Conversation:
    """The conversation of checked messages: the model learns assistant messages of weight 1."""
    trained = [m["role"] == "assistant" and m.get("weight", 1) == 1 for m in messages]
    shown = [{key: m[key] for key in m if key not in TRAINER_KEYS} for m in messages]
    decoded = [tools.decode_arguments(message) for message in shown]
    return Conversation(decoded, trained, tools=definitions)


def _message(item: object, at: str, names: FieldNames, notes: list[Note]) -> Object | None:
    """The message with OpenAI's field names; None when it is malformed."""
    if not isinstance(item, dict):
        notes.append(Note("message_not_object", at, f"it is {json_type(item)}"))
        return None
    unknown = sorted(key for key in item.keys() - names.keys if item[key] is not None)
    if unknown:
        notes.append(Note("unknown_key", f"{at}/{unknown[0][:40]}", repr(unknown[0][:40])))
    if item.get(names.role) == tools.FUNCTION_CALL and names.role == "from":
        return _sharegpt_call(item, f"{at}/{names.content}", names, notes)
    if names.messages == CHAT.messages and item.get(tools.FUNCTION_CALL) is not None:
        item = tools.read_function_call(item, at, notes)
    role = _role(item, at, names, notes)
    content = _content(item, role, at, names, notes)
    if role is None or content is None:
        return None
    _check_weight(item, role, at, notes)
    message: Object = {"role": role, "content": content}
    for key in ("name", "weight", "tool_calls", "tool_call_id", tools.FUNCTION_CALL):
        if item.get(key) is not None:
            message[key] = item[key]
    if REASONING in names.keys and (reasoning := _reasoning(item, role, at, notes)) is not None:
        message[REASONING] = reasoning
    return message


def _sharegpt_call(item: Object, at: str, names: FieldNames, notes: list[Note]) -> Object | None:
    """A ShareGPT message that calls a tool: its text is one call, or a list of calls, as JSON."""
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
    tool_calls = [{"type": "function", "function": {**call}} for call in calls]
    return {"role": "assistant", "content": "", "tool_calls": tool_calls}


def _role(item: Object, at: str, names: FieldNames, notes: list[Note]) -> str | None:
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
        notes.append(Note("role_not_string", at, f"it is {json_type(role)}"))
        return None
    if role in ROLES:
        return role
    if role in ALIASES:
        if names.aliases_warn and role not in STANDARD_ALIASES:
            notes.append(Note("role_alias", at, repr(role)))
        return ALIASES[role]
    normal = role.strip().lower()
    suggestion = normal if normal in ROLES else ALIASES.get(normal)
    detail = f"{excerpt(role)!r}" + (f", did you mean {suggestion!r}?" if suggestion else "")
    notes.append(Note("unknown_role", at, detail))
    return None


def _content(
    item: Object, role: str | None, at: str, names: FieldNames, notes: list[Note]
) -> str | None:
    """The text of a message; "" where none is needed (a tool call, an empty tool result)."""
    at = f"{at}/{names.content}"
    content = item.get(names.content)
    calls = role == "assistant" and bool(item.get("tool_calls"))
    if content is None and calls:
        return ""
    if names.content not in item:
        notes.append(Note("missing_content", at))
        return None
    if isinstance(content, list):
        content = _join_parts(content, at, notes)
        if content is None:
            return None
    if not isinstance(content, str):
        notes.append(Note("content_not_string", at, f"it is {json_type(content)}"))
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


def _reasoning(item: Object, role: str, at: str, notes: list[Note]) -> str | None:
    """Return the assistant's reasoning, from any of REASONING_NAMES; None without it."""
    for name in REASONING_NAMES:
        value = item.get(name)
        if value is None or value == "":
            continue
        if role != "assistant":
            notes.append(Note("unknown_key", f"{at}/{name}", f"{name!r} of {role}"))
        elif not isinstance(value, str):
            notes.append(Note("content_not_string", f"{at}/{name}", f"it is {json_type(value)}"))
        else:
            check_text(value, f"{at}/{name}", notes)
            return value
    return None


def _join_parts(parts: list[Any], at: str, notes: list[Note]) -> str | None:
    """Join the text of text parts; None when there are other parts, which are noted."""
    texts: list[str] = []
    for index, part in enumerate(parts):
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image_url" | "image" | "input_image"} | {"image_url": _}:
                notes.append(Note("image_in_text", f"{at}/{index}"))
            case _:
                notes.append(Note("content_part", f"{at}/{index}", f"it is {json_type(part)}"))
    return "".join(texts) if len(texts) == len(parts) else None


def _check_weight(item: Object, role: str, at: str, notes: list[Note]) -> None:
    weight = item.get("weight")
    if weight is None:
        return
    if isinstance(weight, bool) or weight not in (0, 1):
        notes.append(Note("bad_weight", f"{at}/weight", f"it is {excerpt(str(weight))}"))
    elif role != "assistant":
        notes.append(Note("weight_ignored", f"{at}/weight"))


def _check_order(turns: Turns, role_key: str, notes: list[Note]) -> None:
    """Note a system message that is not the first, and roles that repeat."""
    roles = [message["role"] for message in turns.messages]
    for index, role in enumerate(roles):
        at = f"{turns.pointers[index]}/{role_key}"
        if role == "system" and index > 0:
            detail = "there are two system messages" if roles[0] == "system" else ""
            notes.append(Note("system_not_first", at, detail))
        elif role in ("user", "assistant") and index and roles[index - 1] == role:
            notes.append(Note("repeated_role", at, repr(role)))


def _check_answers(turns: Turns, at: str, role_key: str, notes: list[Note]) -> None:
    """Note a conversation without an answer to learn, or with an answer that repeats the question.

    `at` is the JSON pointer of the messages.
    """
    roles = [message["role"] for message in turns.messages]
    dialogue = [role for role in roles if role != "system"]
    if "assistant" not in dialogue:
        notes.append(Note("no_assistant", at))
        return
    if dialogue[0] == "assistant":
        first = turns.pointers[roles.index("assistant")]
        notes.append(Note("assistant_first", f"{first}/{role_key}"))
    if dialogue[-1] != "assistant":
        last = f"{turns.pointers[-1]}/{role_key}"
        notes.append(Note("assistant_not_last", last, f"it is {dialogue[-1]!r}"))
    answers = [message for message in turns.messages if message["role"] == "assistant"]
    if all(message.get("weight") == 0 for message in answers):
        notes.append(Note("weights_all_zero", at))
    for before, answer in pairwise(turns.messages):
        same = answer["content"].strip() == before["content"].strip() != ""
        if answer["role"] == "assistant" and before["role"] == "user" and same:
            notes.append(Note("output_equals_input", at, excerpt=excerpt(answer["content"])))
