"""Signatures estimate the likeness of texts; sets of grams give it exactly."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tunery.data.likeness.test_clusters import changed, grams, sentence
from tunery.data.likeness.minhash import (
    BANDS,
    BLOCK_CHARS,
    FILL,
    SLOTS,
    gram_sets,
    jaccard_at_least,
    sign,
)

TEXTS = st.text(st.characters(exclude_characters=FILL), max_size=40)


@given(TEXTS, TEXTS)
def test_likeness_is_that_of_the_sets_of_grams(left: str, right: str) -> None:
    a, b = gram_sets([left, right])
    assert len(a) == len(grams(left))
    for percent in (1, 50, 90, 100):
        union = len(grams(left) | grams(right))
        wanted = 100 * len(grams(left) & grams(right)) >= percent * union
        assert jaccard_at_least(a, b, percent) == wanted


def test_equal_slots_estimate_the_likeness() -> None:
    random = Random(3)
    errors = []
    for _ in range(200):
        text = sentence(random, 600)
        other = changed(random, text, random.randint(0, 20))
        signatures = sign([text, other])
        equal = float((signatures.slots[0] == signatures.slots[1]).mean())
        union = len(grams(text) | grams(other))
        errors.append(equal - len(grams(text) & grams(other)) / union)
    # the standard error of 128 draws at likeness 1/2 is 0.044; of the mean of 200, 0.003
    assert abs(float(np.mean(errors))) < 0.015
    assert float(np.sqrt(np.mean(np.square(errors)))) < 0.5 / SLOTS**0.5 * 1.5


def test_a_signature_does_not_depend_on_the_other_texts() -> None:
    texts = ["", "abc", "\U0001f600" * 7, "y" * (BLOCK_CHARS + 1), "the last text of all"]
    together = sign(texts)
    for row, text in enumerate(texts):
        alone = sign([text])
        assert np.array_equal(together.bands[row], alone.bands[0])
        assert np.array_equal(together.slots[row], alone.slots[0])


def test_no_texts_have_signatures_of_the_usual_shape() -> None:
    signatures = sign([])
    assert (signatures.bands.shape, signatures.slots.shape) == ((0, BANDS), (0, SLOTS))
    assert gram_sets([]) == []


@pytest.mark.parametrize(("percent", "expected"), [(50, True), (51, False), (1, True)])
def test_likeness_at_exactly_the_limit_counts(percent: int, expected: bool) -> None:
    left, right = np.array([1, 2, 3], np.uint64), np.array([2, 3, 4], np.uint64)
    assert jaccard_at_least(left, right, percent) is expected


def test_repeated_grams_count_once() -> None:
    (repeated,), (single,) = gram_sets(["aaaaaaaaaa"]), gram_sets(["aaaaa"])
    assert repeated.tolist() == single.tolist()
