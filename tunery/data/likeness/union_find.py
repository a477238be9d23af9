"""Which rows belong together: union-find over row numbers."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.int64]


class Forest:
    """Trees of rows; the least row is the root, so the first row stands for its tree.

    `parent[i]`: a row of the same tree, row i itself when it is the root.
    """

    def __init__(self, rows: int) -> None:
        self.parent = np.arange(rows, dtype=np.int32)

    def roots(self, rows: Rows) -> Rows:
        found = self.parent[rows]
        while True:
            above = self.parent[found]
            if np.array_equal(above, found):
                break
            found = above
        self.parent[rows] = found
        return found.astype(np.int64)

    def root(self, row: int) -> int:
        while (above := int(self.parent[row])) != row:
            self.parent[row] = self.parent[above]
            row = above
        return row

    def join(self, left: int, right: int) -> None:
        left, right = self.root(left), self.root(right)
        self.parent[max(left, right)] = min(left, right)

    def join_equal(self, keys: NDArray[np.uint64]) -> None:
        """One tree for each key. The trees so far are forgotten."""
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))
        heads = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
        self.parent[order] = heads

    def join_groups(self, rows: Rows, starts: Rows) -> None:
        """Join the rows of each group; groups lie one after the other and begin at `starts`."""
        counts = np.diff(starts, append=len(rows))
        while len(rows):
            roots = self.roots(rows)
            least = np.repeat(np.minimum.reduceat(roots, starts), counts)
            if np.array_equal(roots, least):
                return
            np.minimum.at(self.parent, roots, least.astype(np.int32))
