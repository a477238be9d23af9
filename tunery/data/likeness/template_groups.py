"""Finds the similar rows among many that were made from one template, by an exact set join.

Each set of grams is represented by its difference from the template T, the grams that most sets
contain. As |A xor B| = |(A xor T) xor (B xor T)| for any T, similarity can be computed from the
differences, which are about a tenth as large. Two sets are P % similar when
(100 + P) |A xor B| <= (100 - P) (|A| + |B|). An inverted index from grams to sets counts what the
differences share for all pairs at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tunery.data.likeness.minhash import U64
from tunery.data.likeness.union_find import Rows, UnionFind

I64: TypeAlias = NDArray[np.int64]

# Index entries read per row, on average: one millisecond. A group that needs more is halved, and
# its halves are not compared with each other.
READ_MAX: Final = 200_000


def template_of(sample: Sequence[U64]) -> U64:
    """The grams that more than half of the sets contain, sorted."""
    grams, times = np.unique(np.concatenate(sample), return_counts=True)
    kept: U64 = grams[2 * times > len(sample)]
    return kept


@dataclass(frozen=True, slots=True)
class TemplateGroup:
    """n rows that were made from one template.

    Any template gives the right result as long as all rows use the same; a good one saves time.
    """

    rows: Rows  # [n], row numbers, ascending
    sizes: I64  # [n], number of grams of each row
    differences: Sequence[U64]  # n sets, the grams of each row xor those of the template


def join_similar(group: TemplateGroup, percent: int, sets: UnionFind) -> list[Rows]:
    """Unite the rows that are at least `percent` similar.

    Returns the rows in groups within which all pairs were compared.
    """
    index = _Index(group, percent)
    if len(group.rows) > 1 and index.read > READ_MAX * len(group.rows):
        half = len(group.rows) // 2
        return [
            compared
            for part in (slice(half), slice(half, None))
            for compared in join_similar(
                TemplateGroup(group.rows[part], group.sizes[part], group.differences[part]),
                percent,
                sets,
            )
        ]
    index.join_near_template(sets)
    index.join_overlapping(sets)
    return [group.rows]


class _Index:
    """The inverted index: for each gram, the sets that contain it, by ascending difference.

    read: index entries that the join will read
    """

    def __init__(self, group: TemplateGroup, percent: int) -> None:
        counts = np.fromiter(map(len, group.differences), np.int64, len(group.differences))
        order = np.argsort(counts, kind="stable")
        self._percent = percent
        self._rows, self._sizes, self._counts = group.rows[order], group.sizes[order], counts[order]
        _, grams, times = np.unique(
            np.concatenate([group.differences[at] for at in order]),
            return_inverse=True,
            return_counts=True,
        )
        self.read = int(times @ (times - 1)) // 2
        self._grams = np.split(grams, np.cumsum(self._counts)[:-1])
        self._begins = np.concatenate(([0], np.cumsum(times)))
        self._ends = self._begins[:-1].copy()  # ends of the lists of the sets joined so far
        self._lists = np.repeat(np.arange(len(order)), self._counts)[
            np.argsort(grams, kind="stable")
        ]

    def join_near_template(self, sets: UnionFind) -> None:
        """Unite the pairs that are similar even if their differences share nothing.

        If a set forms such a pair with any other, it forms one with the set nearest the template.
        """
        weight = (100 + self._percent) * self._counts - (100 - self._percent) * self._sizes
        nearest = int(np.argmin(weight))
        for at in np.flatnonzero(weight + weight[nearest] <= 0).tolist():
            sets.join(int(self._rows[at]), int(self._rows[nearest]))

    def join_overlapping(self, sets: UnionFind) -> None:
        """Unite the pairs that are similar because their differences share enough."""
        for at, grams in enumerate(self._grams):
            roots = np.unique(sets.roots(self._rows[self._similar(at, grams)]))
            for root in roots.tolist():
                sets.join(int(self._rows[at]), root)
            self._ends[grams] += 1

    def _similar(self, at: int, grams: I64) -> I64:
        """The earlier sets that share a gram with this one and are similar to it."""
        begins, ends = self._begins[grams], self._ends[grams]
        nonempty = begins < ends
        lists = [
            self._lists[a:b]
            for a, b in zip(begins[nonempty].tolist(), ends[nonempty].tolist(), strict=True)
        ]
        if not lists:
            return np.empty(0, np.int64)
        shared = np.bincount(np.concatenate(lists))
        others = np.flatnonzero(shared)
        differ = self._counts[others] + self._counts[at] - 2 * shared[others]
        sizes = self._sizes[others] + self._sizes[at]
        similar: I64 = others[(100 + self._percent) * differ <= (100 - self._percent) * sizes]
        return similar
