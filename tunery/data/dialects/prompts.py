"""The rules of prompts: a model answers them, and a grader reads the fields beside them."""

from typing import Final

from msgspec.structs import replace

from tunery.data.dialects import chat
from tunery.data.dialects.chat import Turns
from tunery.data.dialects.conversation import Conversation
from tunery.data.dialects.parsing import Object
from tunery.data.dialects.tools import check_row
from tunery.data.findings.finding import Note

MESSAGES: Final = "messages"
NO_ITEM: Final = frozenset((MESSAGES, "tools", "functions", "parallel_tool_calls"))
# Stands where the answer will be, so that templates write what comes before one; it is cut off.
STAND_IN: Final = "."


def is_prompt(value: Object) -> bool:
    """True if a row is a prompt with fields for a grader."""
    messages = value.get(MESSAGES)
    last = messages[-1] if isinstance(messages, list) and messages else None
    asks = isinstance(last, dict) and last.get("role") == "user"
    return asks and bool(value.keys() - NO_ITEM)


def check_prompt(value: Object, notes: list[Note]) -> Conversation | None:
    """Check a prompt and the fields beside it; None when an error was noted."""
    before = len(notes)
    turns = chat.read_turns(value.get(MESSAGES), f"/{MESSAGES}", chat.CHAT, notes)
    definitions = check_row(value, notes)
    if turns is None:
        return None
    item = {name: field for name, field in value.items() if name not in NO_ITEM}
    if not item:
        notes.append(Note("missing_item", "/"))
    if turns.messages[-1]["role"] == "assistant":
        notes.append(Note("prompt_has_answer", turns.pointers[-1]))
        return None
    answer: Object = {"role": "assistant", "content": STAND_IN}
    whole = turns + Turns([answer], [f"/{MESSAGES}"])
    chat.check_turns(whole, f"/{MESSAGES}", "role", definitions.names, notes)
    if any(note.is_error for note in notes[before:]):
        return None
    conversation = chat.build_conversation(whole.messages, definitions.tools)
    only_last = [False] * len(turns.messages) + [True]
    return replace(conversation, trained=only_last, item=item)
