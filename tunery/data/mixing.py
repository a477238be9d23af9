"""How often an epoch sees each row of a file that is one of several.

A weight is that number for all rows of a file: with 2 each is seen twice; with 0.3 three of ten are
drawn, the same in each epoch; with 1.5 each once and half of them twice. What is drawn follows from
the seed and the content of the file by a keyed hash, on every machine alike.
"""

from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from schemas.units import PPM

MIXTURE_VERSION: Final = 1  # other rows would be drawn: part of the key of what is prepared


class MixedSource(Struct, frozen=True):
    """A file of a mixture, and its weight in millionths."""

    path: Path
    weight_ppm: int


class MixedContent(Struct, frozen=True):
    """The content of a file of a mixture, and its weight in millionths."""

    sha256: str
    weight_ppm: int


def times_seen(trains: NDArray[np.bool_], weight_ppm: int, key: str) -> NDArray[np.int64]:
    """How often an epoch sees each row of a file, [rows].

    trains: [rows], whether a row may train; others are seen 0 times
    weight_ppm: above 0; of n rows that train, n times the weight are seen, rounded, at least one
    key: what is drawn follows from it

    A larger weight never drops a row that a smaller one sees.
    """
    times = np.zeros(len(trains), np.int64)
    rows = np.flatnonzero(trains)
    if not len(rows):
        return times
    whole, part_ppm = divmod(weight_ppm, PPM)
    times[rows] = whole
    drawn = (len(rows) * part_ppm + PPM // 2) // PPM
    if not whole:
        drawn = max(1, drawn)
    times[rows[_first_by_hash(len(rows), drawn, key)]] += 1
    return times


def _first_by_hash(n: int, drawn: int, key: str) -> list[int]:
    """`drawn` numbers of range(n): those with the lowest hashes."""
    digest = blake2b(f"{MIXTURE_VERSION}:{key}".encode(), digest_size=32).digest()

    def rank(number: int) -> bytes:
        return blake2b(number.to_bytes(8, "little"), key=digest, digest_size=16).digest()

    return sorted(range(n), key=rank)[:drawn] if drawn else []
