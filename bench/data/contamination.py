"""Search for the items of every shared benchmark in rows, with runs of 13 and of 8 words.

Goal: 30,000 rows of 1 kB per second and core with runs of 13 words. It is compared with the same
search in Python strings and sets, as decontamination scripts do it.
"""

import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.data.synthetic_texts import TextGenerator
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
    """Measure the rates; skipped with a message when the benchmark files are missing."""
    if not FOLDER.is_dir():
        message = f"contamination: skipped, there is no {FOLDER.name} folder of benchmark files"
        print(message, file=sys.stderr)
        return {}
    fewer = QUICK if quick else 1
    texts = TextGenerator(seed=2).templated(ROWS // fewer)
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
    known = {run for item in items for run in _runs(f"{item.question} {item.answer}")}
    began = time.process_time()
    for text in texts:
        known.intersection(_runs(text))
    return len(texts) / (time.process_time() - began)


def _runs(text: str) -> set[str]:
    words = WORD.findall(text.lower())
    return {" ".join(words[i : i + STRICT_WORDS]) for i in range(len(words) - STRICT_WORDS + 1)}
