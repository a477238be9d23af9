"""`diff`: what changed between two versions of a dataset. A version is named by its content.

Case, white space and Unicode normalisation form are ignored, as for duplicates.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tunery.data.checking import Checker
from tunery.data.containers.reading import open_rows
from tunery.data.dialects.conversation import Conversation
from tunery.data.likeness.duplicates import fingerprint
from tunery.platform.blobs.files import file_sha256

U64: TypeAlias = NDArray[np.uint64]
I64: TypeAlias = NDArray[np.int64]

ID_CHARS: Final = 12  # of the SHA-256
LISTED_MAX: Final = 1_000
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)


class DatasetVersion(Struct, frozen=True):
    id: str  # `name@hash`
    sha256: str  # hash of its content
    rows: int  # all rows
    faulty: int  # rows that are not valid and were not compared


class Difference(Struct, frozen=True):
    """The difference of two versions, by row numbers."""

    # before, after: the versions
    before: DatasetVersion
    after: DatasetVersion
    same: int  # rows that are in both
    # added_count, removed_count, changed_count: exact numbers of rows
    added_count: int
    removed_count: int
    changed_count: int
    # added, removed: the first 1,000 row numbers
    added: tuple[int, ...]
    removed: tuple[int, ...]
    # the first 1,000 pairs of rows with the same question and another answer
    changed: tuple[tuple[int, int], ...]

    @property
    def is_empty(self) -> bool:
        return not (self.added_count or self.removed_count or self.changed_count)


class _Side:
    """The valid rows of one file.

    row_hashes: fingerprint of each row
    question_hashes: fingerprint of each row without its answer
    numbers: number of each row
    version: the version that the file is
    """

    def __init__(self, path: Path) -> None:
        checker = Checker()
        hashes: list[tuple[int, int, int]] = []
        with open_rows(path) as rows:
            for row, conversation in checker.conversations(rows):
                question = fingerprint(_question(conversation))
                hashes.append((fingerprint(conversation), question, row.number))
        self.row_hashes = _distinguish_equal(np.array([row for row, _, _ in hashes], np.uint64))
        self.question_hashes = np.array([question for _, question, _ in hashes], np.uint64)
        self.numbers = np.array([number for _, _, number in hashes], np.int64)
        sha256 = file_sha256(path)
        name = f"{path.name}@{sha256[:ID_CHARS]}"
        self.version = DatasetVersion(name, sha256, checker.rows, checker.rows - len(hashes))


def diff(before: Path, after: Path) -> Difference:
    """Compare two files row by row. Raises `OSError` when a file cannot be read."""
    old, new = _Side(before), _Side(after)
    only_old = np.flatnonzero(~np.isin(old.row_hashes, new.row_hashes))
    only_new = np.flatnonzero(~np.isin(new.row_hashes, old.row_hashes))
    old_questions = _distinguish_equal(old.question_hashes[only_old])
    new_questions = _distinguish_equal(new.question_hashes[only_new])
    _, left, right = np.intersect1d(old_questions, new_questions, return_indices=True)
    pairs = sorted(
        zip(_row_numbers(old, only_old[left]), _row_numbers(new, only_new[right]), strict=True)
    )
    removed = sorted(_row_numbers(old, np.delete(only_old, left)))
    added = sorted(_row_numbers(new, np.delete(only_new, right)))
    return Difference(
        before=old.version,
        after=new.version,
        same=len(old.row_hashes) - len(only_old),
        added_count=len(added),
        removed_count=len(removed),
        changed_count=len(pairs),
        added=tuple(added[:LISTED_MAX]),
        removed=tuple(removed[:LISTED_MAX]),
        changed=tuple(pairs[:LISTED_MAX]),
    )


def _question(conversation: Conversation) -> Conversation:
    """The conversation without its last message."""
    return Conversation(conversation.messages[:-1], conversation.trained[:-1])


def _distinguish_equal(hashes: U64) -> U64:
    """Change the second, third, … of equal hashes, so that each is matched only once."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)]
    indices = np.arange(len(ordered))
    first = np.maximum.accumulate(np.where(begins, indices, 0)) if len(indices) else indices
    distinct = np.empty_like(hashes)
    distinct[order] = ordered + (indices - first).astype(np.uint64) * _STEP
    return distinct


def _row_numbers(side: _Side, rows: I64) -> Iterable[int]:
    numbers: list[int] = side.numbers[rows].tolist()
    return numbers
