from msgspec import structs

from simulator.control_plane.control_plane_sim import play
from simulator.control_plane.journals import SIZE
from simulator.control_plane.plan import ControlPlanePlan
from simulator.control_plane.scenario import CONTROL_PLANE
from simulator.engine.faults import Faults, FaultStep
from tests.unit.simulator.replayed_plans import assert_a_plan_decides_the_run


def test_a_plan_gives_the_same_verdict_again_traced_or_with_another_context() -> None:
    assert_a_plan_decides_the_run(CONTROL_PLANE, 2)


def test_a_run_of_hours_is_not_ended_by_the_limit_of_a_run_of_minutes() -> None:
    """`bench.rebuild` simulates 1,000 jobs in 8,000 s of virtual time."""
    size = structs.replace(SIZE, tenants=1, nodes=1, faulty_s=8_000)
    assert play(ControlPlanePlan(1, Faults(), 1), size).finished


def test_seed_377_an_attempt_that_is_cancelled_by_mistake_after_the_pools_kill_is_swept() -> None:
    """The simulated agent waited for the kill, which had come before: its slots were never free."""
    plan = ControlPlanePlan(
        377, Faults(steps=(FaultStep(63_237, "attempt cancelled"),)), jobs=1, changes=2
    )
    assert CONTROL_PLANE.play(plan).violations == []
