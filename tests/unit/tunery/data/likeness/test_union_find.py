"""Disjoint sets of rows: the smallest row of each set represents it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.likeness.union_find import UnionFind

ROWS = 12
PAIRS = st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, ROWS - 1)), max_size=20)


def roots(sets: UnionFind) -> list[int]:
    result: list[int] = sets.roots(np.arange(len(sets.parent))).tolist()
    return result


def naive_roots(pairs: list[tuple[int, int]]) -> list[int]:
    first = list(range(ROWS))
    for left, right in pairs:
        old, new = max(first[left], first[right]), min(first[left], first[right])
        first = [new if root == old else root for root in first]
    return first


@given(PAIRS)
def test_joined_rows_have_the_smallest_row_of_their_set_as_root(
    pairs: list[tuple[int, int]],
) -> None:
    sets = UnionFind(ROWS)
    for left, right in pairs:
        sets.join(left, right)
    assert roots(sets) == naive_roots(pairs)
    assert [sets.root(row) for row in range(ROWS)] == naive_roots(pairs)


@given(PAIRS, PAIRS)
def test_groups_are_united_with_the_sets_there_are(
    before: list[tuple[int, int]], groups: list[tuple[int, int]]
) -> None:
    sets = UnionFind(ROWS)
    for left, right in before:
        sets.join(left, right)
    rows = np.array([row for group in groups for row in group], np.int64)
    sets.join_groups(rows, np.arange(0, len(rows), 2))
    assert roots(sets) == naive_roots(before + groups)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [([], []), ([7], [0]), ([5, 9, 5, 0, 9, 5], [0, 1, 0, 3, 1, 0]), ([2**64 - 1] * 3, [0] * 3)],
)
def test_rows_with_equal_keys_become_one_set(keys: list[int], expected: list[int]) -> None:
    sets = UnionFind(len(keys))
    sets.join_equal(np.array(keys, np.uint64))
    assert roots(sets) == expected


def test_equal_keys_replace_the_sets_there_were() -> None:
    sets = UnionFind(3)
    sets.join(0, 2)
    sets.join_equal(np.array([1, 2, 3], np.uint64))
    assert roots(sets) == [0, 1, 2]
