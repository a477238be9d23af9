"""The methods that a job may train with, and the rows that each learns from."""

from collections.abc import Mapping
from typing import Final

from schemas.dataset import RowKind
from schemas.training import LossType, MethodName

# In the order in which a refusal names them.
ROWS_OF_METHOD: Final[Mapping[MethodName, RowKind]] = {
    "supervised": "answers",
    "dpo": "pairs",
    "simpo": "pairs",
    "orpo": "pairs",
    "cpo": "pairs",
    "kto": "labels",
    "reward": "pairs",
    "reinforcement": "prompts",
}
REWARD: Final[MethodName] = "reward"  # what it trains gives a number, and writes nothing
# Those that compare with the model as it was before training.
NEED_REFERENCE: Final[frozenset[MethodName]] = frozenset(("dpo", "kto"))
# Losses of `dpo` that take some of the pairs to be the wrong way round.
SMOOTHED: Final[tuple[LossType, ...]] = ("sigmoid", "robust", "exo_pair")
# Every other dialect has answers.
ROWS_OF_DIALECT: Final[Mapping[str, RowKind]] = {
    "dpo": "pairs",
    "kto": "labels",
    "prompts": "prompts",
}
ROW_WORDS: Final[Mapping[RowKind, str]] = {
    "answers": "chats, prompts with completions, or plain text",
    "pairs": "a preferred and another answer to one prompt",
    "labels": "an answer with the label true or false",
    "prompts": "a prompt that ends with the user's message, with fields for a grader",
}


def rows_of_dialect(dialect: str) -> RowKind:
    """Return the kind of rows in a file of this dialect."""
    return ROWS_OF_DIALECT.get(dialect, "answers")


def can_learn(wanted: RowKind, rows: RowKind) -> bool:
    """Return whether a method for `wanted` rows accepts `rows`: a pair is two answers with
    labels.
    """
    return wanted == rows or (wanted, rows) == ("labels", "pairs")


def methods_of_rows(rows: RowKind) -> tuple[MethodName, ...]:
    """The methods that learn from such rows."""
    return tuple(method for method, kind in ROWS_OF_METHOD.items() if can_learn(kind, rows))
