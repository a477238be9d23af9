"""Versions of a data set and what changed between two. A version is named by its content.

Rows are compared as duplicates are: case, white space and Unicode form do not count.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tunery.data.checking import Checker
from tunery.data.containers.reading import open_rows
from tunery.data.dialects.detection import Conversation
from tunery.data.likeness.duplicates import fingerprint
from tunery.data.preparing import file_sha256

U64: TypeAlias = NDArray[np.uint64]
I64: TypeAlias = NDArray[np.int64]

ID_CHARS: Final = 12  # of the SHA-256
LISTED_MAX: Final = 1_000
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)


class Version(Struct, frozen=True):
    """`id` is `name@hash`. `faulty`: rows that cannot be read, and so not be compared."""

    id: str
    sha256: str
    rows: int
    faulty: int


class Difference(Struct, frozen=True):
    """Numbers of rows, at most 1,000 of each kind; counts are exact.

    `changed`: (row before, row after) with the same question and another answer.
    """

    before: Version
    after: Version
    same: int
    added_count: int
    removed_count: int
    changed_count: int
    added: tuple[int, ...]
    removed: tuple[int, ...]
    changed: tuple[tuple[int, int], ...]

    @property
    def is_empty(self) -> bool:
        return not (self.added_count or self.removed_count or self.changed_count)


class _Side:
    """Fingerprints of a file's good rows and of their questions, and the rows' numbers."""

    def __init__(self, path: Path) -> None:
        checker = Checker()
        found: list[tuple[int, int, int]] = []
        with open_rows(path) as rows:
            for row, conversation in checker.conversations(rows):
                whole, asked = fingerprint(conversation), fingerprint(_question(conversation))
                found.append((whole, asked, row.number))
        self.whole = _told_apart(np.array([whole for whole, _, _ in found], np.uint64))
        self.asked = np.array([asked for _, asked, _ in found], np.uint64)
        self.number = np.array([number for _, _, number in found], np.int64)
        sha256 = file_sha256(path)
        name = f"{path.name}@{sha256[:ID_CHARS]}"
        self.version = Version(name, sha256, checker.rows, checker.rows - len(found))


def diff(before: Path, after: Path) -> Difference:
    """Rows that are only in one of two files, and rows whose answer changed. Raises `OSError`."""
    old, new = _Side(before), _Side(after)
    gone = np.flatnonzero(~np.isin(old.whole, new.whole))
    come = np.flatnonzero(~np.isin(new.whole, old.whole))
    old_asked, new_asked = _told_apart(old.asked[gone]), _told_apart(new.asked[come])
    _, left, right = np.intersect1d(old_asked, new_asked, return_indices=True)
    pairs = sorted(zip(_listed(old, gone[left]), _listed(new, come[right]), strict=True))
    removed = sorted(_listed(old, np.delete(gone, left)))
    added = sorted(_listed(new, np.delete(come, right)))
    return Difference(
        before=old.version,
        after=new.version,
        same=len(old.whole) - len(gone),
        added_count=len(added),
        removed_count=len(removed),
        changed_count=len(pairs),
        added=tuple(added[:LISTED_MAX]),
        removed=tuple(removed[:LISTED_MAX]),
        changed=tuple(pairs[:LISTED_MAX]),
    )


def _question(conversation: Conversation) -> Conversation:
    """All but the last message."""
    return Conversation(conversation.messages[:-1], conversation.trained[:-1])


def _told_apart(prints: U64) -> U64:
    """The same numbers with the second, third, … of equal ones moved: each is matched once."""
    order = np.argsort(prints, kind="stable")
    ordered = prints[order]
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)]
    places = np.arange(len(ordered))
    first = np.maximum.accumulate(np.where(begins, places, 0)) if len(places) else places
    moved = np.empty_like(prints)
    moved[order] = ordered + (places - first).astype(np.uint64) * _STEP
    return moved


def _listed(side: _Side, rows: I64) -> Iterable[int]:
    numbers: list[int] = side.number[rows].tolist()
    return numbers
