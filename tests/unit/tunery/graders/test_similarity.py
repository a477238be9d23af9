"""Measures of similarity, against values of the libraries that they are named after."""

import time

import pytest
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a, TokenizerRegexp

from tunery.graders.similarity import CHARACTERS_MAX, MEASURES, chrf, similarity

# fuzz.ratio of RapidFuzz 3.14, BLEU(effective_order=True) of sacrebleu 2.6, sentence_gleu of NLTK
# 3.10, F-measures of rouge-score 0.1.2. 20,000 random pairs gave the same to 1e-15.
NAMES = ("fuzzy_match", "bleu", "gleu", "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5")
OF_LIBRARIES = [
    ("The lamp is on.", "The lamp is on.", (1, 1, 1, 1, 1, 1, 1, 0), 1),
    (
        "The lamp in the hall is on.",
        "the lamp is on, in the hall",
        (0.703704, 0.270541, 0.363636, 1, 0.666667, 0.2, 0, 0),
        0.714286,
    ),
    (
        "It costs $3,400.50 - or so; don't ask!",
        "It costs $3,400 or so. Do ask",
        (0.80597, 0.183603, 0.153846, 0.777778, 0.5, 0.285714, 0.166667, 0),
        0.777778,
    ),
    ("no", "yes", (0, 0, 0, 0, 0, 0, 0, 0), 0),
    ("a b c d e f g", "a c e g b d f", (0.538462, 0.106822, 0.318182, 1, 0, 0, 0, 0), 0.571429),
    (
        "one two three four five six",
        "one two three four five",
        (0.92, 0.759836, 0.777778, 0.909091, 0.888889, 0.857143, 0.8, 0.666667),
        0.909091,
    ),
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


@pytest.mark.parametrize(("text", "reference", "values", "rouge_l"), OF_LIBRARIES)
def test_measures_are_those_of_the_libraries(
    text: str, reference: str, values: tuple[float, ...], rouge_l: float
) -> None:
    wanted = {**dict(zip(NAMES, values, strict=True)), "rouge_l": rouge_l}
    assert {name: round(MEASURES[name](text, reference), 6) for name in wanted} == wanted


@pytest.mark.parametrize(("text", "reference", "value"), CHRF)
def test_chrf_is_that_of_sacrebleu(text: str, reference: str, value: float) -> None:
    assert chrf(text, reference) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_empty_texts_have_a_value(name: str) -> None:
    assert MEASURES[name]("", "words") == 0
    assert MEASURES[name]("", "") == (1 if name == "fuzzy_match" else 0)


def test_words_of_every_script_are_compared() -> None:
    assert similarity("rouge_1", "Это лампа", "это лампа") == 1


def test_texts_of_tenants_are_not_kept() -> None:
    similarity("bleu", "The lamp is on.", "the lamp")
    for tokenizer in (Tokenizer13a, TokenizerRegexp):
        assert tokenizer.__call__.cache_info().currsize == 0


def test_equal_texts_have_1() -> None:
    assert {similarity("bleu", text, text) for text in ("a", "a b", "a b c d e f g h i")} == {1}


@pytest.mark.parametrize("name", MEASURES)
def test_long_texts_take_a_bounded_time(name: str) -> None:
    text, reference = "ab " * CHARACTERS_MAX, "ba " * CHARACTERS_MAX
    began = time.process_time()
    similarity(name, text, reference)
    assert time.process_time() - began < 2  # about 0.03 s on an idle core
