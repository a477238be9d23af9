"""The score of an answer by each measure; whatever a model wrote, it is a finite number."""

import math
from typing import Any

import pytest

from tunery.measures.declaration import NAMES, parse_measures
from tunery.measures.scoring import BY_NAME, score_answer

ITEM = {"prompt": "Which lamp?", "reference": "The lamp in the hall."}
SAME = {
    "type": "string_check",
    "operation": "ilike",
    "input": "{{sample.output_text}}",
    "reference": "{{item.reference}}",
}
MULTI = {
    "type": "multi",
    "graders": {
        "same": SAME,
        "alike": {
            "type": "text_similarity",
            "evaluation_metric": "rouge_l",
            "input": "{{sample.output_text}}",
            "reference": "{{item.prompt}}",
        },
    },
    "calculate_output": "0.5 * same + 0.5 * alike",
}


def score(declaration: Any, answer: str) -> float:
    (measure,) = parse_measures([declaration])
    return score_answer(measure, ITEM, answer)


@pytest.mark.parametrize(
    ("declaration", "answer", "value"),
    [
        ("exact_match", " The lamp in the hall. ", 1),
        ("exact_match", "the lamp in the hall.", 0),
        ("accuracy", "THE LAMP in the hall", 1),
        ("accuracy", "the lamp", 0),
        ("token_f1", "lamp", 0.5),
        ("rouge_l", "lamp hall", 2 * 2 / 7),
        ("bleu", "The lamp in the hall.", 1),
        ("chrf", "The lamp in the hall.", 1),
        ("json_valid", '{"lamp": [1, 2.5, null]}', 1),
        ("json_valid", '{"lamp": 1} is it', 0),
        ("json_valid", "[" * 100_000, 0),
        ({"type": "regex", "pattern": "^The .*hall"}, "The lamp in the hall.", 1),
        ({"type": "regex", "pattern": "(?i)HALL$"}, "The hall.", 0),
        (SAME, "It is the lamp in the hall.", 1),
        (MULTI, "which lamp", 0.5),
    ],
)
def test_each_measure(declaration: Any, answer: str, value: float) -> None:
    assert score(declaration, answer) == pytest.approx(value)


@pytest.mark.parametrize("answer", ["", "\x00\ufffd", "a" * 100_000, "{{item.reference}}"])
def test_every_answer_has_a_finite_score(answer: str) -> None:
    for declaration in (*NAMES, {"type": "regex", "pattern": "a*b"}, SAME, MULTI):
        assert math.isfinite(score(declaration, answer))


def test_every_name_has_a_function() -> None:
    assert set(BY_NAME) == set(NAMES)
