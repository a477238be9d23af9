"""The simulated world meets every kind of command and event, or says why it does not."""

from collections import Counter

import pytest
from msgspec.structs import replace

from simulator.artifacts.scenario import ARTIFACTS
from simulator.control_plane.coverage import unmet, wrongly_excused
from simulator.control_plane.errands import ERRANDS
from simulator.control_plane.scenario import CONTROL_PLANE

DRAWN = range(5_001, 5_041)  # seeds that are played as they are drawn
EACH = range(1, 7)  # seeds of each errand
OF_ARTIFACTS = range(1, 101)


@pytest.mark.long
@pytest.mark.timeout(900)  # 260 runs
def test_review2_w1_runs_meet_every_kind_that_has_no_excuse() -> None:
    plans = [CONTROL_PLANE.plan(seed) for seed in DRAWN]
    plans += [
        replace(CONTROL_PLANE.plan(seed), errands=(name,), closings=seed % 2 == 0)
        for name in ERRANDS
        for seed in EACH
    ]
    kinds = Counter[str]()
    for plan in plans:
        verdict = CONTROL_PLANE.play(plan)
        assert verdict.violations == [], plan
        kinds.update(verdict.kinds)
    for seed in OF_ARTIFACTS:
        verdict = ARTIFACTS.play(ARTIFACTS.plan(seed))
        assert verdict.violations == [], seed
        kinds.update(verdict.kinds)
    assert unmet(kinds) == []
    assert wrongly_excused(kinds) == []
