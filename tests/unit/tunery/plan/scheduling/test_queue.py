"""The orders in which requests are served."""

from dataclasses import replace

from tests.unit.tunery.plan.scheduling.clusters import (
    HOUR,
    cluster,
    needs,
    nodes,
    plan_at,
    ran,
    request,
    started,
)
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.queue import Queue, Shares, in_order, shortest_first
from tunery.plan.scheduling.requests import RequestClass

STANDARD, FREE = 1, 2


def queue(*jobs: str, lane: str = "standard") -> Queue:
    """Requests `tenant/job/hours`, submitted a second apart."""
    waiting = Queue(PRODUCT)
    for number, job in enumerate(jobs):
        tenant, job_id, hours = job.split("/")
        each = request(job_id, lane=lane, hours=int(hours), tenant=tenant)
        waiting.add(replace(each, submitted_at=1_000 * number))
    return waiting


def order(waiting: Queue, lane: int = STANDARD, **more: int) -> list[str]:
    return [each.job_id for each in in_order(waiting, lane, more, set())]


def test_a_lane_goes_by_the_slots_of_tenants_and_then_by_their_ranks() -> None:
    waiting = queue("acme/a/2", "acme/b/1", "globex/c/9")
    assert order(waiting) == ["b", "a", "c"]
    assert order(waiting, acme=1) == ["c", "b", "a"]
    waiting.count("acme", 2)
    assert order(waiting) == ["c", "b", "a"]
    assert order(waiting, globex=3) == ["b", "a", "c"]
    waiting.count("acme", -2)
    assert waiting.held == {}
    removed = waiting.remove("b")
    assert (removed.job_id, order(waiting)) == ("b", ["a", "c"])


def test_shares_and_closed_classes_may_change_on_the_way() -> None:
    waiting = queue("acme/a/1", "acme/b/1", "globex/c/2")
    waiting.add(replace(request("wide", 4, tenant="acme"), submitted_at=0))
    held, closed = {"acme": 0}, set[RequestClass]()
    served = []
    for each in in_order(waiting, STANDARD, held, closed):
        served.append(each.job_id)
        held[each.tenant] = held.get(each.tenant, 0) + 1
        closed.add(needs(4))
    assert served == ["a", "c", "b"]


def test_the_shortest_goes_first_behind_a_reservation() -> None:
    waiting = queue("acme/a/3", "globex/b/1", "acme/c/2")
    assert [each.job_id for each in shortest_first(waiting, STANDARD, set())] == ["b", "c", "a"]
    assert list(shortest_first(waiting, STANDARD, {needs(1)})) == []


def test_old_free_requests_change_their_lane_once() -> None:
    waiting = queue("acme/a/1", "acme/b/1", "acme/c/1", lane="free")
    waiting.remove("a")
    waiting.age(PRODUCT.aged_ms + 1_000)
    waiting.age(PRODUCT.aged_ms + 1_000)
    assert (order(waiting, STANDARD), order(waiting, FREE)) == (["b"], ["c"])
    waiting.remove("b")
    waiting.age(PRODUCT.aged_ms + HOUR)
    assert (order(waiting, STANDARD), order(waiting, FREE)) == (["c"], [])


def test_a_clock_that_is_set_back_makes_requests_young_again() -> None:
    waiting = queue("acme/a/1", lane="free")
    waiting.age(PRODUCT.aged_ms)
    assert order(waiting, STANDARD) == ["a"]
    waiting.age(PRODUCT.aged_ms - 1)
    assert (order(waiting, STANDARD), order(waiting, FREE)) == ([], ["a"])
    waiting.age(PRODUCT.aged_ms)
    assert order(waiting, STANDARD) == ["a"]


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
