"""Near duplicates: the index finds what a comparison of every pair finds."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.likeness.clusters import SIMILAR_PERCENT, ClusterFinder, Clusters
from tunery.data.likeness.minhash import sign

RANDOM = Random(5)
WORDS = ["".join(RANDOM.choices("abcdefghij", k=RANDOM.randint(2, 9))) for _ in range(800)]


def grams(text: str) -> set[str]:
    """Five-grams of a text, by definition."""
    return {text[i : i + 5] for i in range(len(text) - 4)} or {text}


def alike(left: str, right: str) -> bool:
    a, b = grams(left), grams(right)
    return 100 * len(a & b) >= SIMILAR_PERCENT * len(a | b)


@cache
def joined(texts: tuple[str, ...]) -> list[int]:
    """Return the first row of each row's cluster, by comparing every pair.

    A set is an integer with one bit for each gram: ten times as quick as sets of strings.
    """
    bits: dict[str, int] = {}
    sets = [sum(1 << bits.setdefault(gram, len(bits)) for gram in grams(text)) for text in texts]
    first, sizes = list(range(len(texts))), [grams_of.bit_count() for grams_of in sets]
    for a, b in combinations(range(len(texts)), 2):
        few, many = sorted((sizes[a], sizes[b]))
        if first[a] == first[b] or 100 * few < SIMILAR_PERCENT * many:  # too different in size
            continue
        shared = (sets[a] & sets[b]).bit_count()
        if 100 * shared >= SIMILAR_PERCENT * (sizes[a] + sizes[b] - shared):
            old, new = max(first[a], first[b]), min(first[a], first[b])
            first = [new if root == old else root for root in first]
    return first


def clusters(texts: Sequence[str], chunks: Sequence[int] = ()) -> Clusters:
    """Find clusters. chunks: row numbers at which the input is split."""
    edges = [0, *sorted(chunks), len(texts)]
    with ClusterFinder() as finder:
        for start, end in pairwise(edges):
            part = texts[start:end]
            finder.add(part, [hash(text) % 2**64 for text in part], sign(part))
        return finder.clusters()


def sentence(random: Random, chars: int) -> str:
    text = ""
    while len(text) < chars:
        text += random.choice(WORDS) + " "
    return text[:chars]


def changed(random: Random, text: str, words: int) -> str:
    parts = text.split(" ")
    for _ in range(words):
        parts[random.randrange(len(parts))] = random.choice(WORDS)
    return " ".join(parts)


def corpus(seed: int, rows: int) -> list[str]:
    """Templated rows, half of them variants of an earlier row, with up to four words changed."""
    random = Random(seed)
    templates = [sentence(random, random.randint(100, 400)) for _ in range(4)]
    texts: list[str] = []
    for _ in range(rows):
        if texts and random.random() < 0.5:
            texts.append(changed(random, random.choice(texts), random.randint(0, 4)))
        else:
            texts.append(f"{random.choice(templates)} {sentence(random, random.randint(20, 500))}")
    return texts


@pytest.mark.parametrize("seed", range(3))
def test_clusters_equal_those_of_comparing_all_pairs(seed: int) -> None:
    texts = corpus(seed, 300)
    expected, result = joined(tuple(texts)), clusters(texts).first.tolist()
    truth = {row for row, first in enumerate(expected) if row != first}
    removed = {row for row, first in enumerate(result) if row != first}
    assert len(truth) > 50
    assert removed <= truth
    assert len(removed) >= 0.99 * len(truth)


CORPUS = corpus(9, 60)


@cache
def whole() -> Clusters:
    return clusters(CORPUS)


@given(st.lists(st.integers(0, 60), max_size=6))
def test_chunks_do_not_change_the_result(edges: list[int]) -> None:
    assert clusters(CORPUS, edges).first.tolist() == whole().first.tolist()


@given(st.lists(st.text(alphabet="ab é\U0001f600", max_size=12), max_size=12))
def test_short_and_strange_texts(texts: list[str]) -> None:
    first = clusters(texts).first.tolist()
    assert all(alike(texts[row], texts[of]) or row != of for row, of in enumerate(first))
    assert all(
        first[a] == first[b] for a, b in combinations(range(len(texts)), 2) if texts[a] == texts[b]
    )
    assert all(first[of] == of <= row for row, of in enumerate(first))


def test_groups_are_listed_by_first_row() -> None:
    rows = ["a" * 9, "x y z", "a" * 9, "b", "x y z", "a" * 9]
    result = clusters(rows)
    assert result.groups(10) == [[0, 2, 5], [1, 4]]
    assert result.groups(1) == [[0, 2, 5]]
    assert result.repeats == 3


def test_no_rows_no_clusters() -> None:
    assert clusters([]).groups(5) == []
