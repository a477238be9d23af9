"""Words of texts in any script, and the hashes of their runs."""

import unicodedata
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.screening.word_ngrams import ASSIGNED, BLOCK_CHARS, blocks, words

RANDOM = Random(4)


def sentence(count: int) -> str:
    return " ".join("".join(RANDOM.choices("abcdefghijkl", k=6)) for _ in range(count))


@given(st.lists(st.text(max_size=30), max_size=8), st.integers(1, 9))
def test_runs_do_not_cross_from_one_text_to_the_next(texts: list[str], n: int) -> None:
    together = words(texts)
    runs, _ = together.runs(n)
    apart = [run for text in texts for run in words([text]).runs(n)[0].tolist()]
    assert runs.tolist() == apart


@given(st.text(max_size=60))
def test_words_are_runs_of_letters_digits_and_marks(text: str) -> None:
    normal = unicodedata.normalize("NFKC", text).lower()
    letters = "".join(c if unicodedata.category(c)[0] in "LNM" else " " for c in normal)
    if not any(ord(c) > 0xE00 for c in normal):  # scripts with spaces
        assert words([text]).count.tolist() == [len(letters.split())]


def test_equal_runs_have_equal_numbers_at_any_place() -> None:
    run = sentence(13)
    first = words([run]).runs(13)[0][0]
    assert first in words([f"{sentence(7)}, {run}", sentence(5)]).runs(13)[0]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("... !", 0),
        ("Don't", 2),
        ("naïve café", 2),
        ("\u4f60\u597d a", 3),
        ("a\u0301b", 1),
    ],
)
def test_words_are_counted_in_every_script(text: str, count: int) -> None:
    assert words([text]).count.tolist() == [count]


def test_case_and_compatible_forms_of_characters_are_equal() -> None:
    plain, wide = words(["abc 1"]), words(["\uff21BC \uff11"])
    assert np.array_equal(plain.runs(2)[0], wide.runs(2)[0])


def test_the_order_of_words_changes_the_hash_of_a_run() -> None:
    (there,), (back,) = words(["red blue"]).runs(2)[0], words(["blue red"]).runs(2)[0]
    assert there != back


def test_texts_with_fewer_words_than_a_run_have_no_run() -> None:
    hashes, begins = words(["a b", "c d"]).runs(3)
    assert (len(hashes), len(begins)) == (0, 0)


def test_blocks_give_each_text_once_with_the_number_of_the_first() -> None:
    texts = ["x" * BLOCK_CHARS, "a", "y" * BLOCK_CHARS, "", "b"]
    assert list(blocks(texts)) == [(0, texts[:1]), (1, texts[1:3]), (3, texts[3:])]
    assert list(blocks([])) == []


@pytest.mark.long
def test_planes_that_are_passed_over_have_no_letter() -> None:
    inside = {point for start, end in ASSIGNED for point in range(start, end)}
    outside = (chr(point) for point in range(0x110000) if point not in inside)
    assert {unicodedata.category(character)[0] for character in outside} == {"C"}
