"""Before a job may cost anything: its own budget, and the cap of its API key."""

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected
from schemas.job import CancelJob, HoldTaken, JobEnded, RecordFile, SubmitJob
from schemas.submission import Budget, KeyCap
from simulator.control_plane.samples import limits, submit, tokens
from tests.unit.services.scheduler.fold import Decider, of
from tests.unit.services.scheduler.lives import LIVES, TENANT, new_tenant
from tunery.plan.price import price_micro

# --- a job's own budget bounds the hold, and so all that the job can use --------------------------


NEEDS = of(new_tenant().accept(limits()).when(submit()), HoldTaken).estimate
ENOUGH = (
    Budget(),
    Budget(max_gpu_ms=NEEDS.hold_gpu_ms),
    Budget(max_amount_micro=NEEDS.price_max_micro),
)
TOO_SMALL = (
    Budget(max_gpu_ms=NEEDS.hold_gpu_ms - 1),
    Budget(max_amount_micro=NEEDS.price_max_micro - 1),
    Budget(max_gpu_ms=NEEDS.hold_gpu_ms, max_amount_micro=1),
)


def budgeted(budget: Budget, count: int | None = 20_000) -> SubmitJob:
    asked = submit("ftjob-1", count)
    return replace(asked, spec=replace(asked.spec, budget=budget))


@pytest.mark.parametrize("budget", ENOUGH)
def test_a_budget_as_large_as_the_hold_is_enough(budget: Budget) -> None:
    assert of(new_tenant().accept(limits()).when(budgeted(budget)), HoldTaken).estimate == NEEDS


@pytest.mark.parametrize("budget", TOO_SMALL)
def test_a_smaller_one_refuses_the_job_before_it_costs_anything(budget: Budget) -> None:
    refused = of(new_tenant().accept(limits()).when(budgeted(budget)), Rejected)
    assert (refused.code, refused.param) == (errors.BUDGET_TOO_SMALL, "budget")


def test_a_job_that_waits_for_its_file_fails_when_the_tokens_are_known() -> None:
    waiting = new_tenant().accept(limits(), budgeted(Budget(max_amount_micro=1), None))
    file = submit().spec.training_file
    validated = RecordFile(file_id=file, accepted=True, tokens=(tokens(),))
    ended = of(waiting.when(validated), JobEnded)
    assert ended.failure is not None
    assert ended.failure.code == errors.BUDGET_TOO_SMALL


# --- what the jobs of one API key may cost in a calendar month ------------------------------------


MONTH_MS = 31 * 24 * 3_600_000
PRICE_MAX = of(new_tenant().accept(limits()).when(submit()), HoldTaken).estimate.price_max_micro


def capped(job_id: str, cap: int, key: str = "key_1", count: int | None = 20_000) -> SubmitJob:
    return replace(submit(job_id, count), cap=KeyCap(key_id=key, spend_cap_micro=cap))


def after_one(cap: int) -> Decider:
    return new_tenant().accept(limits(), capped("ftjob-1", cap))


def test_a_job_that_may_cost_more_than_the_cap_is_refused() -> None:
    decider = new_tenant().accept(limits())
    refused = decider.when(capped("ftjob-1", PRICE_MAX - 1))
    assert of(refused, Rejected).code == errors.SPEND_CAP
    assert not decider.state[TENANT].jobs
    after_one(PRICE_MAX)


def test_open_jobs_of_the_key_count_with_all_they_may_cost() -> None:
    cap = 2 * PRICE_MAX - 1
    decider = after_one(cap)
    refused = decider.when(capped("ftjob-2", cap))
    assert of(refused, Rejected).code == errors.SPEND_CAP
    assert of(decider.when(capped("ftjob-3", cap, "key_2")), HoldTaken)
    assert of(decider.when(submit("ftjob-4")), HoldTaken)


def test_a_cancelled_job_gives_back_what_it_did_not_cost() -> None:
    decider = after_one(PRICE_MAX).accept(CancelJob(job_id="ftjob-1"))
    assert of(decider.when(capped("ftjob-2", PRICE_MAX)), HoldTaken)


def test_what_ended_jobs_cost_counts_until_the_month_is_over() -> None:
    _, _, *life = LIVES["done"]
    decider = after_one(PRICE_MAX).accept(*life)
    ended = next(
        event for _, events in decider.journal for event in events if isinstance(event, JobEnded)
    )
    price = submit().spec.price
    cost = price_micro(price, ended.billable_gpu_ms - ended.lost_gpu_ms, ended.trained_tokens)
    assert 0 < cost < PRICE_MAX
    refused = decider.when(capped("ftjob-2", PRICE_MAX + cost - 1))
    assert of(refused, Rejected).code == errors.SPEND_CAP
    assert decider.refolded() == decider.state
    decider.at += MONTH_MS
    assert of(decider.when(capped("ftjob-3", PRICE_MAX)), HoldTaken)


def test_the_cap_holds_when_the_tokens_are_known_only_later() -> None:
    decider = new_tenant().accept(limits(), capped("ftjob-1", PRICE_MAX - 1, count=None))
    message = RecordFile(file_id="file-1", accepted=True, tokens=(tokens(),))
    ended = of(decider.when(message), JobEnded)
    assert ended.failure is not None
    assert ended.failure.code == errors.SPEND_CAP
