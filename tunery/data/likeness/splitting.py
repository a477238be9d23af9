"""Which rows validate: drawn by seed, whole clusters of like rows at a time, alike in every class.

Rows have classes when all their last answers are a few short texts, each many times.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tunery.data.dialects.detection import Conversation
from tunery.data.likeness.clusters import Clusters
from tunery.data.reports.quality import CLASS_CHARS_MAX, CLASSES_MAX

Sides: TypeAlias = NDArray[np.uint8]
I64: TypeAlias = NDArray[np.int64]

PPM: Final = 1_000_000
TRAIN, VALIDATE, LEFT_OUT = 0, 1, 2
CLASS_ROWS_MIN: Final = 10  # on average; fewer are no classes
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFT: Final = (np.uint64(30), np.uint64(27), np.uint64(31))


class Classes:
    """The class of each row, as long as there are any."""

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
        self._numbers, self._rows = None, bytearray()  # free texts

    def rows(self) -> I64 | None:
        """The class of each row; None when there are none."""
        if not self._numbers or len(self._rows) < CLASS_ROWS_MIN * len(self._numbers):
            return None
        return np.frombuffer(self._rows, np.uint8).astype(np.int64)


def split(
    clusters: Clusters, used: NDArray[np.bool_], classes: I64 | None, fraction_ppm: int, seed: int
) -> Sides:
    """The side of each row: TRAIN, VALIDATE, or LEFT_OUT where it is not `used`.

    Of each class the smallest number of whole clusters validates that reaches `fraction_ppm` of its
    rows (rounded), and one at least trains. One cluster validates at least, unless there is only
    one. A cluster is of the class of its first row.
    """
    sides = np.where(used, TRAIN, LEFT_OUT).astype(np.uint8)
    rows = np.flatnonzero(used)
    if fraction_ppm <= 0 or not len(rows):
        return sides
    head, member = np.unique(clusters.first[rows], return_inverse=True)
    size = np.bincount(member)
    least = np.full(len(head), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(least, member, clusters.prints[rows])
    order = np.argsort(_lots(least, seed), kind="stable")
    kind = np.zeros(len(head), np.int64) if classes is None else classes[head]
    chosen = np.zeros(len(head), np.bool_)
    for number in np.unique(kind):
        mine = order[kind[order] == number]
        reached = np.cumsum(size[mine])
        wanted = (int(reached[-1]) * fraction_ppm + PPM // 2) // PPM
        enough = int(np.searchsorted(reached, wanted)) + 1 if wanted else 0
        chosen[mine[: min(enough, len(mine) - 1)]] = True
    if not chosen.any() and len(head) > 1:
        chosen[order[0]] = True
    sides[rows[chosen[member]]] = VALIDATE
    return sides


def _lots(prints: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """A number for each cluster; the smallest validate. SplitMix64's finaliser, seeded."""
    lots = prints ^ _finished(np.array([seed], np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    return _finished(lots)


def _finished(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, factor in zip(_SHIFT[:2], _MIX, strict=True):
        numbers = (numbers ^ (numbers >> shift)) * factor
    return numbers ^ (numbers >> _SHIFT[2])
