"""The rules of rows that compare two answers (DPO) or say whether one is wanted (KTO)."""

import re
from typing import Final

from msgspec.structs import replace

from tunery.data.dialects import chat
from tunery.data.dialects.chat import Turns
from tunery.data.dialects.detection import Conversation
from tunery.data.dialects.parsing import Object, kind
from tunery.data.dialects.single_turn import check_pair, turns_of
from tunery.data.dialects.tools import Offered, check_tools
from tunery.data.findings.finding import Note, excerpt

OPENAI: Final = ("preferred_output", "non_preferred_output")
TRL: Final = ("chosen", "rejected")
# Conversations written as one text, as in the first public preference data.
_SPEAKER: Final = re.compile(r"\n\n(Human|Assistant): ?")
SPEAKERS: Final = {"Human": "user", "Assistant": "assistant"}


def check_preference(value: Object, notes: list[Note]) -> Conversation | None:
    """The prompt with the chosen answer, and with the rejected one; None when an error was noted.

    The prompt may stand apart, or both sides may be whole conversations that begin alike.
    """
    before = len(notes)
    names = TRL if OPENAI[0] not in value and OPENAI[1] not in value else OPENAI
    chosen, rejected = (_side(value, name, notes) for name in names)
    whole = [side for side in (chosen, rejected) if side is not None and _is_whole(side)]
    offered = Offered()
    if whole:
        prompt: Turns | None = Turns([], [])
    else:
        prompt, offered = _prompt(value, names, notes)
    if prompt is None or chosen is None or rejected is None:
        return None
    if len(whole) == 1 or (whole and chosen.messages[:-1] != rejected.messages[:-1]):
        notes.append(Note("prompts_differ", f"/{names[1]}"))
        return None
    for side, name in zip((chosen, rejected), names, strict=True):
        found: list[Note] = []
        chat.check_turns(prompt + side, f"/{name}", "role", offered.names, found)
        notes += (note for note in found if note not in notes)
    if _same(chosen.messages[-1], rejected.messages[-1]):
        said = excerpt(rejected.messages[-1]["content"])
        notes.append(Note("chosen_equals_rejected", f"/{names[1]}", excerpt=said))
    if any(note.is_error for note in notes[before:]):
        return None
    won = chat.conversation((prompt + chosen).messages, offered.tools)
    lost = chat.conversation((prompt + rejected).messages, offered.tools)
    only_last = [False] * (len(won.messages) - 1) + [True]
    return replace(won, trained=only_last, rejected=lost.messages)


def check_labelled(value: Object, notes: list[Note]) -> Conversation | None:
    """A conversation and whether its answer is wanted; None when an error was noted."""
    key = next((key for key in ("label", "kto_tag") if key in value), None)
    label = None if key is None else value[key]
    if key is None:
        notes.append(Note("missing_label", "/label"))
    elif not isinstance(label, bool):
        detail = f"it is {excerpt(label)!r}" if isinstance(label, str) else f"it is {kind(label)}"
        notes.append(Note("label_not_boolean", f"/{key}", detail))
    if "messages" in value:
        made = chat.check_chat(chat.CHAT, value, notes)
    elif "conversations" in value:
        made = chat.check_chat(chat.SHAREGPT, value, notes)
    else:
        made = check_pair(value, notes)
    if made is None or not isinstance(label, bool):
        return None
    return replace(made, label=label)


def _side(value: Object, name: str, notes: list[Note]) -> Turns | None:
    side = turns_of(value, name, "assistant", notes)
    if side is None or not isinstance(value[name], str):
        return side
    _, *spoken = _SPEAKER.split(value[name])
    if not spoken or not value[name].startswith("\n\n"):
        return side
    messages = [
        {"role": SPEAKERS[speaker], "content": text}
        for speaker, text in zip(spoken[::2], spoken[1::2], strict=True)
    ]
    for message in messages:
        if not message["content"].strip():
            notes.append(Note("content_empty", f"/{name}", f"a turn of {message['role']}"))
            return None
    return Turns(messages, [f"/{name}"] * len(messages))


def _is_whole(side: Turns) -> bool:
    """Whether a side is a conversation with its prompt, not an answer alone."""
    return side.messages[0]["role"] in ("system", "user")


def _prompt(
    value: Object, names: tuple[str, str], notes: list[Note]
) -> tuple[Turns | None, Offered]:
    """The turns before the answers, and the tools they may call."""
    if names is OPENAI:
        asked = value.get("input")
        if not isinstance(asked, dict):
            notes.append(Note("missing_prompt", "/input"))
            return None, Offered()
        offered = check_tools(asked.get("tools"), "/input/tools", notes)
        return chat.read_turns(asked.get("messages"), "/input/messages", chat.CHAT, notes), offered
    offered = check_tools(value.get("tools"), "/tools", notes)
    for key, dialect in (("messages", chat.CHAT), ("conversations", chat.SHAREGPT)):
        if key in value:
            return chat.read_turns(value[key], f"/{key}", dialect, notes), offered
    key = "instruction" if "instruction" in value and "prompt" not in value else "prompt"
    prompt = turns_of(value, key, "user", notes)
    more = value.get("input")
    if prompt is not None and key == "instruction" and isinstance(more, str) and more.strip():
        text = f"{prompt.messages[0]['content']}\n{more}"
        prompt = Turns([{"role": "user", "content": text}], prompt.places)
    system = value.get("system")
    if prompt is not None and isinstance(system, str) and system.strip():
        prompt = Turns([{"role": "system", "content": system}], ["/system"]) + prompt
    return prompt, offered


def _same(one: Object, other: Object) -> bool:
    return bool(
        one["content"].strip() == other["content"].strip()
        and one.get("tool_calls") == other.get("tool_calls")
    )
