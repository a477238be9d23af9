"""Near duplicates: rows whose texts share at least 90 % of their character 5-grams, as clusters.

Rows that agree in a band of their signatures are candidates (sorted, band by band); each candidate
pair is verified on the exact sets of grams before it counts, unless it is joined already. Rows that
crowd in buckets, because they were made from one template, are compared all with all (`crowds`). A
cluster is what verified pairs connect, and its first row stands for it. Signatures and texts lie in
files beside, so memory grows by some 40 bytes a row.
"""

import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tunery.data.likeness.minhash import (
    BANDS,
    SLOTS,
    U8,
    U64,
    Signatures,
    gram_sets,
    jaccard_at_least,
)
from tunery.data.likeness.template_groups import Crowd, join_alike, template_of
from tunery.data.likeness.union_find import Forest, Rows

LIKE_PERCENT: Final = 90
SLOTS_MIN: Final = 104  # of 128 that agree: at 90 % likeness fewer come once in 2,000 pairs
CROWD_MIN: Final = 128  # rows of one bucket: so many are made from one template
CROWD_GRAMS_MAX: Final = 1 << 23  # of what is joined together; some 400 MiB
SAMPLE: Final = 64  # rows that tell a crowd's template
# Pairs of a band that are compared exactly outside of crowds: so many, and one more for every
# second row, so that no file takes hours; a pair that is left out is not joined.
VERIFIED_MIN: Final = 10_000
PIVOTS_MAX: Final = 24  # rows of one bucket that all others are compared with
REFUTED_MAX: Final = 1 << 24  # pairs remembered as not alike: 128 MiB
PAIRS_MAX: Final = 1 << 18  # candidates looked at together
READ_ROWS: Final = 512  # hashed together
CACHED_GRAMS_MAX: Final = 1 << 23  # 64 MiB of sets


@dataclass(frozen=True, slots=True)
class Clusters:
    """`first[i]`: the first row of row i's cluster, itself when it is alone or first. From 0.

    `prints[i]`: the fingerprint of row i; `equal[i]`: an earlier row has the same.
    """

    first: NDArray[np.int32]
    prints: U64
    equal: NDArray[np.bool_]

    @property
    def repeats(self) -> int:
        """Rows that are not the first of their cluster."""
        return len(self.first) - int(np.count_nonzero(self._stands_alone()))

    def near_repeats(self) -> list[int]:
        """Rows that are nearly an earlier one, without those that are equal to one."""
        near: list[int] = np.flatnonzero(~self._stands_alone() & ~self.equal).tolist()
        return near

    def groups(self, most: int) -> list[list[int]]:
        """The first `most` clusters of two rows or more, by first row; rows ascending."""
        later = np.flatnonzero(~self._stands_alone())
        heads, at = np.unique(self.first[later], return_inverse=True)
        order = np.argsort(at, kind="stable")
        members = np.split(later[order], np.cumsum(np.bincount(at, minlength=len(heads)))[:-1])
        return [[int(h), *map(int, m)] for h, m in zip(heads[:most], members, strict=False)]

    def _stands_alone(self) -> NDArray[np.bool_]:
        alone: NDArray[np.bool_] = self.first == np.arange(len(self.first))
        return alone


class ClusterFinder:
    """Collects rows in files under `folder`; they vanish with `close`."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="clusters-", dir=folder)
        at = Path(self._folder.name)
        self._bands = [(at / f"band-{number:02}").open("w+b") for number in range(BANDS)]
        self._slots = (at / "slots").open("w+b")
        self._texts = (at / "texts").open("w+b")
        self._sizes: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        self._prints: list[U64] = []

    def __enter__(self) -> "ClusterFinder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for file in (*self._bands, self._slots, self._texts):
            file.close()
        self._folder.cleanup()

    def add(self, texts: Sequence[str], prints: Sequence[int], signatures: Signatures) -> None:
        """The next rows: normalised texts, their 64-bit fingerprints, and `sign(texts)`."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        self._texts.write(b"".join(encoded))
        self._sizes.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        self._prints.append(np.array(prints, np.uint64))
        self._slots.write(signatures.slots.tobytes())
        for number, file in enumerate(self._bands):
            file.write(np.ascontiguousarray(signatures.bands[:, number]).tobytes())

    def clusters(self) -> Clusters:
        """All clusters of the rows so far."""
        prints = np.concatenate([np.empty(0, np.uint64), *self._prints])
        forest = Forest(len(prints))
        if not len(prints):
            return Clusters(forest.parent, prints, np.empty(0, np.bool_))
        for file in (*self._bands, self._slots, self._texts):
            file.flush()
        forest.join_equal(prints)
        equal = forest.parent != np.arange(len(prints))
        alone = np.flatnonzero(~equal)  # equal rows need no signature
        slots = np.memmap(self._slots.name, np.uint8, "r", shape=(len(prints), SLOTS))
        grams = _GramSets(self._texts.fileno(), np.cumsum(np.concatenate(self._sizes)))
        settled = np.arange(len(prints), dtype=np.int32)
        for crowd in self._crowds(alone):
            for group in _join_crowd(crowd, grams, forest):
                settled[group] = group[0]
        join = _Join(forest, slots, grams)
        for band in self._read_bands(alone):
            candidates = _candidates(alone, band, forest, settled)
            join.band(candidates, VERIFIED_MIN + len(alone) // 2)
        first = forest.roots(np.arange(len(prints))).astype(np.int32)
        return Clusters(first, prints, equal)

    def _read_bands(self, rows: Rows) -> Iterator[U64]:
        for file in self._bands:
            yield np.fromfile(file.name, np.uint64)[rows]

    def _crowds(self, rows: Rows) -> Iterator[Rows]:
        """Rows that crowded buckets of any band tie together."""
        forest = Forest(int(rows[-1]) + 1)
        for band in self._read_bands(rows):
            forest.join_groups(*_buckets(rows, band))
        members, starts = _buckets(rows, forest.roots(rows))
        if len(starts):
            yield from np.split(members, starts[1:])


class _Join:
    """Verifies candidates and joins those that are alike."""

    def __init__(self, forest: Forest, slots: U8, grams: "_GramSets") -> None:
        self._forest = forest
        self._slots = slots
        self._grams = grams
        self._refuted: U64 = np.empty(0, np.uint64)  # pairs known not to be alike

    def band(self, pairs: Iterator[tuple[Rows, Rows]], budget: int) -> None:
        """Look at the candidates of a band; at most `budget` of them are compared exactly."""
        unlike: list[int] = []
        for left, right in pairs:
            for a, b, key in self._likely(left, right):
                if self._forest.root(a) == self._forest.root(b):
                    continue
                if not budget:
                    break
                budget -= 1
                if self._alike(a, b):
                    self._forest.join(a, b)
                else:
                    unlike.append(key)
            if not budget:
                break
        self._refuted = np.union1d(self._refuted, np.array(unlike, np.uint64))[:REFUTED_MAX]

    def _likely(self, left: Rows, right: Rows) -> Iterator[tuple[int, int, int]]:
        """Pairs whose signatures agree enough, and that no band before has refuted."""
        keys = (left.astype(np.uint64) << np.uint64(32)) | right.astype(np.uint64)
        new = ~np.isin(keys, self._refuted)
        left, right, keys = left[new], right[new], keys[new]
        equal = np.count_nonzero(self._slots[left] == self._slots[right], axis=1)
        likely = np.flatnonzero(equal >= SLOTS_MIN)
        return zip(
            left[likely].tolist(), right[likely].tolist(), keys[likely].tolist(), strict=True
        )

    def _alike(self, a: int, b: int) -> bool:
        self._grams.load((a, b))
        alike = jaccard_at_least(self._grams.of(a), self._grams.of(b), LIKE_PERCENT)
        self._grams.trim()
        return alike


class _GramSets:
    """Sets of grams by row, read from the texts; the ones used last are kept."""

    def __init__(self, texts: int, ends: NDArray[np.int64]) -> None:
        self._texts = texts
        self._ends = ends
        self._kept: OrderedDict[int, U64] = OrderedDict()
        self._grams = 0

    def load(self, rows: Sequence[int]) -> None:
        """Read the missing ones together, in order of the file."""
        missing = [row for row in sorted(set(rows)) if row not in self._kept]
        for row, grams in zip(missing, self.read(missing), strict=True):
            self._kept[row] = grams
            self._grams += len(grams)

    def read(self, rows: Sequence[int] | Rows) -> Iterator[U64]:
        """Sets that are not kept."""
        for start in range(0, len(rows), READ_ROWS):
            yield from gram_sets([self._text(int(row)) for row in rows[start : start + READ_ROWS]])

    def of(self, row: int) -> U64:
        self._kept.move_to_end(row)
        return self._kept[row]

    def trim(self) -> None:
        while self._grams > CACHED_GRAMS_MAX:
            _, grams = self._kept.popitem(last=False)
            self._grams -= len(grams)

    def _text(self, row: int) -> str:
        start, end = int(self._ends[row]), int(self._ends[row + 1])
        return os.pread(self._texts, end - start, start).decode("utf-8", "surrogatepass")


def _buckets(rows: Rows, keys: NDArray[Any]) -> tuple[Rows, Rows]:
    """Rows of equal keys, one crowded bucket after the other; where each begins."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(begins, append=len(rows))
    crowded = counts >= CROWD_MIN
    members = rows[order[np.repeat(crowded, counts)]]
    return members, np.cumsum(counts[crowded]) - counts[crowded]


def _join_crowd(rows: Rows, grams: "_GramSets", forest: Forest) -> Iterator[Rows]:
    """Join the rows of a crowd that are alike; the groups within which all were compared."""
    template = template_of(list(grams.read(rows[:: -(-len(rows) // SAMPLE)])))
    sizes: list[int] = []
    differences: list[U64] = []
    held = done = 0
    for at, own in enumerate(grams.read(rows), 1):
        sizes.append(len(own))
        differences.append(np.setxor1d(own, template, assume_unique=True))
        held += len(differences[-1])
        if held >= CROWD_GRAMS_MAX or at == len(rows):
            crowd = Crowd(rows[done:at], np.array(sizes), differences)
            yield from join_alike(crowd, LIKE_PERCENT, forest)
            sizes, differences, held, done = [], [], 0, at


def _candidates(
    rows: Rows, band: U64, forest: Forest, settled: NDArray[np.int32]
) -> Iterator[tuple[Rows, Rows]]:
    """Pairs of rows with an equal band that are not joined or settled yet, by rounds of pivots.

    In each round the first row left of every bucket is compared with all later ones of the bucket.
    """
    order = np.argsort(band, kind="stable")
    members, ordered = rows[order], band[order]
    same = np.concatenate(([False], ordered[1:] == ordered[:-1]))
    bucket = np.cumsum(~same)
    for _ in range(PIVOTS_MAX):
        crowded = np.bincount(bucket)[bucket] > 1
        members, bucket = members[crowded], bucket[crowded]
        if not len(members):
            return
        begins = np.concatenate(([True], bucket[1:] != bucket[:-1]))
        pivots = members[np.maximum.accumulate(np.where(begins, np.arange(len(members)), 0))]
        for start in range(0, len(members), PAIRS_MAX):
            part = slice(start, start + PAIRS_MAX)
            left, right = pivots[part], members[part]
            apart = forest.roots(left) != forest.roots(right)
            apart &= settled[left] != settled[right]
            if apart.any():
                yield left[apart], right[apart]
        members, bucket = members[~begins], bucket[~begins]
