"""What tenants used of late decides who goes first, where a policy says so."""

from dataclasses import replace

from tests.unit.tunery.plan.scheduling.clusters import (
    HOUR,
    cluster,
    nodes,
    plan_at,
    ran,
    request,
    started,
)
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.queue import Shares

DAY = 24 * HOUR
BY_USE = replace(PRODUCT, share_half_life_ms=DAY)


def test_use_counts_for_half_after_a_half_life() -> None:
    shares = Shares(DAY)
    shares.charge("early", 8 * HOUR, 0)
    shares.charge("late", 4 * HOUR, DAY)
    assert shares.level("early") == shares.level("late")
    shares.charge("later", 4 * HOUR, 2 * DAY)
    assert shares.level("later") == shares.level("late") + 1
    assert shares.level("nobody") == 0


def test_between_two_half_lives_the_weight_grows_in_proportion() -> None:
    whole, half = Shares(DAY), Shares(DAY)
    whole.charge("a", 3 * HOUR, 0)
    half.charge("a", 2 * HOUR, DAY // 2)
    assert whole.level("a") == half.level("a")


def test_what_was_charged_and_not_used_is_given_back_and_never_more() -> None:
    shares = Shares(DAY)
    shares.charge("a", 8 * HOUR, HOUR)
    shares.charge("a", -8 * HOUR, HOUR)
    assert shares.level("a") == 0
    shares.charge("a", -HOUR, HOUR)
    shares.charge("a", 1, 0)
    assert shares.level("a") > 0


def test_a_tenant_that_used_much_goes_after_one_that_holds_more_slots() -> None:
    waiting = request("a"), request("b", tenant="globex")
    for policy, first in ((PRODUCT, "a"), (BY_USE, "b")):
        state = cluster(nodes(2), *waiting, policy=replace(policy, kept_max=0))
        used = ran(request("long", hours=9), (("a", 1),), 9 * HOUR, 9 * HOUR)
        state.start(used)
        state.end("long", 9 * HOUR)
        state.start(ran(request("held", tenant="globex"), (("a", 1),), HOUR, 10 * HOUR))
        assert list(started(plan_at(state, 10 * HOUR))) == [first]


def test_a_start_counts_at_once_for_what_it_is_expected_to_use() -> None:
    waiting = request("a"), request("b", tenant="globex")
    state = cluster(nodes(2), *waiting, policy=BY_USE)
    state.start(ran(request("r", hours=2), (("a", 1),), 0, 0))
    assert list(started(plan_at(state, 0))) == ["b"]
