"""The orders in which requests are served."""

from dataclasses import replace

from tests.unit.tunery.plan.scheduling.clusters import HOUR, needs, request
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.queue import Queue, in_order, shortest_first
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
