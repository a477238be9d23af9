"""Which of many rows made from one template are alike: an exact join of sets that share most.

Sets are told by how they differ from the template, the grams that most of them have: for any T,
|A xor B| = |(A xor T) xor (B xor T)|, so likeness follows from differences that are a tenth as
large. Two sets are alike at P % when (100 + P) |A xor B| <= (100 - P) (|A| + |B|). What differences
share is counted for all pairs at once, by the lists of sets that have a gram.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tunery.data.likeness.minhash import U64
from tunery.data.likeness.union_find import Forest, Rows

I64: TypeAlias = NDArray[np.int64]

# Entries of the index that are read for a row, on average: a millisecond. A crowd that takes more
# is halved, and its halves are not compared with each other.
READ_MAX: Final = 200_000


def template_of(sample: Sequence[U64]) -> U64:
    """Grams that more than half of these sets have, sorted."""
    grams, times = np.unique(np.concatenate(sample), return_counts=True)
    kept: U64 = grams[2 * times > len(sample)]
    return kept


@dataclass(frozen=True, slots=True)
class Crowd:
    """`rows` [n] ascending; `sizes` [n]: grams of each; `differences` [n]: theirs xor a template's.

    The template must be the same for all; which one decides about the time alone.
    """

    rows: Rows
    sizes: I64
    differences: Sequence[U64]


def join_alike(crowd: Crowd, percent: int, forest: Forest) -> list[Rows]:
    """Join the rows that are alike; the groups within which all pairs were compared."""
    index = _Index(crowd, percent)
    if len(crowd.rows) > 1 and index.read > READ_MAX * len(crowd.rows):
        half = len(crowd.rows) // 2
        return [
            group
            for part in (slice(half), slice(half, None))
            for group in join_alike(
                Crowd(crowd.rows[part], crowd.sizes[part], crowd.differences[part]), percent, forest
            )
        ]
    index.join_near_template(forest)
    index.join_overlapping(forest)
    return [crowd.rows]


class _Index:
    """Sets from the least different to the most; of each gram, the sets that have it."""

    def __init__(self, crowd: Crowd, percent: int) -> None:
        counts = np.fromiter(map(len, crowd.differences), np.int64, len(crowd.differences))
        order = np.argsort(counts, kind="stable")
        self._percent = percent
        self._rows, self._sizes, self._counts = crowd.rows[order], crowd.sizes[order], counts[order]
        _, grams, times = np.unique(
            np.concatenate([crowd.differences[at] for at in order]),
            return_inverse=True,
            return_counts=True,
        )
        self.read = int(times @ (times - 1)) // 2
        self._grams = np.split(grams, np.cumsum(self._counts)[:-1])
        self._begins = np.concatenate(([0], np.cumsum(times)))
        self._ends = self._begins[:-1].copy()  # of the part of each list that is filled
        self._lists = np.repeat(np.arange(len(order)), self._counts)[
            np.argsort(grams, kind="stable")
        ]

    def join_near_template(self, forest: Forest) -> None:
        """Pairs that are alike whatever their differences share.

        The set nearest to the template has such a pair with each that has one with any.
        """
        weight = (100 + self._percent) * self._counts - (100 - self._percent) * self._sizes
        nearest = int(np.argmin(weight))
        for at in np.flatnonzero(weight + weight[nearest] <= 0).tolist():
            forest.join(int(self._rows[at]), int(self._rows[nearest]))

    def join_overlapping(self, forest: Forest) -> None:
        """Pairs that are alike because their differences share enough."""
        for at, grams in enumerate(self._grams):
            trees = np.unique(forest.roots(self._rows[self._alike(at, grams)]))
            for tree in trees.tolist():
                forest.join(int(self._rows[at]), tree)
            self._ends[grams] += 1

    def _alike(self, at: int, grams: I64) -> I64:
        """Sets before this one that are alike to it, those without a gram in common left out."""
        begins, ends = self._begins[grams], self._ends[grams]
        some = begins < ends
        found = [
            self._lists[a:b]
            for a, b in zip(begins[some].tolist(), ends[some].tolist(), strict=True)
        ]
        if not found:
            return np.empty(0, np.int64)
        shared = np.bincount(np.concatenate(found))
        others = np.flatnonzero(shared)
        differ = self._counts[others] + self._counts[at] - 2 * shared[others]
        sizes = self._sizes[others] + self._sizes[at]
        alike: I64 = others[(100 + self._percent) * differ <= (100 - self._percent) * sizes]
        return alike
