"""Near duplicates, from the bytes of a JSONL file to clusters, compared with datasketch.

Goals: 15,000 rows of 200 characters per second; 3,000 rows of 1 kB per second when they come from
sixty templates or from one (40 % near duplicates); 99 % of the rows that the exact join of all rows
removes, and no others.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
from datasketch import MinHash, MinHashLSH

from bench.data.synthetic_texts import TextGenerator
from tunery.data.dialects.conversation import Conversation
from tunery.data.likeness.clusters import SIMILAR_PERCENT, Clusters
from tunery.data.likeness.duplicates import DuplicateFinder
from tunery.data.likeness.minhash import (
    BAND_SLOTS,
    BANDS,
    GRAM_CHARS,
    SLOTS,
    gram_sets,
    jaccard_at_least,
)

SHORT_ROWS: Final = 100_000
TEMPLATED_ROWS: Final = 20_000
JOINED_ROWS: Final = 6_000  # the exact join grows with the square
JOINED_ONE_TEMPLATE: Final = 1_500  # where every row is a candidate of every other
DATASKETCH_ROWS: Final = 2_000  # its rate does not depend on the number
QUICK: Final = 10  # times fewer


def run(quick: bool) -> dict[str, float]:
    """Measure the rates on three kinds of rows, and compare the clusters with the exact join."""
    fewer = QUICK if quick else 1
    generator = TextGenerator(seed=1)
    short = generator.short(SHORT_ROWS // fewer)
    templated = generator.templated(TEMPLATED_ROWS // fewer)
    one_template = generator.one_template(TEMPLATED_ROWS // fewer)
    short_rate, templated_rate, one_rate = _rate(short), _rate(templated), _rate(one_template)
    beside = DATASKETCH_ROWS // fewer
    ratios = (
        short_rate / _datasketch(short[:beside]),
        templated_rate / _datasketch(templated[:beside]),
    )
    many = _compare(templated[: JOINED_ROWS // fewer])
    single = _compare(one_template[: JOINED_ONE_TEMPLATE // fewer])
    return {
        "neardup_short_rows_per_s": short_rate,
        "neardup_templated_rows_per_s": templated_rate,
        "neardup_one_template_rows_per_s": one_rate,
        "neardup_ratio_to_datasketch": min(ratios),
        "neardup_recall": many[0],
        "neardup_one_template_recall": single[0],
        "neardup_wrong": many[1] + single[1],
    }


def _compare(texts: Sequence[str]) -> tuple[float, int]:
    """The share of the rows removed by the exact join that we remove, and how many others."""
    truth, removed = _exact_join(texts), _removed_rows(_stage(_file(texts)))
    return len(truth & removed) / len(truth), len(removed - truth)


def _rate(texts: Sequence[str]) -> float:
    content = _file(texts)
    began = time.process_time()
    _stage(content)
    return len(texts) / (time.process_time() - began)


def _file(texts: Sequence[str]) -> bytes:
    return b"".join(msgspec.json.encode({"text": text}) + b"\n" for text in texts)


def _stage(content: bytes) -> Clusters:
    """Read, decode, normalise, hash, sign, join and verify rows on one core."""
    with tempfile.TemporaryDirectory() as folder, DuplicateFinder(Path(folder)) as finder:
        for line in content.splitlines():
            text = msgspec.json.decode(line)["text"]
            finder.add(Conversation([{"role": "user", "content": text}], [False]))
        return finder.clusters()


def _removed_rows(clusters: Clusters) -> set[int]:
    return {row for row, first in enumerate(clusters.first.tolist()) if row != first}


def _datasketch(texts: Sequence[str]) -> float:
    """Rows per second of datasketch with the same bands, without verification of pairs."""
    began = time.process_time()
    index = MinHashLSH(num_perm=SLOTS, params=(BANDS, BAND_SLOTS))
    for row, text in enumerate(texts):
        normal = " ".join(text.lower().split())
        grams = {normal[i : i + GRAM_CHARS].encode() for i in range(len(normal) - GRAM_CHARS + 1)}
        signature = MinHash(num_perm=SLOTS)
        signature.update_batch(grams)
        index.query(signature)
        index.insert(row, signature)
    return len(texts) / (time.process_time() - began)


def _exact_join(texts: Sequence[str]) -> set[int]:
    """The rows that a chain of pairs with 90 % similarity connects to an earlier row.

    Prefix filter (Chaudhuri 2006): with grams ordered from rare to common, two sets that share 90 %
    of their union have a gram in common among the first 10 % of each.
    """
    sets = gram_sets(texts)
    frequency: defaultdict[int, int] = defaultdict(int)
    for grams in sets:
        for gram in grams.tolist():
            frequency[gram] += 1
    rows_by_gram: defaultdict[int, list[int]] = defaultdict(list)
    first = list(range(len(texts)))

    def root(row: int) -> int:
        while first[row] != row:
            row = first[row] = first[first[row]]
        return row

    for row, grams in enumerate(sets):
        ordered = sorted(grams.tolist(), key=lambda gram: (frequency[gram], gram))
        prefix = ordered[: len(ordered) - ceil(SIMILAR_PERCENT * len(ordered) / 100) + 1]
        for other in sorted({other for gram in prefix for other in rows_by_gram[gram]}):
            if root(row) != root(other) and jaccard_at_least(grams, sets[other], SIMILAR_PERCENT):
                a, b = root(row), root(other)
                first[max(a, b)] = min(a, b)
        for gram in prefix:
            rows_by_gram[gram].append(row)
    return {row for row in range(len(texts)) if root(row) != row}
