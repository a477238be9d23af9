"""Disjoint sets of row numbers (union-find).

SciPy has both a DisjointSet and connected components; importing it costs more than these lines.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.int64]


class UnionFind:
    """Disjoint sets of rows. The smallest row of a set is its root and represents it.

    parent: for each row, a row of the same set; the row itself when it is the root
    """

    def __init__(self, rows: int) -> None:
        self.parent = np.arange(rows, dtype=np.int32)

    def roots(self, rows: Rows) -> Rows:
        """The root of each of these rows."""
        roots = self.parent[rows]
        while True:
            above = self.parent[roots]
            if np.array_equal(above, roots):
                break
            roots = above
        self.parent[rows] = roots
        return roots.astype(np.int64)

    def root(self, row: int) -> int:
        """The root of one row."""
        while (above := int(self.parent[row])) != row:
            self.parent[row] = self.parent[above]
            row = above
        return row

    def join(self, left: int, right: int) -> None:
        """Unite the sets of two rows."""
        left, right = self.root(left), self.root(right)
        self.parent[max(left, right)] = min(left, right)

    def join_equal(self, keys: NDArray[np.uint64]) -> None:
        """Make one set of the rows with equal keys. Replaces all sets."""
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))
        heads = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
        self.parent[order] = heads

    def join_groups(self, rows: Rows, starts: Rows) -> None:
        """Unite the rows of each group. Groups begin at the indices `starts` of `rows`."""
        counts = np.diff(starts, append=len(rows))
        while len(rows):
            roots = self.roots(rows)
            least = np.repeat(np.minimum.reduceat(roots, starts), counts)
            if np.array_equal(roots, least):
                return
            np.minimum.at(self.parent, roots, least.astype(np.int32))
