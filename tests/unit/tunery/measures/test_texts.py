"""Token F1, against values of SQuAD's program."""

import pytest

from tunery.measures.scoring import as_label, token_f1

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
