"""The score of one answer by a measure: mostly a share from 0 to 1, always finite."""

from collections.abc import Callable, Mapping
from typing import Final, assert_never

import msgspec

from tunery.graders.grader import Multi, ScoreModel, StringCheck, TextSimilarity
from tunery.graders.grading import grade
from tunery.graders.similarity import CHARACTERS_MAX, chrf, similarity
from tunery.measures.declaration import Measure, Pattern, matches
from tunery.measures.texts import as_label, token_f1


def score_answer(measure: Measure, item: Mapping[str, str], answer: str) -> float:
    """Score an answer.

    item: the row: its `reference`, and all other fields that a grader may read
    """
    text, reference = answer[:CHARACTERS_MAX], item["reference"][:CHARACTERS_MAX]
    match measure.rule:
        case None:
            return BY_NAME[measure.kind](text, reference)
        case Pattern(pattern):
            return float(matches(pattern, text))
        case StringCheck() | TextSimilarity() | Multi() as grader:
            return grade(grader, item, answer).reward
        case ScoreModel():
            return 0.0  # refused where measures are read
        case _:
            assert_never(measure.rule)


def is_json(text: str) -> bool:
    """Return whether a text is one JSON value and nothing else."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _alike(name: str) -> Callable[[str, str], float]:
    return lambda text, reference: similarity(name, text, reference)


BY_NAME: Final[Mapping[str, Callable[[str, str], float]]] = {
    "exact_match": lambda text, reference: float(text.strip() == reference.strip()),
    "accuracy": lambda text, reference: float(as_label(text) == as_label(reference)),
    "token_f1": token_f1,
    "chrf": chrf,
    "json_valid": lambda text, _: float(is_json(text)),
    **{name: _alike(name) for name in ("bleu", "rouge_1", "rouge_2", "rouge_l")},
}
