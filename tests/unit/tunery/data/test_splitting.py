"""Equal rows stay together, the share is what was asked, the seed decides."""

from hypothesis import given
from hypothesis import strategies as st

from tunery.data.dialects import Conversation
from tunery.data.duplicates import Tally, fingerprint
from tunery.data.splitting import draw, threshold


def row(text: str) -> Conversation:
    return Conversation([{"role": "user", "content": text}], [False])


def split(texts: list[str], fraction_ppm: int, seed: int) -> set[int]:
    """Numbers of the rows that validate."""
    lots = [draw(fingerprint(row(text)), seed) for text in texts]
    tally = Tally()
    for lot in lots:
        tally.add(lot)
    below = threshold(tally, fraction_ppm)
    return {number for number, lot in enumerate(lots) if lot < below}


def test_normalised_text_is_what_counts() -> None:
    assert fingerprint(row("Hello  World")) == fingerprint(row("hello world\n"))
    assert fingerprint(row("\ufb01n")) == fingerprint(row("fin"))
    assert fingerprint(row("hello world")) != fingerprint(row("helloworld"))


def test_the_share_is_exact_without_duplicates() -> None:
    texts = [f"text {number}" for number in range(1000)]
    for fraction in (50_000, 100_000, 250_000):
        assert len(split(texts, fraction, 1)) == 1000 * fraction // 1_000_000
    assert split(texts, 100_000, 1) != split(texts, 100_000, 2)
    assert split(texts, 0, 1) == set()


def test_a_split_does_not_depend_on_the_order_of_rows() -> None:
    texts = [f"text {number}" for number in range(200)]
    chosen = {texts[number] for number in split(texts, 100_000, 5)}
    backwards = texts[::-1]
    assert {backwards[number] for number in split(backwards, 100_000, 5)} == chosen


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=40),
    st.integers(1, 999_999),
    st.integers(0, 2**32 - 1),
)
def test_equal_rows_never_part_and_both_sides_get_some(
    texts: list[str], fraction_ppm: int, seed: int
) -> None:
    chosen = split(texts, fraction_ppm, seed)
    validate = {texts[number] for number in chosen}
    train = {texts[number] for number in set(range(len(texts))) - chosen}
    assert not validate & train
    if len(set(texts)) > 1:
        assert validate
    if texts:
        assert train


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), max_size=60))
def test_the_tally_counts(numbers: list[int]) -> None:
    tally = Tally()
    for number in numbers:
        tally.add(number)
    assert list(tally.ascending()) == [(n, numbers.count(n)) for n in sorted(set(numbers))]
    assert (tally.total, tally.distinct()) == (len(numbers), len(set(numbers)))
