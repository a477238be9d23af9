"""Which shape a row has, told by its keys; and the one shape all become."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from tunery.data.findings import Note
from tunery.data.limits import COLUMNS_NAMED_MAX
from tunery.data.parsing import Object

Dialect: TypeAlias = Literal["chat", "sharegpt", "prompt_completion"]

# Formats other than ours, by a key only they have, so that the hint can say what was found.
FOREIGN: Final = {
    "preferred_output": "preference data (DPO); this method learns from single answers",
    "chosen": "preference data (DPO); this method learns from single answers",
    "instruction": "Alpaca; rename `instruction` to `prompt` and `output` to `completion`",
    "question": "questions; rename to `prompt` and `completion`",
    "text": "plain text; use `prompt` and `completion`",
    "role": "a single message; put the messages of a chat in one `messages` list",
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """A checked row. `messages`: role and content (and tool fields), as a chat template reads them.

    `trained[i]`: whether message i is learnt. `tools`: function tools, or None. `pair`: the prompt
    and completion it was made of, for a base model without a chat template.
    """

    messages: list[Object]
    trained: list[bool]
    tools: list[Any] | None = None
    pair: tuple[str, str] | None = None


def dialect_of(value: Object) -> Dialect | Note:
    """The dialect of one row, or why it has none."""
    chat, sharegpt = "messages" in value, "conversations" in value
    pair = "prompt" in value or "completion" in value
    match (chat, sharegpt, pair):
        case (True, False, False):
            return "chat"
        case (False, True, False):
            return "sharegpt"
        case (False, False, True) if "chosen" not in value:
            return "prompt_completion"
        case (False, False, _):
            found = next((what for key, what in FOREIGN.items() if key in value), None)
            return Note(
                "unknown_dialect", detail=f"it looks like {found}" if found else keys(value)
            )
        case _:
            return Note("mixed_formats", detail=keys(value))


def majority(values: Sequence[Object]) -> Dialect | None:
    """The dialect of most of the first rows; the earlier one where two are equal."""
    found = [dialect_of(value) for value in values]
    votes = Counter(dialect for dialect in found if not isinstance(dialect, Note))
    return max(votes, key=votes.__getitem__, default=None)


def keys(value: Object) -> str:
    """The keys of a row, for a message."""
    names = [repr(str(name)[:40]) for name in list(value)[:COLUMNS_NAMED_MAX]]
    more = ", …" if len(value) > COLUMNS_NAMED_MAX else ""
    return f"its keys are {', '.join(names)}{more}" if names else "it has no keys"
