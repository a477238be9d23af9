"""The product's policy is one of those that can be played."""

from tunery.cli.simulate.policies import POLICIES
from tunery.plan.scheduling.policy import PRODUCT


def test_tunery_simulates_the_products_own_policy_and_baselines_preempt_nothing() -> None:
    assert POLICIES["tunery"] is PRODUCT
    own = {"tunery", "fair-hours"}
    assert all(each.preempting == 0 for name, each in POLICIES.items() if name not in own)
