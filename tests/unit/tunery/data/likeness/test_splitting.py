"""Like rows stay together, the share is what was asked, the seed decides."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.dialects.conversation import Conversation
from tunery.data.likeness.duplicates import DuplicateFinder, fingerprint
from tunery.data.likeness.splitting import LEFT_OUT, VALIDATE, AnswerClasses, SplitSides, split


def row(text: str, answer: str = "") -> Conversation:
    said = [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
    return Conversation(said, [False, True])


def sides(
    rows: Sequence[Conversation], fraction_ppm: int, seed: int, unused: int = 0
) -> SplitSides:
    classes = AnswerClasses()
    with DuplicateFinder() as finder:
        for each in rows:
            finder.add(each)
            classes.add(each)
        used = np.arange(len(rows)) >= unused
        return split(finder.clusters(), used, classes.rows(), fraction_ppm, seed)


def chosen(texts: Sequence[str], fraction_ppm: int, seed: int) -> set[int]:
    """Numbers of the rows that validate."""
    long = "an answer that is no name of a class because it is far too long"
    assigned = sides([row(text, long) for text in texts], fraction_ppm, seed)
    return set(np.flatnonzero(assigned == VALIDATE).tolist())


def test_normalised_text_is_what_counts() -> None:
    assert fingerprint(row("Hello  World")) == fingerprint(row("hello world\n"))
    assert fingerprint(row("\ufb01n")) == fingerprint(row("fin"))
    assert fingerprint(row("hello world")) != fingerprint(row("helloworld"))


TEXTS = [sha256(str(number).encode()).hexdigest() for number in range(1000)]


def test_the_share_is_exact_without_duplicates() -> None:
    for fraction in (50_000, 100_000, 250_000):
        assert len(chosen(TEXTS, fraction, 1)) == 1000 * fraction // 1_000_000
    assert chosen(TEXTS, 100_000, 1) != chosen(TEXTS, 100_000, 2)
    assert chosen(TEXTS, 0, 1) == set()


def test_a_split_does_not_depend_on_the_order_of_rows() -> None:
    validating = {TEXTS[number] for number in chosen(TEXTS, 100_000, 5)}
    backwards = TEXTS[::-1]
    assert {backwards[number] for number in chosen(backwards, 100_000, 5)} == validating


STORIES = {
    letter: "".join(sha256(f"{letter}{part}".encode()).hexdigest() for part in range(3))
    for letter in "abcdefgh"
}


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=40),
    st.integers(1, 999_999),
    st.integers(0, 2**32 - 1),
)
def test_similar_rows_stay_together_and_both_sides_get_rows(
    letters: list[str], fraction_ppm: int, seed: int
) -> None:
    texts = [f"{STORIES[letter]}{number % 3}" for number, letter in enumerate(letters)]
    validating = chosen(texts, fraction_ppm, seed)
    validate = {letters[number] for number in validating}
    train = {letters[number] for number in set(range(len(letters))) - validating}
    assert not validate & train
    if len(set(letters)) > 1:
        assert validate
    if letters:
        assert train


def test_every_class_has_its_share() -> None:
    rows = [
        row(sha256(str(n).encode()).hexdigest(), "yes" if n % 10 else "No") for n in range(1000)
    ]
    assigned = sides(rows, 100_000, 3)
    validate = np.flatnonzero(assigned == VALIDATE)
    assert len(validate) == 100
    assert sum(number % 10 == 0 for number in validate) == 10


@pytest.mark.parametrize(
    "answers",
    [
        ["an answer that is longer than the names of classes are, by far"],
        [str(n) for n in range(60)],
    ],
)
def test_free_text_answers_are_not_classes(answers: list[str]) -> None:
    classes = AnswerClasses()
    for number in range(1000):
        classes.add(row("?", answers[number % len(answers)]))
    assert classes.rows() is None


def test_unused_rows_are_left_out_and_do_not_count() -> None:
    rows = [row(text, "x" * 50) for text in TEXTS]
    assigned = sides(rows, 100_000, 3, unused=500)
    assert (assigned[:500] == LEFT_OUT).all()
    assert abs(int((assigned == VALIDATE).sum()) - 50) <= 1
