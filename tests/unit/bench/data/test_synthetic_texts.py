"""Texts for measurements: the same everywhere, of the promised size and likeness."""

from collections.abc import Callable

import pytest

from bench.data.synthetic_texts import CHANGED_WORDS_MAX, TextGenerator

KINDS: dict[str, Callable[[TextGenerator, int], list[str]]] = {
    "short": TextGenerator.short,
    "templated": TextGenerator.templated,
    "one template": TextGenerator.one_template,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_rows_each_time(kind: str) -> None:
    rows = KINDS[kind]
    assert rows(TextGenerator(1), 30) == rows(TextGenerator(1), 30)
    assert rows(TextGenerator(1), 30) != rows(TextGenerator(2), 30)
    assert len(rows(TextGenerator(3), 30)) == 30
    assert rows(TextGenerator(3), 0) == []


@pytest.mark.parametrize("chars", [0, 1, 7, 200, 5_000])
def test_a_text_has_exactly_so_many_characters(chars: int) -> None:
    text = TextGenerator(5).text(chars)
    assert len(text) == chars
    assert text.isascii()


def test_a_variant_differs_in_a_few_words() -> None:
    generator = TextGenerator(7)
    text = generator.text(1_000)
    for _ in range(50):
        pairs = list(zip(text.split(" "), generator.variant(text).split(" "), strict=True))
        assert sum(before != after for before, after in pairs) <= CHANGED_WORDS_MAX


@pytest.mark.parametrize(("kind", "low", "high"), [("short", 195, 230), ("one template", 755, 790)])
def test_rows_have_the_promised_length(kind: str, low: int, high: int) -> None:
    lengths = [len(row) for row in KINDS[kind](TextGenerator(9), 300)]
    assert low - 20 <= min(lengths)
    assert max(lengths) <= high
    assert max(set(lengths), key=lengths.count) in range(low, high)


def test_rows_of_one_template_begin_alike_and_short_ones_do_not() -> None:
    templated = TextGenerator(11).one_template(50)
    beginnings = {row[:20] for row in templated}
    assert len(beginnings) < 10
    assert len({row[:20] for row in TextGenerator(11).short(50)}) > 45
