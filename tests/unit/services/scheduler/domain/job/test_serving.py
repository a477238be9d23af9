"""Serving pools: terms in place of replicas, renewed, replaced, held and settled."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.account import Lane
from schemas.admission import TENANT_BUDGET, BudgetCounted, BudgetTerms, SetBudget, SetSuspension
from schemas.billing import Rate
from schemas.envelope import Rejected, Tick
from schemas.job import RecordClosed, RecordDraining, RecordStarted, RecordUsage, SetLimits
from schemas.pool import AttemptEnd, EndAuthor
from schemas.reasons import ending
from schemas.serving import (
    RemoveServingPool,
    ReplicaTerms,
    ServingPoolRemoved,
    ServingPoolStalled,
    ServingPoolTerms,
    ServingTermBegun,
    ServingTermEnded,
    ServingTermUnwanted,
    SetServingPool,
)
from schemas.streams import MESSAGE_BYTES_MAX
from schemas.submission import KeyCap, Price, UsageSource
from schemas.training import AttemptOutcome, AttemptStart, FailureCause, ServeWork
from schemas.units import DAY_MS, HOUR_MS, hour_of
from services.scheduler.domain.job.quota import month_standing
from services.scheduler.domain.job.serving import (
    FAILURES_MAX,
    FRUITLESS_MAX,
    REPLICAS_MAX,
    SERVING_POOLS_MAX,
)
from simulator.control_plane.samples import BASE, MINUTE, POOL, T0, limits
from tests.unit.services.scheduler.fold import Decider, names, of
from tests.unit.services.scheduler.lives import TENANT, new_tenant
from tunery.billing.periods import period_of

TERM_MS = HOUR_MS
PRICE = Price(version="2026-11", currency="EUR", gpu_hour_micro=2_000_000, lane="standard")
REPLICA = ReplicaTerms(base=BASE, pool=POOL, slots=2, memory_bytes=1_000_000_000, term_ms=TERM_MS)


def wanted(replicas: int = 2, name: str = "sp_1", **changes: Any) -> SetServingPool:
    terms = ServingPoolTerms(
        serving_pool_id=name, replicas=replicas, replica=REPLICA, price=PRICE, key_id="key_1"
    )
    return SetServingPool(terms=replace(terms, **changes))


def closed(
    term_id: str,
    outcome: AttemptOutcome = "preempted",
    cause: FailureCause | None = None,
    ended_by: EndAuthor = "scheduler",
    billable: int = 0,
) -> RecordClosed:
    end = AttemptEnd(
        outcome=outcome,
        ended_by=ended_by,
        reason=ending("exited"),
        cause=cause,
        node_ids=("a",),
        used_gpu_ms=billable,
        billable_gpu_ms=billable,
    )
    return RecordClosed(job_id=term_id, attempt=1, role="serve", end=end)


def used(term_id: str, gpu_ms: int) -> RecordUsage:
    source = UsageSource(role="serve")
    return RecordUsage(
        job_id=term_id, attempt=1, hour_utc=hour_of(T0), gpu_ms=gpu_ms, source=source
    )


def begun(events: tuple[Any, ...]) -> list[str]:
    return [event.placement.job_id for event in events if isinstance(event, ServingTermBegun)]


def unwanted(events: tuple[Any, ...]) -> list[str]:
    return [event.term_id for event in events if isinstance(event, ServingTermUnwanted)]


def refusal(events: tuple[Any, ...]) -> tuple[str, str]:
    rejected = of(events, Rejected)
    return rejected.code, rejected.reason.code


def held(decider: Decider) -> int:
    return month_standing(decider.state[TENANT], TENANT_BUDGET, "EUR", T0).held_gpu_ms


def test_every_replica_is_a_term_with_a_hold_and_a_placement() -> None:
    decider = new_tenant().accept(limits())
    events = decider.when(wanted(2))
    assert names(events) == ["ServingPoolSet", "ServingTermBegun", "ServingTermBegun"]
    assert begun(events) == ["sp_1-1", "sp_1-2"]
    term = events[1]
    assert (term.hold_gpu_ms, term.price_max_micro) == (2 * TERM_MS, 4_000_000)
    placement = term.placement
    assert (placement.role, placement.lane, placement.slots) == ("serve", "standard", 2)
    assert (placement.max_gpu_ms, placement.attempt) == (2 * TERM_MS, 1)
    work = term.description.work
    assert isinstance(work, ServeWork)
    assert (work.serving_pool_id, work.base_sha256) == ("sp_1", BASE.sha256)
    assert term.description.work_id == placement.work_id
    assert held(decider) == 4 * TERM_MS
    assert decider.refolded() == decider.state


def test_the_next_term_begins_when_one_drains_and_the_old_hold_goes_back() -> None:
    decider = new_tenant().accept(limits(), wanted(1))
    start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=0)
    assert decider.when(RecordStarted(job_id="sp_1-1", attempt=1, start=start)) == ()
    decider.accept(used("sp_1-1", TERM_MS))
    assert held(decider) == TERM_MS
    draining = RecordDraining(job_id="sp_1-1", attempt=1)
    events = decider.when(draining)
    assert names(events) == ["ServingTermDraining", "ServingTermBegun"]
    assert begun(events) == ["sp_1-2"]
    assert decider.when(draining) == ()
    decider.accept(used("sp_1-1", TERM_MS - MINUTE))
    events = decider.when(closed("sp_1-1", "failed", "budget", "budget", 2 * TERM_MS - MINUTE))
    assert names(events) == ["ServingTermEnded"]
    assert of(events, ServingTermEnded).released_gpu_ms == MINUTE
    assert held(decider) == 2 * TERM_MS
    use = month_standing(decider.state[TENANT], "key_1", "EUR", T0)
    assert use.used_gpu_ms == 2 * TERM_MS - MINUTE
    assert use.used_micro == 4_000_000 - 33_333
    assert decider.when(closed("sp_1-1")) == ()


def test_a_lost_replica_is_replaced() -> None:
    decider = new_tenant().accept(limits(), wanted(2))
    events = decider.when(closed("sp_1-2", "lost", ended_by="node"))
    assert names(events) == ["ServingTermEnded", "ServingTermBegun"]
    assert begun(events) == ["sp_1-3"]


def test_scaling_down_ends_the_newest_and_never_asks_twice() -> None:
    decider = new_tenant().accept(limits(), wanted(3))
    events = decider.when(wanted(1))
    assert unwanted(events) == ["sp_1-3", "sp_1-2"]
    request = events[1].request
    assert (request.mode, request.ended_by) == ("drain", "tenant")
    assert unwanted(decider.when(wanted(1))) == []
    assert begun(decider.when(wanted(2))) == ["sp_1-4"]  # what drains does not come back
    assert begun(decider.when(closed("sp_1-3", ended_by="tenant"))) == []


def test_removing_drains_what_is_left_and_its_name_may_be_used_again() -> None:
    decider = new_tenant().accept(limits(), wanted(2))
    events = decider.when(RemoveServingPool(serving_pool_id="sp_1"))
    assert names(events) == ["ServingPoolRemoved", "ServingTermUnwanted", "ServingTermUnwanted"]
    assert of(events, ServingPoolRemoved).serving_pool_id == "sp_1"
    assert names(decider.when(closed("sp_1-1", ended_by="tenant"))) == ["ServingTermEnded"]
    assert held(decider) == 2 * TERM_MS
    gone = decider.when(RemoveServingPool(serving_pool_id="sp_1"))
    assert refusal(gone) == (errors.NOT_FOUND, "serving_pool_missing")
    assert begun(decider.when(wanted(1))) == ["sp_1-3"]


def test_failures_in_a_row_stall_it_until_it_is_set_again() -> None:
    decider = new_tenant().accept(limits(), wanted(1))
    for number in range(1, FAILURES_MAX):
        events = decider.when(closed(f"sp_1-{number}", "failed", "bad_node", "node"))
        assert of(events, ServingTermBegun).placement.excluded_nodes == ("a",)
    events = decider.when(closed(f"sp_1-{FAILURES_MAX}", "failed", "platform", "platform"))
    assert names(events) == ["ServingTermEnded", "ServingPoolStalled"]
    assert of(events, ServingPoolStalled).code == errors.ATTEMPTS_EXHAUSTED
    assert begun(decider.when(wanted(1))) == [f"sp_1-{FAILURES_MAX + 1}"]


def test_a_term_that_was_served_to_its_cap_begins_a_new_count_of_failures() -> None:
    decider = new_tenant().accept(limits(), wanted(1))
    for number in range(1, 3 * FAILURES_MAX):
        cause: FailureCause = "budget" if number % FAILURES_MAX == 0 else "platform"
        events = decider.when(closed(f"sp_1-{number}", "failed", cause))
        assert begun(events) == [f"sp_1-{number + 1}"]


def test_what_the_month_does_not_allow_is_refused_and_later_stalls() -> None:
    decider = new_tenant().accept(limits(hard=3 * TERM_MS))
    assert refusal(decider.when(wanted(2))) == (errors.HARD_LIMIT, "hard_limit")
    assert not decider.state[TENANT].serving_pools
    decider.accept(wanted(1), used("sp_1-1", 2 * TERM_MS))
    events = decider.when(RecordDraining(job_id="sp_1-1", attempt=1))
    assert names(events) == ["ServingTermDraining", "ServingPoolStalled"]
    assert names(decider.when(closed("sp_1-1", "failed", "budget"))) == ["ServingTermEnded"]
    events = decider.when(limits(hard=10 * TERM_MS))
    assert names(events) == ["LimitsSet", "ServingTermBegun"]


def test_a_suspended_tenant_gets_no_further_terms() -> None:
    decider = new_tenant().accept(limits(), wanted(1), SetSuspension(suspended=True))
    assert refusal(decider.when(wanted(2))) == (errors.SUSPENDED, "tenant_suspended")
    events = decider.when(closed("sp_1-1", "lost"))
    assert names(events) == ["ServingTermEnded", "ServingPoolStalled"]
    events = decider.when(SetSuspension(suspended=False))
    assert names(events) == ["SuspensionSet", "ServingTermBegun"]


def test_a_budget_and_the_cap_of_a_key_bind_terms() -> None:
    budget = BudgetTerms(budget_id="key_1", currency="EUR", max_gpu_ms=3 * TERM_MS)
    decider = new_tenant().accept(limits(), SetBudget(terms=budget))
    assert refusal(decider.when(wanted(2)))[0] == errors.BUDGET_EXCEEDED
    events = decider.when(wanted(1))
    assert of(events, BudgetCounted).use.held_gpu_ms == 2 * TERM_MS
    ended = decider.when(RemoveServingPool(serving_pool_id="sp_1"))
    ended = decider.when(closed("sp_1-1", ended_by="tenant"))
    assert of(ended, BudgetCounted).use.held_gpu_ms == 0
    cap = KeyCap(key_id="key_1", spend_cap_micro=3_000_000, currency="EUR")
    assert refusal(decider.when(wanted(1, cap=cap)))[0] == errors.SPEND_CAP


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"replicas": REPLICAS_MAX + 1}, "replicas_out_of_range"),
        ({"replicas": -1}, "replicas_out_of_range"),
        ({"replica": replace(REPLICA, slots=0)}, "slots_below_one"),
        ({"replica": replace(REPLICA, term_ms=59_999)}, "term_out_of_range"),
        ({"replica": replace(REPLICA, term_ms=25 * HOUR_MS)}, "term_out_of_range"),
        ({"price": replace(PRICE, version="2025-01")}, "prices_changed"),
        ({"price": replace(PRICE, lane="free")}, "plan_changed"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    decider = new_tenant().accept(limits())
    assert refusal(decider.when(wanted(**changes)))[1] == reason
    assert not decider.state.get(TENANT).serving_pools


def test_replicas_of_a_pool_stay_what_they_are_and_pools_are_limited() -> None:
    decider = new_tenant().accept(limits(), wanted(0))
    other = wanted(1, replica=replace(REPLICA, slots=1))
    assert refusal(decider.when(other)) == (errors.ILLEGAL_STATE, "serving_pool_fixed")
    for number in range(2, SERVING_POOLS_MAX + 1):
        decider.accept(wanted(0, f"sp_{number}"))
    assert refusal(decider.when(wanted(0, "sp_more")))[1] == "serving_pools_at_most"


def plan(price: Price) -> SetLimits:
    """Limits with the prices of their lane, as they come from billing."""
    command = limits(lane=price.lane or "standard", price_version=price.version)
    return replace(command, terms=replace(command.terms, price=price))


FREE = replace(PRICE, version="2027-01", lane="free", gpu_hour_micro=3_000_000)
DOLLARS = replace(PRICE, version="2027-02", lane="premium", currency="USD")


@pytest.mark.parametrize("price", [FREE, DOLLARS])
def test_review2_m2_each_term_begins_by_the_plan_of_its_moment(price: Price) -> None:
    decider = new_tenant().accept(plan(PRICE), wanted(2), plan(price))
    events = decider.when(RecordDraining(job_id="sp_1-1", attempt=1))
    term = of(events, ServingTermBegun)
    assert (term.placement.lane, term.placement.price_version) == (price.lane, price.version)
    assert term.price == price
    assert term.price_max_micro == 2 * price.gpu_hour_micro
    # also without a command at that moment: the plan was to come
    decider.accept(replace(plan(PRICE), effective_at=decider.at + DAY_MS))
    decider.at += DAY_MS
    later = of(decider.when(closed("sp_1-2", "lost")), ServingTermBegun)
    assert (later.price, later.placement.lane) == (PRICE, "standard")
    assert decider.refolded() == decider.state


def test_review2_m2_without_the_plans_prices_the_pool_stalls_until_it_is_set_again() -> None:
    premium: Lane = "premium"
    decider = new_tenant().accept(limits(), wanted(1), limits(lane=premium))
    events = decider.when(RecordDraining(job_id="sp_1-1", attempt=1))
    assert of(events, ServingPoolStalled).reason.code == "prices_changed"
    dearer = replace(PRICE, lane=premium, gpu_hour_micro=5_000_000)
    events = decider.when(wanted(1, price=dearer))
    term = of(events, ServingTermBegun)
    assert (term.placement.lane, term.price.gpu_hour_micro) == (premium, 5_000_000)


def test_review2_m2_a_dearer_plan_is_held_against_caps_and_budgets() -> None:
    cap = KeyCap(key_id="key_1", spend_cap_micro=9_000_000, currency="EUR")
    decider = new_tenant().accept(plan(PRICE), wanted(1, cap=cap), plan(FREE))
    events = decider.when(RecordDraining(job_id="sp_1-1", attempt=1))
    assert of(events, ServingPoolStalled).code == errors.SPEND_CAP
    assert begun(decider.when(closed("sp_1-1", "preempted", ended_by="tenant"))) == ["sp_1-2"]
    dollars = decider.accept(plan(DOLLARS)).when(RecordDraining(job_id="sp_1-2", attempt=1))
    assert of(dollars, ServingPoolStalled).reason.code == "key_cap_currency"


@pytest.mark.parametrize("hard", [5 * HOUR_MS, 2 * HOUR_MS])
def test_review2_s1_a_stalled_pool_rises_when_the_new_month_begins(hard: int) -> None:
    decider = new_tenant().accept(limits(hard=hard), wanted(1))
    assert decider.due() is None
    number = 1
    while decider.state[TENANT].serving_pools["sp_1"].stalled_by is None:
        decider.accept(used(f"sp_1-{number}", 2 * HOUR_MS))
        decider.accept(RecordDraining(job_id=f"sp_1-{number}", attempt=1))
        decider.accept(closed(f"sp_1-{number}", "failed", "budget", "budget", 2 * HOUR_MS))
        number += 1
    month_end = period_of(decider.at).end_ms
    assert decider.due() == month_end
    decider.at = month_end - 1
    assert decider.when(Tick()) == ()
    assert names(decider.tick()) == ["AdmissionsReviewed", "ServingTermBegun"]
    assert decider.due() is None
    assert decider.refolded() == decider.state


def test_review2_s1_what_stays_stalled_is_tried_again_each_month() -> None:
    decider = new_tenant().accept(limits(hard=2 * TERM_MS), wanted(1), used("sp_1-1", 2 * TERM_MS))
    events = decider.when(closed("sp_1-1", "failed", "budget"))
    assert of(events, ServingPoolStalled).code == errors.HARD_LIMIT
    suspended = decider.when(SetSuspension(suspended=True))
    assert of(suspended, ServingPoolStalled).code == errors.SUSPENDED
    for _ in range(2):
        assert names(decider.tick()) == ["AdmissionsReviewed"]
    assert decider.due() == period_of(decider.at).end_ms
    events = decider.when(SetSuspension(suspended=False))
    assert names(events) == ["SuspensionSet", "ServingTermBegun"]


def test_facts_of_terms_that_are_not_open_change_nothing() -> None:
    decider = new_tenant().accept(limits())
    assert decider.when(closed("sp_1-1")) == ()
    assert names(decider.when(used("sp_1-1", MINUTE))) == ["UsageCounted"]


def test_all_replicas_of_a_tenant_fit_into_one_decision() -> None:
    """Limits come as a command of the saga: what follows from it must never exceed a record."""
    rates = tuple(
        Rate(lane="standard", gpu_hour_micro=2_000_000, device=f"accelerator-{number:020}")
        for number in range(100)
    )
    price = replace(PRICE, rates=rates)
    half = REPLICAS_MAX // 2
    decider = new_tenant().accept(limits())
    decider.accept(wanted(half, "sp_1", price=price), wanted(half, "sp_2", price=price))
    assert refusal(decider.when(wanted(1, "sp_3")))[1] == "replicas_out_of_range"
    decider.accept(SetSuspension(suspended=True))
    for number in range(1, REPLICAS_MAX + 1):
        pool = "sp_1" if number <= half else "sp_2"
        decider.accept(closed(f"{pool}-{number}", "lost"))
    events = decider.when(SetSuspension(suspended=False))
    assert len(begun(events)) == REPLICAS_MAX
    assert len(msgspec.json.encode(events)) < MESSAGE_BYTES_MAX


def test_a_replica_that_leaves_at_once_each_time_is_put_aside() -> None:
    """Lost and preempted are no failures, but nothing may begin and end for ever."""
    decider = new_tenant().accept(limits(), wanted(1))
    for number in range(1, FRUITLESS_MAX):
        billable = 2 * MINUTE if number == 3 else MINUTE
        events = decider.when(closed(f"sp_1-{number}", "preempted", billable=billable))
        assert begun(events) == [f"sp_1-{number + 1}"]
    for number in range(FRUITLESS_MAX, FRUITLESS_MAX + 3):
        events = decider.when(closed(f"sp_1-{number}", "lost"))
        assert begun(events) == [f"sp_1-{number + 1}"]
    events = decider.when(closed(f"sp_1-{FRUITLESS_MAX + 3}", "lost"))
    assert of(events, ServingPoolStalled).reason.code == "attempts_lost"
    assert begun(decider.when(wanted(1))) == [f"sp_1-{FRUITLESS_MAX + 4}"]
