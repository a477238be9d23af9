"""Slowest rank of a training, for which the others wait in each step."""

from collections import deque
from statistics import fmean, median
from typing import Final, NamedTuple

from schemas.units import Ms

STEPS: Final = 20  # the newest, all of which have to be there
SLOW: Final = 1.5  # times what is usual


class SlowestRank(NamedTuple):
    """A rank, and the time of its micro-batches as a multiple of what is usual in the others."""

    number: int
    ratio: float

    @property
    def is_slow(self) -> bool:
        return self.ratio >= SLOW


class RankTimes:
    """Time that each rank took for its micro-batches in the newest steps."""

    def __init__(self) -> None:
        self._steps: deque[tuple[Ms, ...]] = deque(maxlen=STEPS)

    def add(self, rank_ms: tuple[Ms, ...]) -> None:
        """Record one more step: `StepCompleted.rank_ms`."""
        if rank_ms:
            self._steps.append(rank_ms)

    def slowest(self) -> SlowestRank | None:
        """Return the slowest rank; None: there are too few steps, or one rank."""
        if len(self._steps) < STEPS:
            return None
        means = [
            fmean([ms for ms in times if ms] or [0]) for times in zip(*self._steps, strict=True)
        ]
        number = max(range(len(means)), key=means.__getitem__)
        usual = median(means[:number] + means[number + 1 :])
        return SlowestRank(number, means[number] / usual) if usual else None
