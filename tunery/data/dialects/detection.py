"""Which shape a row has, told by its keys; and the one shape all become."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from tunery.data.dialects.parsing import Object
from tunery.data.findings.finding import Note
from tunery.data.findings.limits import COLUMNS_NAMED_MAX

Dialect: TypeAlias = Literal[
    "chat", "sharegpt", "prompt_completion", "alpaca", "text", "dpo", "kto"
]

# What learning there is code for; rows of the others can be checked only.
TRAINABLE: Final[frozenset[Dialect]] = frozenset(
    ("chat", "sharegpt", "prompt_completion", "alpaca", "text")
)
USED: Final[dict[Dialect, frozenset[str]]] = {
    "chat": frozenset(("messages", "system", "tools", "parallel_tool_calls")),
    "sharegpt": frozenset(("conversations", "system", "tools")),
    "prompt_completion": frozenset(("prompt", "completion", "response")),
    "alpaca": frozenset(("instruction", "input", "output", "response", "system", "history")),
    "text": frozenset(("text",)),
    "dpo": frozenset(
        (
            *("input", "preferred_output", "non_preferred_output", "prompt", "chosen", "rejected"),
            *("conversations", "messages", "instruction", "system", "tools"),
        )
    ),
    "kto": frozenset(
        ("label", "kto_tag", "prompt", "completion", "messages", "conversations", "tools")
    ),
}
# Keys that only rows of one dialect have. `text` is none: Alpaca keeps the rendered row there.
SIGNS: Final[dict[Dialect, frozenset[str]]] = {
    "chat": frozenset(("messages",)),
    "sharegpt": frozenset(("conversations",)),
    "prompt_completion": frozenset(("prompt", "completion")),
    "alpaca": frozenset(("instruction",)),
}
SIDES: Final = frozenset(("chosen", "rejected", "preferred_output", "non_preferred_output"))
LABELS: Final = frozenset(("label", "kto_tag"))
LABELLED: Final = frozenset(("prompt", "completion", "messages", "conversations"))
# What a row without any sign lacks most, in the words of the file's dialect.
MISSING: Final[dict[Dialect, str]] = {
    "chat": "missing_messages",
    "sharegpt": "missing_messages",
    "prompt_completion": "missing_prompt",
    "alpaca": "missing_instruction",
    "text": "missing_text",
    "dpo": "missing_chosen",
    "kto": "missing_prompt",
}
# Formats that are not ours, by a key only they have, so that the hint can say what was found.
FOREIGN: Final = {
    "question": "questions; rename to `prompt` and `completion`",
    "role": "a single message; put the messages of a chat in one `messages` list",
    "body": "a batch request; keep its `messages` and add the wanted answer",
}


class Conversation(Struct, frozen=True):
    """A checked row. `messages`: role and content (and tool fields), as a chat template reads them.

    `trained[i]`: whether message i is learnt. `tools`: function tools, or None. `pair`: the prompt
    and completion it was made of, for a base model without a chat template; with `plain` they are
    the text even where there is a template (continued pre-training). `rejected`: the messages of
    the answer that lost (DPO). `label`: whether the answer is wanted (KTO).
    """

    messages: list[Object]
    trained: list[bool]
    tools: list[Any] | None = None
    pair: tuple[str, str] | None = None
    plain: bool = False
    rejected: list[Object] | None = None
    label: bool | None = None

    def lost(self) -> "Conversation | None":
        """The conversation that ends with the rejected answer."""
        if self.rejected is None:
            return None
        trained = [False] * (len(self.rejected) - 1) + [True]
        return Conversation(self.rejected, trained, self.tools)


def dialect_of(value: Object, expected: Dialect | None = None) -> Dialect | Note:
    """The dialect of one row, or why it has none. `expected`: that of the rows before it.

    A row that could be of several is of the expected one: with it, what is missing can be named.
    """
    found = [dialect for dialect, signs in SIGNS.items() if not signs.isdisjoint(value)]
    if not SIDES.isdisjoint(value):
        return "dpo"
    if (
        expected == "dpo"
        and not {"prompt", "input"}.isdisjoint(value)
        and "completion" not in value
    ):
        return "dpo" if found in ([], ["prompt_completion"]) else _one(found, value)
    if len(found) < 2 and not LABELLED.isdisjoint(value) and _is_labelled(value, expected):
        return "kto"
    if "text" in value and (not found or found in (["chat"], ["sharegpt"], ["prompt_completion"])):
        found.append("text")
    return _one(found, value)


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


def _one(found: list[Dialect], value: Object) -> Dialect | Note:
    match found:
        case [dialect]:
            return dialect
        case []:
            what = next((text for key, text in FOREIGN.items() if key in value), None)
            return Note("unknown_dialect", detail=f"it looks like {what}" if what else keys(value))
        case _:
            return Note("mixed_formats", detail=keys(value))


def _is_labelled(value: Object, expected: Dialect | None) -> bool:
    """Whether a label says if an answer is wanted, not what class something is of."""
    if expected == "kto":
        return True
    labels = LABELS & value.keys()
    only = value.keys() <= {"prompt", "completion", *LABELS}
    return any(isinstance(value[key], bool) for key in labels) or (bool(labels) and only)
