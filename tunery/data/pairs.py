"""The rules of a prompt / completion row. It is learnt as a chat of one turn."""

from tunery.data.dialects import Conversation
from tunery.data.findings import Note, excerpt
from tunery.data.parsing import Object, kind
from tunery.data.texts import check_text


def check_pair(value: Object, notes: list[Note]) -> Conversation | None:
    """The one-turn conversation of a row; None when an error was noted."""
    prompt = _text(value, "prompt", notes)
    completion = _text(value, "completion", notes)
    if prompt is None or completion is None:
        return None
    if prompt.strip() == completion.strip():
        notes.append(Note("output_equals_input", "/completion", excerpt=excerpt(completion)))
    messages = [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": completion},
    ]
    return Conversation(messages, [False, True], pair=(prompt, completion))


def _text(value: Object, key: str, notes: list[Note]) -> str | None:
    at = f"/{key}"
    if key not in value:
        notes.append(Note("missing_prompt" if key == "prompt" else "missing_completion", at))
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
