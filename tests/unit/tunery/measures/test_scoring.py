"""The score of an answer by each measure; whatever a model wrote, it is a finite number."""

import math
from typing import Any

import pytest

from tunery.measures.declaration import NAMES, parse_measures
from tunery.measures.scoring import BY_NAME, as_label, score_answer, token_f1

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


# f1_score of SQuAD's evaluate-v1.1.py, worked by hand from its normalisation
F1 = [
    ("The lamp is on.", "a lamp is on", 1.0),
    ("lamp", "the old lamp", 2 / 3),
    ("lamp lamp", "lamp", 2 / 3),
    ("", "lamp", 0.0),
    ("The", "a", 1.0),
    ("no", "yes", 0.0),
]


@pytest.mark.parametrize(("text", "reference", "value"), F1)
def test_token_f1_is_that_of_squad(text: str, reference: str, value: float) -> None:
    assert token_f1(text, reference) == pytest.approx(value)


def test_labels_are_compared_without_case_marks_and_white_space() -> None:
    assert as_label(' "Positive".\n') == as_label("positive") == "positive"
    assert as_label("not  sure") == "not sure"
    assert as_label("non-fiction") != as_label("nonfiction")
