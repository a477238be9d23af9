"""Splits texts into words, and hashes runs of n words to 64 bits, thousands of texts at a time.

A word is a run of letters, digits and marks in lower case; in scripts written without spaces every
character is a word. Hashes are polynomials modulo 2^64 with prefix sums, so that the hash of any
run costs one subtraction and one multiplication.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

I64: TypeAlias = NDArray[np.int64]
U64: TypeAlias = NDArray[np.uint64]

BLOCK_CHARS: Final = 128 * 1024  # processed together: the arrays fit the CPU cache
POWERS_STEP: Final = 256 * 1024
SEPARATOR, LETTER, WORD = 0, 1, 2  # classes of code points; WORD is a word by itself
# scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Bopomofo, Han
UNSPACED: Final = (
    *((0x0E00, 0x0E80), (0x0E80, 0x0F00), (0x1000, 0x10A0), (0x1780, 0x1800)),
    *((0x3040, 0x3130), (0x31F0, 0x3200), (0x3400, 0x4DC0), (0x4E00, 0xA000)),
    *((0xF900, 0xFB00), (0x20000, 0x33480)),
)
# planes that have characters; a third of all code points, as asking for a million takes 0.3 s
ASSIGNED: Final = ((0, 0x40000), (0xE0000, 0xF0000))
_BASE: Final = 0x9E3779B97F4A7C15
_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Words:
    """The words of several texts, joined."""

    text: I64  # [words], number of the text of each word
    count: I64  # [texts], number of words of each text
    begin: I64  # [texts], index of its first word
    prefix: U64  # [words + 1], hash of all words before each word

    def runs(self, n: int) -> tuple[U64, I64]:
        """The hashes of all runs of n words within a text, and the index of their first words."""
        if len(self.text) < n:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        last = len(self.text) - n + 1
        inside = np.flatnonzero(self.text[:last] == self.text[n - 1 :])
        return self.run_at(inside, n), inside

    def run_at(self, word: I64, n: int | I64) -> U64:
        """The hashes of the runs of n words that begin at these indices."""
        _, inverse = _powers(len(self.prefix))
        return _mix((self.prefix[word + n] - self.prefix[word]) * inverse[word])


def words(texts: Sequence[str]) -> Words:
    """Split texts into words."""
    normal = [_normalise(text) for text in texts]
    flat = "\n".join(normal).encode("utf-32-le", "surrogatepass")
    points = np.frombuffer(flat, np.uint32)
    classes = _character_classes()[points]
    in_word = classes != SEPARATOR
    # boundary[i]: characters i - 1 and i do not belong to the same word
    boundary = np.ones(len(points) + 1, np.bool_)
    boundary[1:-1] = (classes[1:] != LETTER) | (classes[:-1] != LETTER)
    starts = np.flatnonzero(boundary[:-1] & in_word)
    ends = np.flatnonzero(boundary[1:] & in_word) + 1
    power, inverse = _powers(len(points) + 1)
    before = np.zeros(len(points) + 1, np.uint64)
    np.cumsum(points.astype(np.uint64) * power[: len(points)], out=before[1:])
    hashes = _mix((before[ends] - before[starts]) * inverse[starts])
    offsets = np.cumsum([0, *(len(text) + 1 for text in normal)])
    edges = np.searchsorted(starts, offsets)
    count = np.diff(edges)
    prefix = np.zeros(len(hashes) + 1, np.uint64)
    np.cumsum(hashes * power[: len(hashes)], out=prefix[1:])
    return Words(np.repeat(np.arange(len(texts)), count), count, edges[:-1], prefix)


def blocks(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield texts in blocks of about `BLOCK_CHARS`, with the number of the first text."""
    start, chars = 0, 0
    for number, text in enumerate(texts):
        chars += len(text)
        if chars >= BLOCK_CHARS:
            yield start, texts[start : number + 1]
            start, chars = number + 1, 0
    if start < len(texts):
        yield start, texts[start:]


def _normalise(text: str) -> str:
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).lower()


def _mix(numbers: U64) -> U64:
    """Spread every bit over the others (finaliser of MurmurHash3)."""
    mixed = (numbers ^ (numbers >> _HALF)) * _FACTOR
    return mixed ^ (mixed >> _HALF)


@cache
def _character_classes() -> NDArray[np.uint8]:
    """The class of every code point."""
    table = np.zeros(0x110000, np.uint8)
    for start, end in ASSIGNED:
        letters = (unicodedata.category(chr(point))[0] in "LNM" for point in range(start, end))
        table[start:end] = np.fromiter(letters, np.uint8, end - start)
    for start, end in UNSPACED:
        table[start:end] *= np.uint8(WORD)
    return table


def _powers(count: int) -> tuple[U64, U64]:
    """At least `count` powers of the base, and of its inverse, modulo 2^64."""
    return _powers_of_size(-(-count // POWERS_STEP) * POWERS_STEP)


@lru_cache(maxsize=2)
def _powers_of_size(size: int) -> tuple[U64, U64]:
    return _compute_powers(_BASE, size), _compute_powers(pow(_BASE, -1, 2**64), size)


def _compute_powers(base: int, count: int) -> U64:
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)
