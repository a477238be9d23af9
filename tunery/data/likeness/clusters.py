"""Clusters of near duplicates: rows whose texts share at least 90 % of their character 5-grams.

Rows with an equal band in their signatures are candidates. A candidate pair is verified on the
exact sets of grams, unless both rows are already in one cluster. Large buckets of equal bands hold
rows made from one template; these are compared all with all (`template_groups`). A cluster is a set
of rows connected by verified pairs, represented by its first row. Signatures and texts are kept in
temporary files, so memory grows by about 40 bytes a row.
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
from tunery.data.likeness.template_groups import TemplateGroup, join_similar, template_of
from tunery.data.likeness.union_find import Rows, UnionFind

SIMILAR_PERCENT: Final = 90
SLOTS_MIN: Final = 104  # equal slots of 128: at 90 % similarity, 1 pair in 2,000 has fewer
GROUP_ROWS_MIN: Final = 128  # rows of one bucket: so many come from one template
GROUP_GRAMS_MAX: Final = 1 << 23  # joined together; about 400 MiB
SAMPLE_ROWS: Final = 64  # from which the template of a group is derived
# Pairs of a band that are compared exactly outside of template groups: this many, and one more for
# every second row, so that no file takes hours. A pair beyond the limit is not joined.
VERIFIED_MIN: Final = 10_000
PIVOTS_MAX: Final = 24  # rows of one bucket that all others are compared with
REFUTED_MAX: Final = 1 << 24  # pairs remembered as not similar: 128 MiB
PAIRS_MAX: Final = 1 << 18  # candidates examined together
READ_ROWS: Final = 512  # whose grams are computed together
CACHED_GRAMS_MAX: Final = 1 << 23  # 64 MiB of sets


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters of n rows, which are numbered from 0."""

    # [n], the first row of each row's cluster; the row itself when it is alone or first
    first: NDArray[np.int32]
    fingerprints: U64  # [n], fingerprint of each row
    equal: NDArray[np.bool_]  # [n], whether an earlier row has the same fingerprint

    @property
    def repeats(self) -> int:
        """The number of rows that are not the first of their cluster."""
        return len(self.first) - int(np.count_nonzero(self._is_first()))

    def near_repeats(self) -> list[int]:
        """The rows that are nearly equal, but not equal, to an earlier row."""
        near: list[int] = np.flatnonzero(~self._is_first() & ~self.equal).tolist()
        return near

    def groups(self, groups_max: int) -> list[list[int]]:
        """The first `groups_max` clusters of at least two rows, each with its rows ascending."""
        later = np.flatnonzero(~self._is_first())
        heads, at = np.unique(self.first[later], return_inverse=True)
        order = np.argsort(at, kind="stable")
        members = np.split(later[order], np.cumsum(np.bincount(at, minlength=len(heads)))[:-1])
        return [[int(h), *map(int, m)] for h, m in zip(heads[:groups_max], members, strict=False)]

    def _is_first(self) -> NDArray[np.bool_]:
        is_first: NDArray[np.bool_] = self.first == np.arange(len(self.first))
        return is_first


class ClusterFinder:
    """Collects rows in temporary files under `folder`, which `close` deletes, and clusters them."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="clusters-", dir=folder)
        at = Path(self._folder.name)
        self._bands = [(at / f"band-{number:02}").open("w+b") for number in range(BANDS)]
        self._slots = (at / "slots").open("w+b")
        self._texts = (at / "texts").open("w+b")
        self._sizes: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        self._fingerprints: list[U64] = []

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

    def add(
        self, texts: Sequence[str], fingerprints: Sequence[int], signatures: Signatures
    ) -> None:
        """Add rows: normalised texts, their 64-bit fingerprints, and `sign(texts)`."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        self._texts.write(b"".join(encoded))
        self._sizes.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        self._fingerprints.append(np.array(fingerprints, np.uint64))
        self._slots.write(signatures.slots.tobytes())
        for number, file in enumerate(self._bands):
            file.write(np.ascontiguousarray(signatures.bands[:, number]).tobytes())

    def clusters(self) -> Clusters:
        """Cluster all rows added so far."""
        fingerprints = np.concatenate([np.empty(0, np.uint64), *self._fingerprints])
        sets = UnionFind(len(fingerprints))
        if not len(fingerprints):
            return Clusters(sets.parent, fingerprints, np.empty(0, np.bool_))
        for file in (*self._bands, self._slots, self._texts):
            file.flush()
        sets.join_equal(fingerprints)
        equal = sets.parent != np.arange(len(fingerprints))
        distinct = np.flatnonzero(~equal)  # equal rows need no signature
        slots = np.memmap(self._slots.name, np.uint8, "r", shape=(len(fingerprints), SLOTS))
        grams = _GramSets(self._texts.fileno(), np.cumsum(np.concatenate(self._sizes)))
        settled = np.arange(len(fingerprints), dtype=np.int32)
        for group in self._template_groups(distinct):
            for compared in _join_group(group, grams, sets):
                settled[compared] = compared[0]
        joiner = _PairJoiner(sets, slots, grams)
        for band in self._read_bands(distinct):
            candidates = _candidates(distinct, band, sets, settled)
            joiner.join_band(candidates, VERIFIED_MIN + len(distinct) // 2)
        first = sets.roots(np.arange(len(fingerprints))).astype(np.int32)
        return Clusters(first, fingerprints, equal)

    def _read_bands(self, rows: Rows) -> Iterator[U64]:
        for file in self._bands:
            yield np.fromfile(file.name, np.uint64)[rows]

    def _template_groups(self, rows: Rows) -> Iterator[Rows]:
        """Yield the groups of rows that are connected by large buckets of any band."""
        if len(rows) < GROUP_ROWS_MIN:
            return
        sets = UnionFind(int(rows[-1]) + 1)
        for band in self._read_bands(rows):
            sets.join_groups(*_large_buckets(rows, band))
        members, starts = _large_buckets(rows, sets.roots(rows))
        if len(starts):
            yield from np.split(members, starts[1:])


class _PairJoiner:
    """Verifies candidate pairs, and unites the similar ones."""

    def __init__(self, sets: UnionFind, slots: U8, grams: "_GramSets") -> None:
        self._sets = sets
        self._slots = slots
        self._grams = grams
        self._refuted: U64 = np.empty(0, np.uint64)  # pairs known not to be similar

    def join_band(self, pairs: Iterator[tuple[Rows, Rows]], budget: int) -> None:
        """Verify the candidates of one band; at most `budget` pairs are compared exactly."""
        different: list[int] = []
        for left, right in pairs:
            for a, b, key in self._likely(left, right):
                if self._sets.root(a) == self._sets.root(b):
                    continue
                if not budget:
                    break
                budget -= 1
                if self._similar(a, b):
                    self._sets.join(a, b)
                else:
                    different.append(key)
            if not budget:
                break
        self._refuted = np.union1d(self._refuted, np.array(different, np.uint64))[:REFUTED_MAX]

    def _likely(self, left: Rows, right: Rows) -> Iterator[tuple[int, int, int]]:
        """The pairs with enough equal slots that no earlier band has refuted."""
        keys = (left.astype(np.uint64) << np.uint64(32)) | right.astype(np.uint64)
        new = ~np.isin(keys, self._refuted)
        left, right, keys = left[new], right[new], keys[new]
        equal = np.count_nonzero(self._slots[left] == self._slots[right], axis=1)
        likely = np.flatnonzero(equal >= SLOTS_MIN)
        return zip(
            left[likely].tolist(), right[likely].tolist(), keys[likely].tolist(), strict=True
        )

    def _similar(self, a: int, b: int) -> bool:
        self._grams.load((a, b))
        similar = jaccard_at_least(self._grams.of(a), self._grams.of(b), SIMILAR_PERCENT)
        self._grams.trim()
        return similar


class _GramSets:
    """Sets of grams by row, computed from the file of texts, with a cache of the last used ones."""

    def __init__(self, texts: int, ends: NDArray[np.int64]) -> None:
        self._texts = texts
        self._ends = ends
        self._cache: OrderedDict[int, U64] = OrderedDict()
        self._grams = 0

    def load(self, rows: Sequence[int]) -> None:
        """Load the sets that are not in the cache, in the order of the file."""
        missing = [row for row in sorted(set(rows)) if row not in self._cache]
        for row, grams in zip(missing, self.read(missing), strict=True):
            self._cache[row] = grams
            self._grams += len(grams)

    def read(self, rows: Sequence[int] | Rows) -> Iterator[U64]:
        """Compute sets without keeping them in the cache."""
        for start in range(0, len(rows), READ_ROWS):
            yield from gram_sets([self._text(int(row)) for row in rows[start : start + READ_ROWS]])

    def of(self, row: int) -> U64:
        self._cache.move_to_end(row)
        return self._cache[row]

    def trim(self) -> None:
        while self._grams > CACHED_GRAMS_MAX:
            _, grams = self._cache.popitem(last=False)
            self._grams -= len(grams)

    def _text(self, row: int) -> str:
        start, end = int(self._ends[row]), int(self._ends[row + 1])
        return os.pread(self._texts, end - start, start).decode("utf-8", "surrogatepass")


def _large_buckets(rows: Rows, keys: NDArray[Any]) -> tuple[Rows, Rows]:
    """The rows of each bucket of at least `GROUP_ROWS_MIN` equal keys, and where buckets begin."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(begins, append=len(rows))
    large = counts >= GROUP_ROWS_MIN
    members = rows[order[np.repeat(large, counts)]]
    return members, np.cumsum(counts[large]) - counts[large]


def _join_group(rows: Rows, grams: "_GramSets", sets: UnionFind) -> Iterator[Rows]:
    """Unite the similar rows of a template group.

    Yields the rows in groups within which all pairs were compared.
    """
    template = template_of(list(grams.read(rows[:: -(-len(rows) // SAMPLE_ROWS)])))
    sizes: list[int] = []
    differences: list[U64] = []
    held = done = 0
    for at, own in enumerate(grams.read(rows), 1):
        sizes.append(len(own))
        differences.append(np.setxor1d(own, template, assume_unique=True))
        held += len(differences[-1])
        if held >= GROUP_GRAMS_MAX or at == len(rows):
            group = TemplateGroup(rows[done:at], np.array(sizes), differences)
            yield from join_similar(group, SIMILAR_PERCENT, sets)
            sizes, differences, held, done = [], [], 0, at


def _candidates(
    rows: Rows, band: U64, sets: UnionFind, settled: NDArray[np.int32]
) -> Iterator[tuple[Rows, Rows]]:
    """Yield pairs of rows with an equal band that are in different sets.

    Pairs with equal numbers in `settled` have been compared already and are left out. In each round
    the first remaining row of every bucket is paired with all later rows of the bucket.
    """
    order = np.argsort(band, kind="stable")
    members, ordered = rows[order], band[order]
    same = np.concatenate(([False], ordered[1:] == ordered[:-1]))
    bucket = np.cumsum(~same)
    for _ in range(PIVOTS_MAX):
        repeated = np.bincount(bucket)[bucket] > 1
        members, bucket = members[repeated], bucket[repeated]
        if not len(members):
            return
        begins = np.concatenate(([True], bucket[1:] != bucket[:-1]))
        pivots = members[np.maximum.accumulate(np.where(begins, np.arange(len(members)), 0))]
        for start in range(0, len(members), PAIRS_MAX):
            part = slice(start, start + PAIRS_MAX)
            left, right = pivots[part], members[part]
            apart = sets.roots(left) != sets.roots(right)
            apart &= settled[left] != settled[right]
            if apart.any():
                yield left[apart], right[apart]
        members, bucket = members[~begins], bucket[~begins]
