from simulator.control_plane.scenario import CONTROL_PLANE
from tests.unit.simulator.replayed_plans import assert_a_plan_decides_the_run


def test_a_plan_gives_the_same_verdict_again_traced_or_with_another_context() -> None:
    assert_a_plan_decides_the_run(CONTROL_PLANE, 2)
