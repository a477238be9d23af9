"""Sequences into rows of at most `capacity` tokens, never cut, never spilt.

Rows are filled one after the other, each with the longest sequence that still fits until none does
(greedy subset sum over a histogram of lengths). No two rows could share one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Packed:
    """`sequences`: numbers of all sequences, row after row; `sizes[r]`: how many are in row r."""

    sequences: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def rows(self) -> list[list[int]]:
        numbers = iter(self.sequences.tolist())
        return [list(islice(numbers, size)) for size in self.sizes.tolist()]


def pack(lengths: Sequence[int] | NDArray[np.integer], capacity: int) -> Packed:
    """The result depends on the lengths alone: of equal ones the lower number goes first.

    Raises `ValueError` for a length below 1 or above the capacity.
    """
    tokens = np.asarray(lengths, np.int64)
    wrong = np.flatnonzero((tokens < 1) | (tokens > capacity))
    if len(wrong):
        number = int(wrong[0])
        raise ValueError(f"sequence {number} has {tokens[number]} tokens, not 1 to {capacity}")
    taken, counts, sizes = _fill(np.bincount(tokens, minlength=1), capacity)
    # taken[i] sequences of one length at a time: the next ones of that length
    order = np.argsort(tokens, kind="stable")
    chosen = np.repeat(np.array(taken, np.int64), np.array(counts, np.int64))
    numbers = np.empty_like(order)
    numbers[np.argsort(chosen, kind="stable")] = order
    return Packed(numbers, np.array(sizes, np.int64))


def _fill(histogram: NDArray[np.int64], capacity: int) -> tuple[list[int], list[int], list[int]]:
    """Lengths taken and how many of each at a time, in order; sequences in each row."""
    left = histogram.tolist()
    longest = len(left) - 1
    places = np.arange(longest + 1)
    # below[n]: the longest length up to n that may be left, by union-find; 0 is none
    below = np.maximum.accumulate(np.where(histogram > 0, places, 0)).tolist()
    taken: list[int] = []
    counts: list[int] = []
    sizes: list[int] = []
    todo = int(histogram.sum())
    while todo:
        room, size = capacity, 0
        fits = longest
        while True:
            fits = min(fits, room)
            while (lower := below[fits]) != fits:
                below[fits] = lower = below[lower]
                fits = lower
            if not fits:
                break
            count = min(left[fits], room // fits)
            left[fits] -= count
            room -= count * fits
            size += count
            taken.append(fits)
            counts.append(count)
            if left[fits]:
                fits -= 1  # the row has no room for another one
            else:
                below[fits] = fits - 1
        sizes.append(size)
        todo -= size
    return taken, counts, sizes
