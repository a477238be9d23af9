"""Packing as preparation does it, window by window; TRL's best-fit decreasing on the same lengths.

Goals: a million sequences a second, and 99.9 % of every row used. Fill counts every row, also the
last of each window.
"""

import time
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from trl import data_utils

from tunery.data.findings.limits import PACK_WINDOW_ROWS
from tunery.data.tokens.packing import pack

SEQUENCES: Final = 1_000_000
SEQUENCES_BESIDE: Final = 50_000
CAPACITY: Final = 2_048
QUICK: Final = 10  # times fewer


def run(quick: bool) -> dict[str, float]:
    fewer = QUICK if quick else 1
    lengths = _lengths(SEQUENCES // fewer)
    began = time.process_time()
    rows = 0
    for start in range(0, len(lengths), PACK_WINDOW_ROWS):
        rows += len(pack(lengths[start : start + PACK_WINDOW_ROWS], CAPACITY).sizes)
    rate = len(lengths) / (time.process_time() - began)
    beside, beside_fill = _trl(lengths[: SEQUENCES_BESIDE // fewer])
    return {
        "packing_sequences_per_s": rate,
        "packing_fill": int(lengths.sum()) / (rows * CAPACITY),
        "packing_ratio_to_trl": rate / beside,
        "packing_fill_trl": beside_fill,
    }


def _lengths(count: int) -> NDArray[np.int64]:
    """Log-normal, median 190 tokens: what chats look like."""
    random = np.random.default_rng(3)
    drawn = random.lognormal(np.log(190), 0.8, count).astype(np.int64)
    return np.clip(drawn, 8, CAPACITY)


def _trl(lengths: NDArray[np.int64]) -> tuple[float, float]:
    """Sequences/s and fill of TRL, which moves the tokens too: a byte each here."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    tokens = pa.array(np.zeros(int(offsets[-1]), np.int8))
    table: Any = pa.table(
        {"input_ids": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), tokens)}
    )
    began = time.process_time()
    packed = data_utils._pack_bfd(table, CAPACITY)
    taken = time.process_time() - began
    return len(lengths) / taken, int(lengths.sum()) / (len(packed) * CAPACITY)
