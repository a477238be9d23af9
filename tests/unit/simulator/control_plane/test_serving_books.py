"""Books of serving pools find those that wait although they could have a replica more."""

from typing import Any

from msgspec.structs import replace

from schemas import errors
from schemas.job import LimitsSet
from schemas.reasons import failing, refusing
from schemas.serving import ReplicaTerms, ServingPoolSet, ServingPoolStalled, ServingPoolTerms
from simulator.control_plane.quota_books import Quota
from simulator.control_plane.samples import BASE, POOL, T0, limits, spec
from simulator.control_plane.serving_books import ServingBooks

REPLICA = ReplicaTerms(base=BASE, pool=POOL, slots=1, memory_bytes=1, term_ms=60_000)
TERMS = ServingPoolTerms(serving_pool_id="sp", replicas=1, replica=REPLICA, price=spec().price)
PLAN = LimitsSet(terms=limits().terms)
SET = ServingPoolSet(terms=TERMS, lane=PLAN.terms.lane)


def violated(*decisions: tuple[Any, ...]) -> list[str]:
    quota = Quota()
    books = ServingBooks(quota)
    for events in decisions:
        quota.enter("acme", None, events, T0)
        books.enter("acme", events, T0)
    return [violation.partition(":")[0] for violation in books.violations]


def test_review2_s1_a_pool_that_could_rise_is_stuck() -> None:
    assert violated((PLAN,), (SET,)) == ["stuck"]
    full = replace(PLAN.terms.limits, hard_gpu_ms=59_999)
    assert violated((LimitsSet(terms=replace(PLAN.terms, limits=full)),), (SET,)) == []
    none = ServingPoolSet(terms=replace(TERMS, replicas=0), lane=SET.lane)
    assert violated((PLAN,), (none,)) == []


def test_review2_s1_a_pool_is_given_up_after_failures_alone() -> None:
    given_up = ServingPoolStalled(
        serving_pool_id="sp",
        code=errors.ATTEMPTS_EXHAUSTED,
        reason=failing("attempts_failed", attempts=5),
    )
    assert violated((PLAN,), (SET, given_up)) == ["stuck"]
    limit = refusing("hard_limit", hold_gpu_ms=1, left_gpu_ms=0, limit_gpu_ms=1)
    stalled = ServingPoolStalled(serving_pool_id="sp", code=errors.HARD_LIMIT, reason=limit)
    assert violated((PLAN,), (SET, stalled)) == ["stuck"], "the limit leaves room"
