"""Packs sequences into rows of at most `capacity` tokens without cutting any.

Rows are filled one after the other, each with the longest remaining sequence that still fits
(greedy subset sum over a histogram of lengths). No two of the resulting rows fit into one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RowPacking:
    """Assignment of sequences to packed rows."""

    sequences: NDArray[np.int64]  # [sequences], their numbers, row after row
    sizes: NDArray[np.int64]  # [rows], number of sequences in each row

    def rows(self) -> list[list[int]]:
        numbers = iter(self.sequences.tolist())
        return [list(islice(numbers, size)) for size in self.sizes.tolist()]


def pack(lengths: Sequence[int] | NDArray[np.integer], capacity: int) -> RowPacking:
    """Pack sequences of these lengths, in tokens, into rows of at most `capacity` tokens.

    The result depends on the lengths alone; of equal lengths the lower number comes first.

    Raises `ValueError` for a length below 1 or above the capacity.
    """
    tokens = np.asarray(lengths, np.int64)
    invalid = np.flatnonzero((tokens < 1) | (tokens > capacity))
    if len(invalid):
        number = int(invalid[0])
        raise ValueError(f"sequence {number} has {tokens[number]} tokens, not 1 to {capacity}")
    chosen_lengths, counts, sizes = _fill(np.bincount(tokens, minlength=1), capacity)
    # Each chosen length stands for the next sequence that has this length.
    order = np.argsort(tokens, kind="stable")
    chosen = np.repeat(np.array(chosen_lengths, np.int64), np.array(counts, np.int64))
    numbers = np.empty_like(order)
    numbers[np.argsort(chosen, kind="stable")] = order
    return RowPacking(numbers, np.array(sizes, np.int64))


def _fill(histogram: NDArray[np.int64], capacity: int) -> tuple[list[int], list[int], list[int]]:
    """Fill rows from a histogram of lengths.

    Returns the chosen lengths in order, how many sequences of each were chosen at a time, and the
    number of sequences in each row.
    """
    left = histogram.tolist()
    longest = len(left) - 1
    # below[n]: the longest length up to n that may be left, by union-find; 0 for none
    below = np.maximum.accumulate(np.where(histogram > 0, np.arange(longest + 1), 0)).tolist()
    chosen: list[int] = []
    counts: list[int] = []
    sizes: list[int] = []
    todo = int(histogram.sum())
    while todo:
        free, size = capacity, 0
        fits = longest
        while True:
            fits = min(fits, free)
            while (lower := below[fits]) != fits:
                below[fits] = lower = below[lower]
                fits = lower
            if not fits:
                break
            count = min(left[fits], free // fits)
            left[fits] -= count
            free -= count * fits
            size += count
            chosen.append(fits)
            counts.append(count)
            if left[fits]:
                fits -= 1  # another sequence of this length does not fit
            else:
                below[fits] = fits - 1
        sizes.append(size)
        todo -= size
    return chosen, counts, sizes
