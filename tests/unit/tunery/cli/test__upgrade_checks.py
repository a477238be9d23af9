"""`tunery doctor --upgrade`: what is left to do, in order, each with its fix."""

from tests.unit.tunery.runtime.tools.test_upgrade import process, state
from tunery.cli._upgrade_checks import diagnose, prepared


def test_topics_come_first() -> None:
    assert prepared([]).is_well
    behind = prepared(["tunery.levels.v1"])
    assert "tunery.levels.v1" in behind.detail
    assert behind.fix == "tunery kafka prepare"


def test_services_of_another_release_and_missing_ones_are_named() -> None:
    services, nodes, level = diagnose(state(process(1), missing=("scheduler",)), "0.2.0")
    assert services.detail == "no scheduler runs; billing@a:1 runs 0.1.0"
    assert services.fix == "start them with 0.2.0"
    assert nodes.is_well
    assert "reads up to level 1" in level.detail
    assert level.fix == "update these; until then you can still go back"


def test_the_last_step_is_to_finalize() -> None:
    services, _, level = diagnose(state(process(2)), "0.1.0")
    assert services.is_well
    assert level.fix == "tunery upgrade finalize"
