"""Before a job may cost anything: budget, cap of its API key, plan, suspension."""

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.admission import SetSuspension
from schemas.dataset import ChatFormat
from schemas.envelope import Rejected
from schemas.job import (
    CancelJob,
    HoldTaken,
    JobEnded,
    PauseJob,
    PinsWanted,
    RecordClosed,
    RecordFile,
    RecordUsage,
    ResumeJob,
    SubmitJob,
)
from schemas.sealed import Sealed
from schemas.submission import Budget, KeyCap
from schemas.units import hour_of
from services.gateway.wording import refusal_words
from simulator.control_plane.samples import limits, submit, tokens
from tests.unit.services.scheduler.fold import Decider, of
from tests.unit.services.scheduler.lives import JOB_ID, LIVES, TENANT, new_tenant
from tunery.plan.price import usage_micro

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


@pytest.mark.parametrize("count", [20_000, None])
def test_first_hour_02_a_dry_run_is_decided_and_changes_nothing(count: int | None) -> None:
    tried = replace(submit("ftjob-1", count), dry_run=True)
    assert new_tenant().accept(limits()).when(tried) == ()


@pytest.mark.parametrize("budget", TOO_SMALL)
def test_first_hour_02_a_dry_run_is_refused_as_the_submission_is(budget: Budget) -> None:
    tried = replace(budgeted(budget), dry_run=True)
    expected = new_tenant().accept(limits()).when(budgeted(budget))
    assert new_tenant().accept(limits()).when(tried) == expected


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


def test_a_cap_in_another_currency_than_the_jobs_is_refused_by_name() -> None:
    """The tenant has moved to a price book in dollars; its key may spend so many euros."""
    in_dollars = replace(submit().spec.price, currency="USD")
    job = submit("ftjob-1", price=in_dollars)
    cap = KeyCap(key_id="key_1", spend_cap_micro=10**12, currency="EUR")
    refused = of(new_tenant().accept(limits()).when(replace(job, cap=cap)), Rejected)
    assert (refused.code, refused.reason.code) == (errors.SPEND_CAP, "key_cap_currency")
    assert all(code in refusal_words(refused.reason) for code in ("EUR", "USD"))
    for currency in ("USD", ""):  # empty: of a key from before caps had a currency
        same = replace(job, cap=replace(cap, currency=currency))
        assert of(new_tenant().accept(limits()).when(same), HoldTaken)


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
    decider = after_one(PRICE_MAX)
    hour = hour_of(decider.at)
    for fact in life:
        if isinstance(fact, RecordClosed):  # what it used comes before its end
            used = RecordUsage(
                job_id=JOB_ID,
                attempt=fact.attempt,
                hour_utc=hour,
                gpu_ms=fact.end.billable_gpu_ms - fact.end.lost_gpu_ms,
            )
            decider.accept(used)
        decider.accept(fact)
    ended = next(
        event for _, events in decider.journal for event in events if isinstance(event, JobEnded)
    )
    rate = submit().spec.price.gpu_hour_micro
    cost = usage_micro((ended.billable_gpu_ms - ended.lost_gpu_ms) * rate)
    assert 0 < cost < PRICE_MAX
    refused = decider.when(capped("ftjob-2", PRICE_MAX + cost - 1))
    assert of(refused, Rejected).code == errors.SPEND_CAP
    assert decider.refolded() == decider.state
    decider.at += MONTH_MS
    assert of(decider.when(capped("ftjob-3", PRICE_MAX)), HoldTaken)


# --- plans that change, and tenants that are suspended -------------------------------------------


def test_money_b6_a_submission_that_crosses_a_change_of_lane_is_refused() -> None:
    decider = new_tenant().accept(limits(lane="premium"))
    refused = of(decider.when(submit()), Rejected)
    assert (refused.code, refused.reason.code) == (errors.ILLEGAL_STATE, "plan_changed")
    assert refused.reason.params == {"lane": "standard", "plan": "premium"}
    decider.accept(limits(lane="standard"), submit())


def test_a_plan_of_the_next_month_binds_from_its_first_moment() -> None:
    decider = new_tenant().accept(limits())
    begins = decider.at + MONTH_MS
    decider.accept(replace(limits(lane="premium", concurrency=1), effective_at=begins))
    decider.at = begins - 1
    decider.accept(submit("ftjob-1"), submit("ftjob-2"))
    decider.at = begins
    assert of(decider.when(submit("ftjob-3")), Rejected).reason.code == "plan_changed"
    price = replace(submit().spec.price, lane="premium")
    full = of(decider.when(submit("ftjob-3", price=price)), Rejected)
    assert (full.code, full.reason.params) == (errors.CONCURRENCY_LIMIT, {"limit": 1})
    assert decider.refolded() == decider.state


def test_a_plan_that_is_due_stays_when_a_later_one_is_scheduled() -> None:
    decider = new_tenant().accept(limits())
    decider.accept(replace(limits(concurrency=1), effective_at=decider.at + 1))
    decider.at += 1
    decider.accept(replace(limits(concurrency=9), effective_at=decider.at + 1), submit("ftjob-1"))
    assert of(decider.when(submit("ftjob-2")), Rejected).code == errors.CONCURRENCY_LIMIT
    decider.at += 1
    decider.accept(submit("ftjob-2"))


def test_a_plan_in_force_at_once_replaces_what_was_scheduled() -> None:
    decider = new_tenant().accept(limits())
    later = replace(limits(concurrency=1), effective_at=decider.at + 1)
    decider.accept(later, limits(concurrency=2))
    decider.at += 1
    decider.accept(submit("ftjob-1"), submit("ftjob-2"))
    assert len(decider.state[TENANT].jobs) == 2


def test_a_suspended_tenant_starts_no_jobs_and_its_jobs_go_on() -> None:
    decider = new_tenant().accept(limits(), submit("ftjob-1"), submit("ftjob-2"))
    decider.accept(submit("ftjob-3", None, training_file="file-3"))
    decider.accept(PauseJob(job_id="ftjob-2"), SetSuspension(suspended=True))
    assert decider.when(SetSuspension(suspended=True)) == ()
    for command in (submit("ftjob-4"), ResumeJob(job_id="ftjob-2")):
        refused = of(decider.when(command), Rejected)
        assert (refused.code, refused.reason.code) == (errors.SUSPENDED, "tenant_suspended")
    validated = RecordFile(file_id="file-3", accepted=True, tokens=(tokens(),))
    ended = of(decider.when(validated), JobEnded)
    assert ended.failure is not None
    assert ended.failure.code == errors.SUSPENDED
    assert decider.state[TENANT].jobs["ftjob-1"].wanted == "run"
    decider.accept(CancelJob(job_id="ftjob-1"), SetSuspension(suspended=False))
    decider.accept(ResumeJob(job_id="ftjob-2"), submit("ftjob-4"))


def test_the_cap_holds_when_the_tokens_are_known_only_later() -> None:
    decider = new_tenant().accept(limits(), capped("ftjob-1", PRICE_MAX - 1, count=None))
    message = RecordFile(file_id="file-1", accepted=True, tokens=(tokens(),))
    ended = of(decider.when(message), JobEnded)
    assert ended.failure is not None
    assert ended.failure.code == errors.SPEND_CAP


def test_bases_f7_what_is_prepared_has_the_template_of_the_job() -> None:
    asked = submit()
    template = Sealed(key_id="acme.1", nonce=b"n", ciphertext=b"c")
    own = replace(asked.spec, chat_template=template, chat_sha256="c" * 64)
    plain, chat = (
        of(new_tenant().accept(limits()).when(command), PinsWanted).terms.spec.chat
        for command in (asked, replace(asked, spec=own))
    )
    assert plain is None
    assert chat == ChatFormat(sha256="c" * 64, template=template)
