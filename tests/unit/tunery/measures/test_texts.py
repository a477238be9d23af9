"""Token F1 and chrF, against values of the programs that they are named after."""

import pytest

from tunery.measures.texts import as_label, chrf, token_f1

# f1_score of SQuAD's evaluate-v1.1.py, worked by hand from its normalisation
F1 = [
    ("The lamp is on.", "a lamp is on", 1.0),
    ("lamp", "the old lamp", 2 / 3),
    ("lamp lamp", "lamp", 2 / 3),
    ("", "lamp", 0.0),
    ("The", "a", 1.0),
    ("no", "yes", 0.0),
]
# CHRF().sentence_score of sacrebleu 2.6, divided by 100
CHRF = [
    ("The lamp is on.", "The lamp is on.", 1.0),
    ("The lamp in the hall is on.", "The lamp is on.", 0.66613246935476),
    ("lamp", "the old lamp", 0.32879188099541223),
    ("Ein Haus am See", "Das Haus am großen See", 0.30587441892720296),
    ("ab", "abc", 0.6363636363636362),
    ("", "lamp", 0.0),
    ("xyz", "lamp", 0.0),
]


@pytest.mark.parametrize(("text", "reference", "value"), F1)
def test_token_f1_is_that_of_squad(text: str, reference: str, value: float) -> None:
    assert token_f1(text, reference) == pytest.approx(value)


@pytest.mark.parametrize(("text", "reference", "value"), CHRF)
def test_chrf_is_that_of_sacrebleu(text: str, reference: str, value: float) -> None:
    assert chrf(text, reference) == pytest.approx(value, abs=1e-12)


def test_labels_are_compared_without_case_marks_and_white_space() -> None:
    assert as_label(' "Positive".\n') == as_label("positive") == "positive"
    assert as_label("not  sure") == "not sure"
    assert as_label("non-fiction") != as_label("nonfiction")
