"""Splits rows into training and validation, drawn by seed.

Clusters of similar rows are never split, and every class of answers has the same share of
validation rows. Rows have classes when their last answers are a few short texts that repeat.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from schemas.units import PPM
from tunery.data.dialects.conversation import Conversation
from tunery.data.likeness.clusters import Clusters

SplitSides: TypeAlias = NDArray[np.uint8]
I64: TypeAlias = NDArray[np.int64]

TRAIN, VALIDATE, LEFT_OUT = 0, 1, 2
CLASS_CHARS_MAX: Final = 40  # a longer answer is not the name of a class
CLASSES_MAX: Final = 50
CLASS_ROWS_MIN: Final = 10  # on average; with fewer rows the answers are not classes
_FACTORS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))


class AnswerClasses:
    """Assigns each row the class of its last answer, as long as the answers are classes."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] | None = {}
        self._rows = bytearray()

    def add(self, conversation: Conversation) -> None:
        if self._numbers is None:
            return
        answer = conversation.messages[-1]["content"]
        if len(answer) <= CLASS_CHARS_MAX:
            number = self._numbers.setdefault(answer.strip().lower(), len(self._numbers))
            if number < CLASSES_MAX:
                self._rows.append(number)
                return
        self._numbers, self._rows = None, bytearray()  # the answers are free texts

    def rows(self) -> I64 | None:
        """The class of each row; None when the answers are not classes."""
        if not self._numbers or len(self._rows) < CLASS_ROWS_MIN * len(self._numbers):
            return None
        return np.frombuffer(self._rows, np.uint8).astype(np.int64)


def split(
    clusters: Clusters, used: NDArray[np.bool_], classes: I64 | None, fraction_ppm: int, seed: int
) -> SplitSides:
    """Assign each row a side: TRAIN, VALIDATE, or LEFT_OUT where it is not `used`.

    clusters: similar rows, n in all
    used: [n], whether a row may be used
    classes: [n], class of each row; None without classes
    fraction_ppm: share of validation rows, in parts per million
    seed: seed of the draw of rows

    In each class the fewest whole clusters validate that reach `fraction_ppm` of its rows, rounded,
    and at least one cluster trains. At least one cluster validates, unless there is only one. A
    cluster belongs to the class of its first row.
    """
    sides = np.where(used, TRAIN, LEFT_OUT).astype(np.uint8)
    rows = np.flatnonzero(used)
    if fraction_ppm <= 0 or not len(rows):
        return sides
    head, member = np.unique(clusters.first[rows], return_inverse=True)
    size = np.bincount(member)
    least = np.full(len(head), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(least, member, clusters.fingerprints[rows])
    order = np.argsort(_draw(least, seed), kind="stable")
    class_of = np.zeros(len(head), np.int64) if classes is None else classes[head]
    chosen = np.zeros(len(head), np.bool_)
    for number in np.unique(class_of):
        members = order[class_of[order] == number]
        rows_so_far = np.cumsum(size[members])
        target = (int(rows_so_far[-1]) * fraction_ppm + PPM // 2) // PPM
        enough = int(np.searchsorted(rows_so_far, target)) + 1 if target else 0
        chosen[members[: min(enough, len(members) - 1)]] = True
    if not chosen.any() and len(head) > 1:
        chosen[order[0]] = True
    sides[rows[chosen[member]]] = VALIDATE
    return sides


def _draw(fingerprints: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Draw a random number for each cluster from its fingerprint and the seed (SplitMix64)."""
    seeded = _mix(np.array([seed], np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    return _mix(fingerprints ^ seeded)


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64, which spreads every bit over all others."""
    for shift, factor in zip(_SHIFTS[:2], _FACTORS, strict=True):
        numbers = (numbers ^ (numbers >> shift)) * factor
    return numbers ^ (numbers >> _SHIFTS[2])
