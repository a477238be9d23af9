"""What of the trained weights each rank of a training has to add, to keep and to step.

Whole tensors: the norm of one is computed at one place, so it has the bits that it has in a single
process. A rank tells what it has of a share in pieces, as if its tensors were one after the other.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from torch import Tensor


def deal(sizes: Sequence[int], count: int) -> list[int]:
    """The rank whose share each tensor is in: the largest first, each to who has least so far."""
    held, owners = [0] * count, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        owners[number] = min(range(count), key=held.__getitem__)
        held[owners[number]] += sizes[number]
    return owners


def owners_of(weights: Mapping[str, Tensor], count: int) -> dict[str, int]:
    """The rank that each weight of a training is dealt to."""
    dealt = deal([weight.numel() for weight in weights.values()], count)
    return dict(zip(weights, dealt, strict=True))


class RankShare:
    """The tensors of a rank, one after the other.

    numbers: of these among all tensors
    size: of all of them, in elements or bytes as `sizes` are
    """

    def __init__(self, rank: int, sizes: Sequence[int], owners: Sequence[int]) -> None:
        self.numbers = [number for number, owner in enumerate(owners) if owner == rank]
        self._ends = list(accumulate(sizes[number] for number in self.numbers))
        self.size = self._ends[-1] if self._ends else 0

    def between(self, begin: int, end: int) -> list[tuple[int, slice]]:
        """Which tensors lie there, and which part of each."""
        return list(self._between(begin, min(end, self.size)))

    def _between(self, begin: int, end: int) -> Iterator[tuple[int, slice]]:
        while begin < end:
            at = bisect_right(self._ends, begin)
            first = self._ends[at - 1] if at else 0
            last = min(end, self._ends[at])
            yield self.numbers[at], slice(begin - first, last - first)
            begin = last


def length_of(stretch: Sequence[tuple[int, slice]]) -> int:
    """How much `between` gave."""
    return sum(part.stop - part.start for _, part in stretch)
