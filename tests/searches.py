"""How far the long searches go: a share of each in `make check`, all of it in `make test`.

This is the only place that names these numbers; decision 0017 has reasons and measurements. What is
beyond the share is marked `long`, and `make test` runs all that is marked so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pytest

CaseT = TypeVar("CaseT")


@dataclass(frozen=True)
class Search:
    """Seeds, or examples: the first `quick` of them are part of `make check`; `full`: all."""

    quick: int
    full: int

    def beginnings(self, first: int = 0, step: int = 1) -> Sequence[Any]:
        """Where each stretch of `step` seeds begins: parameters of a test, the later ones `long`.

        first: the number of the first seed.
        """
        return [
            pytest.param(first + seed, marks=pytest.mark.long if seed >= self.quick else ())
            for seed in range(0, self.full, step)
        ]


def first_quick(cases: Sequence[CaseT]) -> Sequence[Any]:
    """Parameters of a test: the first is part of `make check`, the others are `long`."""
    return [cases[0], *(pytest.param(case, marks=pytest.mark.long) for case in cases[1:])]


EVENT_CORE_SEEDS: Final = Search(quick=8, full=300)
ARTIFACTS_SEEDS: Final = Search(quick=3, full=60)
CONTROL_PLANE_SEEDS: Final = Search(quick=6, full=120)  # so many, for the rarest fault to occur
YEARS: Final = Search(quick=10, full=400)  # of bills, and of their exports
WALK_ATTEMPTS: Final = Search(quick=3, full=4)  # of one job: 1,800 and 13,000 states
UNIT_WORLDS: Final = Search(quick=4, full=80)  # of the scheduler, without hosts
CARRIED_POOLS: Final = Search(quick=1, full=6)  # worlds in which each plan is made twice
PLANNER_WALKS: Final = Search(quick=6, full=40)  # of a planner through a random cluster
STRAY_SEEDS: Final = Search(quick=2, full=8)  # of cancelled tasks of an agent: seconds of waiting
EXAMPLES: Final = Search(quick=6, full=24)  # of each property
