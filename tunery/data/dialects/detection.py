"""Recognises the dialect of a row by its keys."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from tunery.data.dialects.parsing import Object
from tunery.data.dialects.prompts import is_prompt
from tunery.data.findings.finding import Note
from tunery.data.findings.limits import COLUMNS_NAMED_MAX

Dialect: TypeAlias = Literal[
    "chat", "sharegpt", "prompt_completion", "alpaca", "text", "dpo", "kto", "prompts"
]

USED_KEYS: Final[dict[Dialect, frozenset[str]]] = {
    "chat": frozenset(("messages", "system", "tools", "functions", "parallel_tool_calls")),
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
    "prompts": frozenset(),  # a grader may read any
}
# Keys that only rows of one dialect have. `text` is not one: Alpaca keeps the rendered row there.
DISTINCTIVE_KEYS: Final[dict[Dialect, frozenset[str]]] = {
    "chat": frozenset(("messages",)),
    "sharegpt": frozenset(("conversations",)),
    "prompt_completion": frozenset(("prompt", "completion")),
    "alpaca": frozenset(("instruction",)),
}
PREFERENCE_KEYS: Final = frozenset(
    ("chosen", "rejected", "preferred_output", "non_preferred_output")
)
LABEL_KEYS: Final = frozenset(("label", "kto_tag"))
KTO_KEYS: Final = frozenset(("prompt", "completion", "messages", "conversations"))
# The finding for a row without any of the keys above, by the dialect of the file.
MISSING_CODES: Final[dict[Dialect, str]] = {
    "chat": "missing_messages",
    "sharegpt": "missing_messages",
    "prompt_completion": "missing_prompt",
    "alpaca": "missing_instruction",
    "text": "missing_text",
    "dpo": "missing_chosen",
    "kto": "missing_prompt",
    "prompts": "missing_messages",
}
# Other formats by a key that only they have, so that the message can name the format.
OTHER_FORMATS: Final = {
    "question": "questions; rename to `prompt` and `completion`",
    "role": "a single message; put the messages of a chat in one `messages` list",
    "body": "a batch request; keep its `messages` and add the wanted answer",
}


def dialect_of(value: Object, expected: Dialect | None = None) -> Dialect | Note:
    """Recognise the dialect of one row. Returns a `Note` when it has none, or keys of several.

    `expected` is the dialect of the rows before it. A row that matches several dialects is taken
    to have the expected one, so that the message can name what is missing.
    """
    matches = [
        dialect for dialect, signs in DISTINCTIVE_KEYS.items() if not signs.isdisjoint(value)
    ]
    if not PREFERENCE_KEYS.isdisjoint(value):
        return "dpo"
    if (
        expected == "dpo"
        and not {"prompt", "input"}.isdisjoint(value)
        and "completion" not in value
    ):
        return "dpo" if matches in ([], ["prompt_completion"]) else _only_dialect(matches, value)
    if len(matches) < 2 and not KTO_KEYS.isdisjoint(value) and _is_labelled(value, expected):
        return "kto"
    if matches == ["chat"] and (expected == "prompts" or (expected is None and is_prompt(value))):
        return "prompts"
    if "text" in value and (
        not matches or matches in (["chat"], ["sharegpt"], ["prompt_completion"])
    ):
        matches.append("text")
    return _only_dialect(matches, value)


def majority_dialect(values: Sequence[Object]) -> Dialect | None:
    """The dialect that most of the rows have; of equally frequent dialects, the earlier one."""
    dialects = [dialect_of(value) for value in values]
    votes = Counter(dialect for dialect in dialects if not isinstance(dialect, Note))
    return max(votes, key=votes.__getitem__, default=None)


def describe_keys(value: Object) -> str:
    """The keys of a row as a phrase for a message."""
    names = [repr(str(name)[:40]) for name in list(value)[:COLUMNS_NAMED_MAX]]
    more = ", …" if len(value) > COLUMNS_NAMED_MAX else ""
    return f"its keys are {', '.join(names)}{more}" if names else "it has no keys"


def _only_dialect(matches: list[Dialect], value: Object) -> Dialect | Note:
    """The only match, or the finding about a row without a match or with several."""
    match matches:
        case [dialect]:
            return dialect
        case []:
            other = next((text for key, text in OTHER_FORMATS.items() if key in value), None)
            detail = f"it looks like {other}" if other else describe_keys(value)
            return Note("unknown_dialect", detail=detail)
        case _:
            return Note("mixed_formats", detail=describe_keys(value))


def _is_labelled(value: Object, expected: Dialect | None) -> bool:
    """True if the label marks an answer as wanted or unwanted, rather than naming a class."""
    if expected == "kto":
        return True
    labels = LABEL_KEYS & value.keys()
    only = value.keys() <= {"prompt", "completion", *LABEL_KEYS}
    return any(isinstance(value[key], bool) for key in labels) or (bool(labels) and only)
