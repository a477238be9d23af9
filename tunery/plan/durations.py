"""Expected time of work, from ended work of its class and from its own progress.

The estimate of a submission comes from a formula. Here it is corrected twice: before the start by
the ratios of actual to estimated time of the class's last successes, and while it runs by the steps
that its checkpoints prove. Both are integers, bounded, and a function of facts alone.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.training import ExpectedTime
from schemas.units import PPM, Ms, divide_up

# Ratios of actual to estimated time are counted in buckets, each 19 % wide: from 1/32 to 32.
_QUARTERS: Final = (1_000_000, 1_189_207, 1_414_214, 1_681_793)  # 2 ** (0, ¼, ½, ¾)
RATIOS_PPM: Final = tuple((_QUARTERS[k % 4] << (k // 4)) // 32 for k in range(41))
SAMPLES_MIN: Final = 8  # of a class, before its ratios are used
SAMPLES_MAX: Final = 200  # then all counts are halved, so that what is new weighs more
CLASSES_MAX: Final = 512
# The first steps are slower: before this step progress says nothing about the speed.
STEPS_MIN: Final = 20
# Until the last checkpoint is written and stored; and how much slower the rest may be.
FINISH_MS: Final[Ms] = 30_000
MARGIN_MS: Final[Ms] = 60_000
MARGIN_SHARE: Final = 4


class Ratios(Struct, frozen=True):
    """Ratios of actual to estimated time of one class of work."""

    # ratios counted in each bucket of `RATIOS_PPM`; the last one also has all that are larger
    counts: tuple[int, ...]
    learnt_at: Ms  # time at which the last ratio was counted

    @property
    def samples(self) -> int:
        """Number of samples."""
        return sum(self.counts)

    def quantile_ppm(self, percent: int) -> int:
        """The upper edge of the bucket that contains a percentile."""
        needed, seen = divide_up(self.samples * percent, 100), 0
        for edge_ppm, count in zip(RATIOS_PPM, self.counts, strict=True):
            seen += count
            if seen >= needed:
                return edge_ppm
        return RATIOS_PPM[-1]


History: TypeAlias = Map[str, Ratios]


def learn(
    history: History, classes: Sequence[str], estimate_ms: Ms, took_ms: Ms, at: Ms
) -> History:
    """Add the time of ended work to the history of its classes.

    Where there are too many classes, the one that was updated the longest time ago is forgotten.
    """
    if estimate_ms < 1:
        return history
    bucket = min(bisect_left(RATIOS_PPM, took_ms * PPM // estimate_ms), len(RATIOS_PPM) - 1)
    for name in classes:
        known = history.get(name)
        counts = list(known.counts) if known is not None else [0] * len(RATIOS_PPM)
        counts[bucket] += 1
        if sum(counts) >= SAMPLES_MAX:
            counts = [count // 2 for count in counts]
        history = history.set(name, Ratios(tuple(counts), at))
    while len(history) > CLASSES_MAX:
        history = history.delete(min(history, key=lambda name: (history[name].learnt_at, name)))
    return history


def expect(
    history: History, classes: Sequence[str], estimate_ms: Ms, limit_ms: Ms
) -> ExpectedTime | None:
    """How long work should take, by the first of its classes that has enough ended work.

    limit_ms: it is stopped then. None: no class has enough.
    """
    for name in classes:
        ratios = history.get(name)
        if ratios is not None and ratios.samples >= SAMPLES_MIN:
            p50_ms = _bounded(estimate_ms * ratios.quantile_ppm(50) // PPM, limit_ms)
            p90_ms = _bounded(estimate_ms * ratios.quantile_ppm(90) // PPM, limit_ms)
            return ExpectedTime(p50_ms=p50_ms, p90_ms=p90_ms)
    return None


def follow(
    expected: ExpectedTime, limit_ms: Ms, elapsed_ms: Ms, first_step: int, steps: int, done: int
) -> ExpectedTime:
    """How long running work should take from its start, by its last checkpoint.

    limit_ms: it is stopped then. elapsed_ms: from the start to that checkpoint. first_step: of the
    checkpoint that it began with. steps: to do at its start; 0: it has none. done: how many are.
    """
    if steps < 1:
        return expected
    if done < STEPS_MIN:  # what an earlier attempt did is not done again
        return ExpectedTime(
            p50_ms=expected.p50_ms * steps // (first_step + steps),
            p90_ms=expected.p90_ms * steps // (first_step + steps),
        )
    left_ms = elapsed_ms * max(0, steps - done) // done + FINISH_MS
    p90_ms = elapsed_ms + left_ms + left_ms // MARGIN_SHARE + MARGIN_MS
    return ExpectedTime(
        p50_ms=_bounded(elapsed_ms + left_ms, limit_ms), p90_ms=_bounded(p90_ms, limit_ms)
    )


def _bounded(time_ms: Ms, limit_ms: Ms) -> Ms:
    return max(1, min(time_ms, limit_ms))
