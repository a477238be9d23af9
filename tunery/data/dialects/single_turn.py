"""The rules of prompt and completion rows, Alpaca rows and plain text."""

from collections.abc import Iterator
from typing import Final

from tunery.data.dialects import chat
from tunery.data.dialects.conversation import Conversation
from tunery.data.dialects.parsing import Object, json_type
from tunery.data.dialects.text_rules import check_text
from tunery.data.findings.finding import Note, excerpt

MISSING_CODES: Final = {
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
SYNONYMS: Final = {"completion": "response", "output": "response"}


def check_pair(value: Object, notes: list[Note]) -> Conversation | None:
    """Check prompt and completion, learned as a chat of one turn; None when an error was noted.

    Either may be a list of messages; then both together are one chat.
    """
    if isinstance(value.get("prompt"), list) or isinstance(value.get("completion"), list):
        return _check_messages(value, notes)
    prompt = read_text(value, "prompt", notes)
    completion = read_text(value, "completion", notes)
    if prompt is None or completion is None:
        return None
    _note_repeat(prompt, completion, "/completion", notes)
    return single_turn(prompt, completion)


def check_alpaca(value: Object, notes: list[Note]) -> Conversation | None:
    """Check instruction, optional input, and output; None when an error was noted.

    The texts of `system` and `history` come before them in the conversation.
    """
    before = len(notes)
    instruction = read_text(value, "instruction", notes)
    output = read_text(value, "output", notes)
    extra = value.get("input")
    if extra is not None and not isinstance(extra, str):
        notes.append(Note("content_not_string", "/input", f"it is {json_type(extra)}"))
    elif extra and extra.strip():
        check_text(extra, "/input", notes)
    history = list(_history(value, notes))
    if instruction is None or output is None or any(note.is_error for note in notes[before:]):
        return None
    chat.check_link(instruction, "/instruction", notes)
    prompt = f"{instruction}\n{extra}" if extra and extra.strip() else instruction
    _note_repeat(prompt, output, "/output", notes)
    last_turn = single_turn(prompt, output)
    if not history:
        return last_turn
    trained = [message["role"] == "assistant" for message in history]
    return Conversation(history + last_turn.messages, trained + last_turn.trained)


def check_plain(value: Object, notes: list[Note]) -> Conversation | None:
    """Check a text for continued pre-training without a template; None when an error was noted."""
    text = read_text(value, "text", notes)
    if text is None:
        return None
    message = {"role": "assistant", "content": text}
    return Conversation([message], [True], pair=("", text), plain=True)


def single_turn(prompt: str, completion: str) -> Conversation:
    messages = [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": completion},
    ]
    return Conversation(messages, [False, True], pair=(prompt, completion))


def read_text(value: Object, key: str, notes: list[Note]) -> str | None:
    """Read the text of a key or of its synonym; None when an error was noted."""
    if key not in value and SYNONYMS.get(key) in value:
        key = SYNONYMS[key]
    at = f"/{key}"
    if key not in value:
        notes.append(Note(MISSING_CODES[key], at))
        return None
    text = value[key]
    if not isinstance(text, str):
        notes.append(Note("content_not_string", at, f"it is {json_type(text)}"))
        return None
    if not text.strip():
        notes.append(Note("content_empty", at))
        return None
    before = len(notes)
    check_text(text, at, notes)
    return None if any(note.is_error for note in notes[before:]) else text


def _check_messages(value: Object, notes: list[Note]) -> Conversation | None:
    """Check a prompt and a completion that are lists of messages."""
    before = len(notes)
    prompt = read_turns(value, "prompt", "user", notes)
    completion = read_turns(value, "completion", "assistant", notes)
    if prompt is None or completion is None:
        return None
    chat.check_turns(prompt + completion, "/completion", "role", None, notes)
    if any(note.is_error for note in notes[before:]):
        return None
    whole = chat.build_conversation((prompt + completion).messages, None)
    prompt_size = len(prompt.messages)
    return Conversation(whole.messages, [False] * prompt_size + whole.trained[prompt_size:])


def read_turns(value: Object, key: str, role: str, notes: list[Note]) -> chat.Turns | None:
    """Read a text, a message or a list of messages as messages; None when an error was noted.

    A text becomes one message with this role.
    """
    content = value.get(key)
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, list):
        first = content[0] if content else None
        is_sharegpt = isinstance(first, dict) and "from" in first
        names = chat.SHAREGPT if is_sharegpt else chat.CHAT
        return chat.read_turns(content, f"/{key}", names, notes)
    text = read_text(value, key, notes)
    return None if text is None else chat.Turns([{"role": role, "content": text}], [f"/{key}"])


def _history(value: Object, notes: list[Note]) -> Iterator[Object]:
    """The messages before the instruction."""
    system = value.get("system")
    if isinstance(system, str) and system.strip():
        yield {"role": "system", "content": system}
    history = value.get("history") or []
    if not isinstance(history, list):
        notes.append(Note("bad_history", "/history", f"it is {json_type(history)}"))
        return
    for index, turn in enumerate(history):
        match turn:
            case [str(question), str(answer)] if question.strip() and answer.strip():
                yield {"role": "user", "content": question}
                yield {"role": "assistant", "content": answer}
            case _:
                notes.append(Note("bad_history", f"/history/{index}"))


def _note_repeat(prompt: str, answer: str, at: str, notes: list[Note]) -> None:
    if prompt.strip() == answer.strip():
        notes.append(Note("output_equals_input", at, excerpt=excerpt(answer)))
