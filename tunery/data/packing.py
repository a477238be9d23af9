"""Best-fit decreasing: sequences into rows of at most `capacity` tokens, never cut, never spilt."""

from bisect import bisect_left, insort
from collections.abc import Sequence


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Rows of sequence numbers. Each sequence goes where it leaves the least room.

    Longest first, ties by number; equal room goes to the older row: the result depends on the
    lengths alone. Raises `ValueError` for a length below 1 or above the capacity.
    """
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (tokens left, row), sorted
    for number in sorted(range(len(lengths)), key=lambda n: (-lengths[n], n)):
        length = lengths[number]
        if not 1 <= length <= capacity:
            raise ValueError(f"sequence {number} has {length} tokens, not 1 to {capacity}")
        place = bisect_left(room, (length, -1))
        if place == len(room):
            left, row = capacity, len(rows)
            rows.append([])
        else:
            left, row = room.pop(place)
        rows[row].append(number)
        if left > length:
            insort(room, (left - length, row))
    return rows
