"""Rows against every benchmark in the folder of shared data, at n = 13 and n = 8.

Goal: 30,000 rows of 1 kB a second and core at n = 13. Beside it: the same search with Python's
strings and sets, as decontamination scripts do it.
"""

import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.data.synthetic_texts import Maker
from tunery.data.screening import benchmarks
from tunery.data.screening.contamination import (
    LOOSE_WORDS,
    STRICT_WORDS,
    BenchmarkIndex,
    BenchmarkItem,
)

FOLDER: Final = Path(__file__).parents[3] / "shared" / "data" / "datasets" / "bench"
ROWS: Final = 50_000
ROWS_BESIDE: Final = 5_000
QUICK: Final = 10  # times fewer
WORD: Final = re.compile(r"\w+")


def run(quick: bool) -> dict[str, float]:
    """Empty, with a line that says so, where the benchmarks are missing."""
    if not FOLDER.is_dir():
        what = f"contamination: skipped, there is no {FOLDER.name} folder of benchmark files"
        print(what, file=sys.stderr)
        return {}
    fewer = QUICK if quick else 1
    texts = Maker(seed=2).templated(ROWS // fewer)
    items = _items()
    strict = _rate(BenchmarkIndex(items, STRICT_WORDS), texts)
    return {
        "contamination_docs_per_s": strict,
        "contamination_docs_per_s_n8": _rate(BenchmarkIndex(items, LOOSE_WORDS), texts),
        "contamination_ratio_to_sets": strict / _sets(items, texts[: ROWS_BESIDE // fewer]),
        "contamination_items": len(items),
    }


def _items() -> list[BenchmarkItem]:
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(FOLDER.iterdir()):
            benchmarks.add(Path(folder), path.name.partition(".")[0].lower(), [path])
        return benchmarks.load(Path(folder))


def _rate(index: BenchmarkIndex, texts: Sequence[str]) -> float:
    began = time.process_time()
    for _ in index.overlaps(texts):
        pass
    return len(texts) / (time.process_time() - began)


def _sets(items: Sequence[BenchmarkItem], texts: Sequence[str]) -> float:
    known = {run for it in items for run in _runs(f"{it.question} {it.answer}")}
    began = time.process_time()
    for text in texts:
        known.intersection(_runs(text))
    return len(texts) / (time.process_time() - began)


def _runs(text: str) -> set[str]:
    found = WORD.findall(text.lower())
    return {" ".join(found[i : i + STRICT_WORDS]) for i in range(len(found) - STRICT_WORDS + 1)}
