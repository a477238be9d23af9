from simulator.event_core.scenario import EVENT_CORE
from tests.unit.simulator.replayed_plans import assert_a_plan_decides_the_run


def test_a_plan_gives_the_same_verdict_again_traced_or_with_another_context() -> None:
    assert_a_plan_decides_the_run(EVENT_CORE, 5)
