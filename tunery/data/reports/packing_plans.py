"""Predicts at the check how many packed rows preparation will give for usual lengths and splits."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.dataset import SPLIT_SEED, PackPlan
from tunery.data.findings.limits import PACK_WINDOW_ROWS, PACK_WINDOW_TOKENS
from tunery.data.likeness.clusters import Clusters
from tunery.data.likeness.splitting import I64, TRAIN, split
from tunery.data.tokens.packing import pack

LENGTHS: Final = (128, 256, 512, 1024, 2048, 4096, 8192)
FRACTIONS_PPM: Final = (0, 50_000, 100_000)


def packing_plans(
    lengths: Sequence[int], clusters: Clusters, used: NDArray[np.bool_], classes: I64 | None
) -> tuple[PackPlan, ...]:
    """The packing plans for the lengths and splits under which no row is too long.

    lengths: [n], tokens of each valid row
    clusters: similar rows
    used: [n], whether the screening policy keeps each row
    classes: [n], class of each row; None without classes

    Exact for up to `PACK_WINDOW_ROWS` training rows; for more, extrapolated from the first ones.
    """
    tokens = np.asarray(lengths, np.int64)
    longest = int(tokens[used].max(initial=0))
    plans: list[PackPlan] = []
    for fraction in FRACTIONS_PPM:
        sides = split(clusters, used, classes, fraction, SPLIT_SEED)
        train = tokens[sides == TRAIN]
        if len(train):
            plans += (_plan(train, length, fraction) for length in LENGTHS if longest <= length)
    return tuple(plans)


def _plan(train: I64, length: int, fraction: int) -> PackPlan:
    total = int(train.sum())
    full = np.flatnonzero(np.cumsum(train) >= PACK_WINDOW_TOKENS)
    rows = min(PACK_WINDOW_ROWS, int(full[0]) + 1 if len(full) else len(train))
    window = train[:rows]
    packed = len(pack(window, length).sizes)
    return PackPlan(
        max_length=length,
        validation_fraction_ppm=fraction,
        packed_rows=-(-packed * total // int(window.sum())),
        tokens=total,
    )
