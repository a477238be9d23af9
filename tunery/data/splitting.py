"""Which rows validate: drawn by seed, whole clusters of equal rows at a time."""

import hashlib
from typing import Final

from tunery.data.duplicates import Tally

PPM: Final = 1_000_000


def draw(fingerprint: int, seed: int) -> int:
    """A cluster's 64-bit lot: the smallest lots validate."""
    key = seed.to_bytes(8)
    return int.from_bytes(hashlib.blake2b(fingerprint.to_bytes(8), digest_size=8, key=key).digest())


def threshold(lots: Tally, fraction_ppm: int) -> int:
    """Rows with a lot below this validate; the others train.

    `lots`: the lot of every row. The share is the smallest number of whole clusters that reaches
    `fraction_ppm` of the rows; one cluster at least on each side, unless there is only one, which
    trains.
    """
    if fraction_ppm <= 0:
        return 0
    wanted = max(1, (lots.total * fraction_ppm + PPM // 2) // PPM)
    taken, reached = 0, False
    for lot, rows in lots.ascending():
        if reached or taken + rows >= lots.total:
            return lot
        taken += rows
        reached = taken >= wanted
    return 0
