"""Plans of the control plane: one for each seed and size, varied enough to show something."""

from collections.abc import Callable

import pytest

from simulator.control_plane.plan import KINDS, ControlPlanePlan, Size, draw
from simulator.engine.faults import KINDS as SERVICES

PLANS = [draw(seed, Size()) for seed in range(1, 301)]


def test_a_plan_follows_from_its_seed_and_size() -> None:
    assert draw(7, Size()) == draw(7, Size())
    assert draw(7, Size()) != draw(8, Size())
    assert draw(7, Size()).seed == 7
    short, long = draw(7, Size(faulty_s=10)), draw(7, Size(faulty_s=1_000))
    assert all(step.at_ms <= 7_000 for step in short.faults.steps)
    assert any(step.at_ms > 7_000 for step in long.faults.steps)


def test_machines_fail_in_ways_that_services_do_not() -> None:
    assert SERVICES.keys() < KINDS.keys()
    machines = KINDS.keys() - SERVICES.keys()
    drawn = {step.kind for plan in PLANS for step in plan.faults.steps}
    assert machines <= drawn <= KINDS.keys()


@pytest.mark.parametrize(
    ("name", "is_set", "runs"),
    [
        ("changes of mind", lambda plan: plan.changes > 0, range(130, 230)),
        ("new limits", lambda plan: plan.new_limits > 0, range(50, 130)),
        ("failures", lambda plan: plan.failures > 0, range(60, 150)),
        ("rotten checkpoints", lambda plan: plan.rotten > 0, range(60, 150)),
        ("stuck processes", lambda plan: plan.stuck > 0, range(30, 100)),
        ("narrow limits", lambda plan: plan.narrow, range(80, 170)),
        ("a new month", lambda plan: plan.new_month, range(50, 140)),
        ("outages at its turn", lambda plan: plan.month_outage and plan.new_month, range(20, 60)),
        ("new prices", lambda plan: plan.new_prices > 0, range(80, 160)),
        ("suspensions", lambda plan: plan.suspensions > 0, range(60, 140)),
        ("exits that are noticed late", lambda plan: plan.unnoticed > 0, range(40, 115)),
        ("jobs of several nodes", lambda plan: plan.gangs > 0, range(80, 160)),
        ("networks between them that fail", lambda plan: plan.cuts > 0, range(30, 90)),
        ("elastic nodes", lambda plan: plan.elastic, range(30, 65)),
        ("long trainings", lambda plan: plan.long, range(3, 30)),
    ],
)
def test_each_difficulty_comes_in_some_runs_and_not_in_all(
    name: str, is_set: Callable[[ControlPlanePlan], bool], runs: range
) -> None:
    assert sum(map(is_set, PLANS)) in runs, name


def test_numbers_stay_within_what_they_mean() -> None:
    for plan in PLANS:
        assert 2 <= plan.jobs <= 5
        for share in (
            plan.failures,
            plan.rotten,
            plan.stubborn,
            plan.stuck,
            plan.unnoticed,
            plan.cuts,
        ):
            assert 0 <= share <= 100
        assert not plan.long or plan.stubborn in (0, 100)
