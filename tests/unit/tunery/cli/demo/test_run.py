"""Which services the demo starts, and in which order it goes."""

from tunery.cli.demo.run import STEPS, services
from tunery.local.stack import ServiceSpec


def test_the_demo_starts_its_agents_itself_and_its_notifier_may_call_it() -> None:
    specs = {spec.name: spec for spec in services() if isinstance(spec, ServiceSpec)}
    names = [spec.name if isinstance(spec, ServiceSpec) else spec for spec in services()]
    assert "trainer" not in names
    assert len(names) == len(set(names))
    assert specs["notifier"].env == {"TUNERY_NOTIFIER_ALLOW_PRIVATE": "1"}


def test_a_job_is_estimated_before_it_is_submitted_and_billed_after_its_node_was_killed() -> None:
    names = [step.__name__ for step in STEPS]
    wanted = ["estimate", "submit", "train_and_kill", "resume", "gate", "bill"]
    assert [name for name in names if name in wanted] == wanted
