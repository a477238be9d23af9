"""The score of one answer by a measure: mostly a share from 0 to 1, always finite."""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, assert_never

import msgspec

from tunery.graders.grader import Multi, ScoreModel, StringCheck, TextSimilarity
from tunery.graders.grading import grade
from tunery.graders.similarity import CHARACTERS_MAX, chrf, similarity
from tunery.measures.declaration import Measure, Pattern, matches

_ARTICLES: Final = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


def as_label(text: str) -> str:
    """A class as it is compared: in lower case, without punctuation and white space around it."""
    return " ".join(text.casefold().strip(string.punctuation + string.whitespace).split())


def token_f1(text: str, reference: str) -> float:
    """F1 of common words after SQuAD's normalisation (Rajpurkar et al., 2016).

    In lower case, without punctuation and without English articles. Two empty texts agree.
    """
    words, wanted = _squad_words(text), _squad_words(reference)
    if not words or not wanted:
        return float(words == wanted)
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted))


def _squad_words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


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
