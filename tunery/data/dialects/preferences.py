"""The rules of preference rows: two answers compared (DPO), or one answer with a label (KTO)."""

import re
from typing import Final

from msgspec.structs import replace

from tunery.data.dialects import chat
from tunery.data.dialects.chat import Turns
from tunery.data.dialects.conversation import REASONING, Conversation
from tunery.data.dialects.parsing import Object, json_type
from tunery.data.dialects.single_turn import check_pair, read_turns
from tunery.data.dialects.tools import ToolDefinitions, check_tools
from tunery.data.findings.finding import Note, excerpt

OPENAI: Final = ("preferred_output", "non_preferred_output")
TRL: Final = ("chosen", "rejected")
# Conversations written as one text, as in Anthropic's HH-RLHF, the first public preference data.
_SPEAKER: Final = re.compile(r"\n\n(Human|Assistant): ?")
SPEAKERS: Final = {"Human": "user", "Assistant": "assistant"}


def check_preference(value: Object, notes: list[Note]) -> Conversation | None:
    """Check a chosen and a rejected answer to one prompt; None when an error was noted.

    The prompt is its own field, or both answers are whole conversations with the same prompt.
    """
    before = len(notes)
    names = TRL if OPENAI[0] not in value and OPENAI[1] not in value else OPENAI
    chosen, rejected = (_read_answer(value, name, notes) for name in names)
    whole = [side for side in (chosen, rejected) if side is not None and _is_whole(side)]
    definitions = ToolDefinitions()
    if whole:
        prompt: Turns | None = Turns([], [])
    else:
        prompt, definitions = _prompt(value, names, notes)
    if prompt is None or chosen is None or rejected is None:
        return None
    if len(whole) == 1 or (whole and chosen.messages[:-1] != rejected.messages[:-1]):
        notes.append(Note("prompts_differ", f"/{names[1]}"))
        return None
    for side, name in zip((chosen, rejected), names, strict=True):
        of_side: list[Note] = []
        chat.check_turns(prompt + side, f"/{name}", "role", definitions.names, of_side)
        notes += (note for note in of_side if note not in notes)
    if _same_content(chosen.messages[-1], rejected.messages[-1]):
        answer = excerpt(rejected.messages[-1]["content"])
        notes.append(Note("chosen_equals_rejected", f"/{names[1]}", excerpt=answer))
    if any(note.is_error for note in notes[before:]):
        return None
    preferred = chat.build_conversation((prompt + chosen).messages, definitions.tools)
    other = chat.build_conversation((prompt + rejected).messages, definitions.tools)
    only_last = [False] * (len(preferred.messages) - 1) + [True]
    return replace(preferred, trained=only_last, rejected=other.messages)


def check_labelled(value: Object, notes: list[Note]) -> Conversation | None:
    """Check a conversation and the label of its answer; None when an error was noted."""
    key = next((key for key in ("label", "kto_tag") if key in value), None)
    label = None if key is None else value[key]
    if key is None:
        notes.append(Note("missing_label", "/label"))
    elif not isinstance(label, bool):
        detail = (
            f"it is {excerpt(label)!r}" if isinstance(label, str) else f"it is {json_type(label)}"
        )
        notes.append(Note("label_not_boolean", f"/{key}", detail))
    if "messages" in value:
        conversation = chat.check_chat(chat.CHAT, value, notes)
    elif "conversations" in value:
        conversation = chat.check_chat(chat.SHAREGPT, value, notes)
    else:
        conversation = check_pair(value, notes)
    if conversation is None or not isinstance(label, bool):
        return None
    only_last = [False] * (len(conversation.messages) - 1) + [True]
    return replace(conversation, trained=only_last, label=label)


def _read_answer(value: Object, name: str, notes: list[Note]) -> Turns | None:
    """Read one of the two answers, which may be a whole conversation; None after an error."""
    answer = read_turns(value, name, "assistant", notes)
    if answer is None or not isinstance(value[name], str):
        return answer
    _, *parts = _SPEAKER.split(value[name])
    if not parts or not value[name].startswith("\n\n"):
        return answer
    messages = [
        {"role": SPEAKERS[speaker], "content": text}
        for speaker, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    for message in messages:
        if not message["content"].strip():
            notes.append(Note("content_empty", f"/{name}", f"a message of {message['role']}"))
            return None
    return Turns(messages, [f"/{name}"] * len(messages))


def _is_whole(side: Turns) -> bool:
    """True if an answer is a whole conversation, beginning with its prompt."""
    return side.messages[0]["role"] in ("system", "user")


def _prompt(
    value: Object, names: tuple[str, str], notes: list[Note]
) -> tuple[Turns | None, ToolDefinitions]:
    """The messages before the answers (None after an error), and the tools of the row."""
    if names is OPENAI:
        request = value.get("input")
        if not isinstance(request, dict):
            notes.append(Note("missing_prompt", "/input"))
            return None, ToolDefinitions()
        definitions = check_tools(request.get("tools"), "/input/tools", notes)
        return chat.read_turns(
            request.get("messages"), "/input/messages", chat.CHAT, notes
        ), definitions
    definitions = check_tools(value.get("tools"), "/tools", notes)
    for key, dialect in (("messages", chat.CHAT), ("conversations", chat.SHAREGPT)):
        if key in value:
            return chat.read_turns(value[key], f"/{key}", dialect, notes), definitions
    key = "instruction" if "instruction" in value and "prompt" not in value else "prompt"
    prompt = read_turns(value, key, "user", notes)
    extra = value.get("input")
    if prompt is not None and key == "instruction" and isinstance(extra, str) and extra.strip():
        text = f"{prompt.messages[0]['content']}\n{extra}"
        prompt = Turns([{"role": "user", "content": text}], prompt.pointers)
    system = value.get("system")
    if prompt is not None and isinstance(system, str) and system.strip():
        prompt = Turns([{"role": "system", "content": system}], ["/system"]) + prompt
    return prompt, definitions


def _same_content(message: Object, other: Object) -> bool:
    return bool(
        message["content"].strip() == other["content"].strip()
        and message.get(REASONING) == other.get(REASONING)
        and message.get("tool_calls") == other.get("tool_calls")
    )
