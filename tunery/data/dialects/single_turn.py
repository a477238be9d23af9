"""The rules of rows that hold one text, or one question and one answer."""

from collections.abc import Iterator
from typing import Final

from tunery.data.dialects import chat
from tunery.data.dialects.detection import Conversation
from tunery.data.dialects.parsing import Object, kind
from tunery.data.dialects.text_rules import check_text
from tunery.data.findings.finding import Note, excerpt

MISSING: Final = {
    "prompt": "missing_prompt",
    "completion": "missing_completion",
    "instruction": "missing_instruction",
    "output": "missing_output",
    "text": "missing_text",
    "chosen": "missing_chosen",
    "preferred_output": "missing_chosen",
    "rejected": "missing_rejected",
    "non_preferred_output": "missing_rejected",
}
ALSO: Final = {"completion": "response", "output": "response"}  # other names of the same


def check_pair(value: Object, notes: list[Note]) -> Conversation | None:
    """Prompt and completion, learnt as a chat of one turn; None when an error was noted.

    Either may be a list of messages instead: then both together are a chat.
    """
    if isinstance(value.get("prompt"), list) or isinstance(value.get("completion"), list):
        return _listed(value, notes)
    prompt = text_of(value, "prompt", notes)
    completion = text_of(value, "completion", notes)
    if prompt is None or completion is None:
        return None
    _note_repeat(prompt, completion, "/completion", notes)
    return one_turn(prompt, completion)


def check_alpaca(value: Object, notes: list[Note]) -> Conversation | None:
    """Instruction, input (or none) and output; `system` and `history` go before them."""
    before = len(notes)
    instruction = text_of(value, "instruction", notes)
    output = text_of(value, "output", notes)
    more = value.get("input")
    if more is not None and not isinstance(more, str):
        notes.append(Note("content_not_string", "/input", f"it is {kind(more)}"))
    elif more and more.strip():
        check_text(more, "/input", notes)
    earlier = list(_earlier(value, notes))
    if instruction is None or output is None or any(note.is_error for note in notes[before:]):
        return None
    chat.check_link(instruction, "/instruction", notes)
    prompt = f"{instruction}\n{more}" if more and more.strip() else instruction
    _note_repeat(prompt, output, "/output", notes)
    made = one_turn(prompt, output)
    if not earlier:
        return made
    trained = [message["role"] == "assistant" for message in earlier]
    return Conversation(earlier + made.messages, trained + made.trained)


def check_plain(value: Object, notes: list[Note]) -> Conversation | None:
    """A text to go on learning from, without any template; None when an error was noted."""
    text = text_of(value, "text", notes)
    if text is None:
        return None
    message = {"role": "assistant", "content": text}
    return Conversation([message], [True], pair=("", text), plain=True)


def one_turn(prompt: str, completion: str) -> Conversation:
    messages = [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": completion},
    ]
    return Conversation(messages, [False, True], pair=(prompt, completion))


def text_of(value: Object, key: str, notes: list[Note]) -> str | None:
    """The text of a key, or of its other name; None after saying what is wrong with it."""
    if key not in value and ALSO.get(key) in value:
        key = ALSO[key]
    at = f"/{key}"
    if key not in value:
        notes.append(Note(MISSING[key], at))
        return None
    text = value[key]
    if not isinstance(text, str):
        notes.append(Note("content_not_string", at, f"it is {kind(text)}"))
        return None
    if not text.strip():
        notes.append(Note("content_empty", at))
        return None
    found = len(notes)
    check_text(text, at, notes)
    return None if any(note.is_error for note in notes[found:]) else text


def _listed(value: Object, notes: list[Note]) -> Conversation | None:
    before = len(notes)
    prompt = turns_of(value, "prompt", "user", notes)
    completion = turns_of(value, "completion", "assistant", notes)
    if prompt is None or completion is None:
        return None
    chat.check_turns(prompt + completion, "/completion", "role", None, notes)
    if any(note.is_error for note in notes[before:]):
        return None
    made = chat.conversation((prompt + completion).messages, None)
    asked = len(prompt.messages)
    return Conversation(made.messages, [False] * asked + made.trained[asked:])


def turns_of(value: Object, key: str, role: str, notes: list[Note]) -> chat.Turns | None:
    """What a key holds as messages: a text, one message, or a list of them."""
    found = value.get(key)
    if isinstance(found, dict):
        found = [found]
    if isinstance(found, list):
        first = found[0] if found else None
        is_sharegpt = isinstance(first, dict) and "from" in first
        return chat.read_turns(found, f"/{key}", chat.SHAREGPT if is_sharegpt else chat.CHAT, notes)
    text = text_of(value, key, notes)
    return None if text is None else chat.Turns([{"role": role, "content": text}], [f"/{key}"])


def _earlier(value: Object, notes: list[Note]) -> Iterator[Object]:
    """The turns before the instruction."""
    system = value.get("system")
    if isinstance(system, str) and system.strip():
        yield {"role": "system", "content": system}
    history = value.get("history") or []
    if not isinstance(history, list):
        notes.append(Note("bad_history", "/history", f"it is {kind(history)}"))
        return
    for index, turn in enumerate(history):
        match turn:
            case [str(asked), str(answered)] if asked.strip() and answered.strip():
                yield {"role": "user", "content": asked}
                yield {"role": "assistant", "content": answered}
            case _:
                notes.append(Note("bad_history", f"/history/{index}"))


def _note_repeat(prompt: str, answer: str, at: str, notes: list[Note]) -> None:
    if prompt.strip() == answer.strip():
        notes.append(Note("output_equals_input", at, excerpt=excerpt(answer)))
