"""MinHash signatures of character 5-grams, which estimate the similarity of two texts.

A gram is the 64-bit hash of five code points; a shorter text is one gram. Slot k of a signature is
the minimum of `gram * MULTIPLIERS[k]` modulo 2^32 (Broder 1997). Two slots are equal with
probability J, the Jaccard similarity of the two sets of grams; a band of 8 slots is equal with
probability J^8, and at least one of 16 bands with 1 - (1 - J^8)^16, which is 0.9999 at J = 0.9.

The signature of a text does not depend on the other texts of the same call.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

U8: TypeAlias = NDArray[np.uint8]
U64: TypeAlias = NDArray[np.uint64]

GRAM_CHARS: Final = 5
FILL: Final = "\U0010ffff"  # pads shorter texts: a code point that is not a character
SLOTS: Final = 128
BANDS: Final = 16
BAND_SLOTS: Final = SLOTS // BANDS
BLOCK_CHARS: Final = 64 * 1024  # hashed together: fits the second-level cache

_RANDOM: Final = np.random.Generator(np.random.PCG64(20))  # constants, the same on every machine
MULTIPLIERS: Final = _RANDOM.integers(0, 2**32, SLOTS, dtype=np.uint32) | np.uint32(1)
_GRAM: Final = _RANDOM.integers(0, 2**64, GRAM_CHARS, dtype=np.uint64) | np.uint64(1)
_BAND: Final = _RANDOM.integers(0, 2**64, BAND_SLOTS, dtype=np.uint64) | np.uint64(1)
_MIX: Final = np.uint64(0xFF51AFD7ED558CCD)
_HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of n texts."""

    bands: U64  # [n, 16], hash of each band
    slots: U8  # [n, 128], one byte of each slot


def sign(texts: Sequence[str]) -> Signatures:
    """Compute the signatures of texts, in their order."""
    parts = [_sign_grams(*_grams(block)) for block in _blocks(texts)]
    if not parts:
        return Signatures(np.empty((0, BANDS), np.uint64), np.empty((0, SLOTS), np.uint8))
    return Signatures(
        np.concatenate([part.bands for part in parts]),
        np.concatenate([part.slots for part in parts]),
    )


def gram_sets(texts: Sequence[str]) -> list[U64]:
    """Compute the set of grams of each text, sorted."""
    sets: list[U64] = []
    for block in _blocks(texts):
        grams, starts = _grams(block)
        sets += [_distinct(part) for part in np.split(grams, starts[1:])]
    return sets


def jaccard_at_least(left: U64, right: U64, percent: int) -> bool:
    """True if two sorted sets share at least `percent` of their union, computed exactly."""
    if 100 * min(len(left), len(right)) < percent * max(len(left), len(right)):
        return False
    both = np.concatenate((left, right))
    both.sort()
    shared = int(np.count_nonzero(both[1:] == both[:-1]))
    return 100 * shared >= percent * (len(both) - shared)


def _blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Group texts into blocks of about `BLOCK_CHARS` characters."""
    block: list[str] = []
    chars = 0
    for text in texts:
        block.append(text)
        chars += len(text)
        if chars >= BLOCK_CHARS:
            yield block
            block, chars = [], 0
    if block:
        yield block


def _grams(texts: Sequence[str]) -> tuple[U64, NDArray[np.int64]]:
    """The grams of all texts, joined, and the index at which each text begins.

    A text has as many grams as characters. At its last four characters, where a window would reach
    into the next text, its first gram is repeated, which changes neither a set nor a minimum.
    """
    padded = [text if len(text) >= GRAM_CHARS else text.ljust(GRAM_CHARS, FILL) for text in texts]
    flat = "".join(padded).encode("utf-32-le", "surrogatepass")
    points = np.frombuffer(flat, np.uint32).astype(np.uint64)
    ends = np.cumsum([len(text) for text in padded])
    starts = np.concatenate(([0], ends[:-1]))
    width = len(points) - GRAM_CHARS + 1
    grams = np.zeros(len(points), np.uint64)
    for index in range(GRAM_CHARS):
        grams[:width] += points[index : index + width] * _GRAM[index]
    grams ^= grams >> _HALF
    grams *= _MIX
    grams ^= grams >> _HALF
    for back in range(1, GRAM_CHARS):
        grams[ends - back] = grams[starts]
    return grams, starts


def _distinct(grams: U64) -> U64:
    ordered = np.sort(grams)  # faster than np.unique, which hashes
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def _sign_grams(grams: U64, starts: NDArray[np.int64]) -> Signatures:
    short = grams.astype(np.uint32)
    product = np.empty_like(short)
    least = np.empty((SLOTS, len(starts)), np.uint32)
    for slot, multiplier in enumerate(MULTIPLIERS):
        np.multiply(short, multiplier, out=product)
        np.minimum.reduceat(product, starts, out=least[slot])
    least = np.ascontiguousarray(least.T)
    banded = least.reshape(len(starts), BANDS, BAND_SLOTS).astype(np.uint64)
    bands = (banded * _BAND).sum(axis=2, dtype=np.uint64)
    bands ^= bands >> _HALF
    # The high bits of a minimum are nearly always zero: mix, so that one byte distinguishes slots.
    mixed = (least * np.uint32(0x9E3779B1)) >> np.uint32(24)
    return Signatures(bands * _MIX, mixed.astype(np.uint8))
