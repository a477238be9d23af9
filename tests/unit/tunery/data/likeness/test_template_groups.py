"""Rows of one template: the join by differences finds what comparing every pair finds."""

from collections.abc import Sequence
from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tunery.data.likeness.test_clusters import clusters, joined, sentence
from tunery.data.likeness import template_groups
from tunery.data.likeness.clusters import GROUP_ROWS_MIN
from tunery.data.likeness.minhash import U64, jaccard_at_least
from tunery.data.likeness.template_groups import TemplateGroup, join_similar, template_of
from tunery.data.likeness.union_find import UnionFind

SETS = st.lists(st.frozensets(st.integers(0, 40), min_size=1), min_size=1, max_size=20)


def sorted_set(grams: frozenset[int]) -> U64:
    return np.array(sorted(grams), np.uint64)


def join(sets: Sequence[U64], template: U64, percent: int) -> tuple[list[int], list[list[int]]]:
    """The first row of each row's tree, and the groups."""
    forest = UnionFind(len(sets))
    sizes = np.array([len(grams) for grams in sets])
    differences = [np.setxor1d(grams, template) for grams in sets]
    groups = join_similar(TemplateGroup(np.arange(len(sets)), sizes, differences), percent, forest)
    return forest.roots(np.arange(len(sets))).tolist(), [group.tolist() for group in groups]


@given(SETS, st.frozensets(st.integers(0, 40)), st.sampled_from((50, 80, 90, 100)))
def test_any_template_gives_all_similar_pairs(
    sets: list[frozenset[int]], template: frozenset[int], percent: int
) -> None:
    rows = [sorted_set(grams) for grams in sets]
    wanted = UnionFind(len(rows))
    for a, b in combinations(range(len(rows)), 2):
        if jaccard_at_least(rows[a], rows[b], percent):
            wanted.join(a, b)
    result, groups = join(rows, sorted_set(template), percent)
    assert result == wanted.roots(np.arange(len(rows))).tolist()
    assert groups == [list(range(len(rows)))]


def test_a_template_group_that_takes_too_long_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given equal sets at both ends, when the group is halved, then the halves are disjoint."""
    rows = [sorted_set(frozenset({1, 2, at % 2 + 3})) for at in range(4)]
    monkeypatch.setattr(template_groups, "READ_MAX", 0)
    result, groups = join(rows, sorted_set(frozenset()), 90)
    assert (result, groups) == ([0, 1, 2, 3], [[0], [1], [2], [3]])
    monkeypatch.undo()
    assert join(rows, sorted_set(frozenset()), 90)[0] == [0, 1, 0, 1]


def test_the_template_has_the_grams_of_most_sets() -> None:
    sample = [sorted_set(frozenset(grams)) for grams in ({1, 2, 3}, {2, 3, 4}, {3, 9})]
    assert template_of(sample).tolist() == [2, 3]


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6, unique=True), max_size=8))
def test_joining_groups_equals_joining_pairs(groups: list[list[int]]) -> None:
    """Groups of one call have no row in common, so each is a call's only one here."""
    wanted, result = UnionFind(31), UnionFind(31)
    for group in groups:
        for a, b in pairwise(group):
            wanted.join(a, b)
        result.join_groups(np.array(group), np.array([0]))
    rows = np.arange(31)
    assert result.roots(rows).tolist() == wanted.roots(rows).tolist()


def test_groups_that_share_an_earlier_set_are_united() -> None:
    forest = UnionFind(8)
    forest.join(1, 6)
    forest.join(3, 7)
    forest.join_groups(np.array([0, 6, 2, 7, 1, 3]), np.array([0, 2, 4]))
    assert forest.roots(np.arange(8)).tolist() == [0, 0, 0, 0, 4, 5, 0, 0]


def one_template(fill_chars: int) -> list[str]:
    random = Random(8)
    template = sentence(random, 500)
    texts = [f"{template} {sentence(random, fill_chars)}" for _ in range(2 * GROUP_ROWS_MIN)]
    return texts + [f"{text[:-4]}zzz" for text in texts[::5]]


@pytest.mark.parametrize("fill_chars", [25, 60])
def test_rows_of_one_template_are_joined_exactly(fill_chars: int) -> None:
    """Given rows that all share most of their text, some more, then exactly those are removed."""
    texts = one_template(fill_chars)
    wanted = joined(tuple(texts))
    assert len(set(wanted)) < len(texts)
    assert clusters(texts).first.tolist() == wanted


@pytest.mark.long
def test_parts_of_a_large_template_group_are_compared_as_other_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given a group that is joined row by row, then other rows of its buckets are compared too."""
    texts = one_template(60)
    wanted, alone = joined(tuple(texts)), list(range(len(texts)))
    monkeypatch.setattr("tunery.data.likeness.clusters.GROUP_GRAMS_MAX", 1)
    result = clusters(texts).first.tolist()
    assert result != alone
    assert all(wanted[first] == wanted[row] for row, first in enumerate(result))
