"""Monthly budgets: what they refuse, in which words, and what is told about them."""

import pytest
from msgspec.structs import replace
from typing_extensions import TypeIs

from schemas import errors
from schemas.admission import (
    TENANT_BUDGET,
    BudgetAlert,
    BudgetCounted,
    BudgetRemoved,
    BudgetSet,
    BudgetTerms,
    BudgetThresholdReached,
    BudgetUse,
    RecordAnswers,
    RemoveBudget,
    SetBudget,
)
from schemas.answers import AnswerCost
from schemas.envelope import Rejected
from schemas.job import CancelJob, HoldTaken, JobEnded, RecordFile, RecordUsage, SubmitJob
from schemas.submission import KeyCap
from schemas.units import DAY_MS, HOUR_MS, hour_of, month_of
from services.gateway.wording import refusal_words
from services.scheduler.domain.job import budgets
from simulator.control_plane.samples import T0, limits, submit, tokens
from tests.unit.services.scheduler.fold import Decider, names, of
from tests.unit.services.scheduler.lives import new_tenant

NEEDS = of(new_tenant().accept(limits()).when(submit()), HoldTaken).estimate
PRICE_MAX, HOLD = NEEDS.price_max_micro, NEEDS.hold_gpu_ms
MONTH = month_of(hour_of(T0))


def budget(
    amount: int | None = None, gpu_ms: int | None = None, of_key: str = TENANT_BUDGET
) -> SetBudget:
    terms = BudgetTerms(
        budget_id=of_key, currency="EUR", max_gpu_ms=gpu_ms, max_amount_micro=amount
    )
    return SetBudget(terms=terms)


def by_key(job_id: str, key: str = "key_1", count: int | None = 20_000) -> SubmitJob:
    return replace(submit(job_id, count), key_id=key)


def tenant(*commands: SetBudget) -> Decider:
    return new_tenant().accept(limits(), *commands)


@pytest.mark.parametrize("asked", [budget(PRICE_MAX - 1), budget(None, HOLD - 1)])
def test_a_job_that_may_pass_the_budget_is_refused(asked: SetBudget) -> None:
    refused = of(tenant(asked).when(submit()), Rejected)
    assert refused.code == errors.BUDGET_EXCEEDED
    words = refusal_words(refused.reason)
    assert (MONTH in words, "'tenant'" in words, "tunery budget set" in words) == (True,) * 3


@pytest.mark.parametrize("asked", [budget(PRICE_MAX), budget(None, HOLD), budget(PRICE_MAX, HOLD)])
def test_a_job_that_fits_exactly_is_admitted(asked: SetBudget) -> None:
    assert of(tenant(asked).when(submit()), HoldTaken).estimate == NEEDS


def test_open_holds_count_until_they_are_released() -> None:
    decider = tenant(budget(2 * PRICE_MAX - 1)).accept(submit("ftjob-1"))
    refused = of(decider.when(submit("ftjob-2")), Rejected)
    assert refused.reason.params["held_micro"] == PRICE_MAX
    decider.accept(CancelJob(job_id="ftjob-1"), submit("ftjob-3"))
    assert decider.refolded() == decider.state


def test_the_budget_of_a_key_counts_its_jobs_alone() -> None:
    decider = tenant(budget(PRICE_MAX, of_key="key_1")).accept(by_key("ftjob-1"))
    assert of(decider.when(by_key("ftjob-2")), Rejected).reason.params["budget"] == "key_1"
    decider.accept(by_key("ftjob-3", "key_2"), submit("ftjob-4"))
    assert of(decider.when(RemoveBudget(budget_id="key_1")), BudgetRemoved)
    decider.accept(by_key("ftjob-5"))


def test_a_budget_that_is_set_later_knows_what_was_used_before() -> None:
    decider = tenant().accept(by_key("ftjob-1"))
    hour = hour_of(decider.at)
    used = RecordUsage(job_id="ftjob-1", attempt=1, hour_utc=hour, gpu_ms=HOLD)
    decider.accept(used, CancelJob(job_id="ftjob-1"))
    spent, counted, *_ = decider.when(budget(PRICE_MAX, of_key="key_1"))
    assert isinstance(spent, BudgetSet)
    micro = round(HOLD * submit().spec.price.gpu_hour_micro / HOUR_MS)
    use = BudgetUse(used_gpu_ms=HOLD, held_gpu_ms=0, used_micro=micro, held_micro=0)
    assert counted == BudgetCounted(budget_id="key_1", month=MONTH, use=use)
    assert of(decider.when(by_key("ftjob-2")), Rejected).code == errors.BUDGET_EXCEEDED
    decider.at += 31 * DAY_MS
    decider.accept(by_key("ftjob-3"))


def test_a_job_in_another_currency_is_refused_with_what_to_do() -> None:
    price = replace(submit().spec.price, currency="USD")
    refused = of(tenant(budget(10**12)).when(submit(price=price)), Rejected)
    assert "USD" in refusal_words(refused.reason)
    assert of(tenant(budget(None, HOLD)).when(submit(price=price)), HoldTaken)


def test_a_job_that_waited_for_its_file_ends_when_the_budget_does_not_allow_it() -> None:
    decider = tenant(budget(PRICE_MAX - 1)).accept(submit("ftjob-1", None))
    ended = of(
        decider.when(RecordFile(file_id="file-1", accepted=True, tokens=(tokens(),))), JobEnded
    )
    assert ended.failure is not None
    assert ended.failure.code == errors.BUDGET_EXCEEDED


def reached(events: tuple[object, ...]) -> list[int]:
    return [event.alert.percent for event in events if isinstance(event, BudgetThresholdReached)]


def test_each_threshold_is_announced_once_in_a_month() -> None:
    decider = tenant(budget(10 * PRICE_MAX))
    jobs = [f"ftjob-{number}" for number in range(10)]
    percents = [reached(decider.when(submit(job_id))) for job_id in jobs]
    assert percents == [[]] * 4 + [[50]] + [[]] * 2 + [[80]] + [[]] + [[100]]
    decider.accept(CancelJob(job_id="ftjob-9"))
    assert reached(decider.when(submit("ftjob-10"))) == []
    decider.at += 31 * DAY_MS  # the holds are still open
    assert reached(decider.when(CancelJob(job_id="ftjob-0"))) == [50, 80]


def answered(
    decider: Decider, micro: int, millionths: int = 0, key: str = "key_1"
) -> RecordAnswers:
    cost = AnswerCost(key_id=key, currency="EUR", micro=micro, millionths=millionths)
    return RecordAnswers(hour_utc=hour_of(decider.at), costs=(cost,))


def test_answers_count_in_budgets_as_jobs_do() -> None:
    decider = tenant(budget(2 * PRICE_MAX), budget(PRICE_MAX, of_key="key_1"))
    events = decider.when(answered(decider, PRICE_MAX))
    counted = {event.budget_id: event.use.used_micro for event in events if is_count(event)}
    assert counted == {TENANT_BUDGET: PRICE_MAX, "key_1": PRICE_MAX}
    assert reached(events) == [50, 80, 100, 50], "of the key, and then of the tenant"
    assert of(decider.when(by_key("ftjob-1")), Rejected).code == errors.BUDGET_EXCEEDED
    assert of(decider.when(by_key("ftjob-2", "key_2")), HoldTaken)
    assert decider.refolded() == decider.state


def is_count(event: object) -> TypeIs[BudgetCounted]:
    return isinstance(event, BudgetCounted)


def test_parts_of_a_millionth_add_up_and_are_taken_off_again() -> None:
    decider = tenant(budget(PRICE_MAX))
    assert not list(filter(is_count, decider.when(answered(decider, 0, 600_000))))
    (counted,) = filter(is_count, decider.when(answered(decider, 0, 600_000)))
    assert counted.use.used_micro == 1
    (counted,) = filter(is_count, decider.when(answered(decider, -1, 700_000)))
    assert counted.use.used_micro == 0, "1.2 - 0.3"


def test_answers_count_against_the_cap_of_their_key() -> None:
    cap = KeyCap(key_id="key_1", spend_cap_micro=PRICE_MAX)
    capped = replace(by_key("ftjob-1"), cap=cap)
    decider = tenant()
    decider.accept(answered(decider, 1, key="key_2"))
    assert of(decider.when(replace(capped, job_id="ftjob-0")), HoldTaken)
    decider = tenant()
    decider.accept(answered(decider, 1))
    assert of(decider.when(capped), Rejected).code == errors.SPEND_CAP


def test_a_lowered_budget_tells_every_threshold_that_it_has_passed() -> None:
    decider = tenant(budget(10 * PRICE_MAX)).accept(submit())
    events = decider.when(budget(PRICE_MAX // 2))
    assert names(events) == ["BudgetSet", "BudgetCounted"] + 3 * ["BudgetThresholdReached"]
    alert = BudgetAlert(budget_id=TENANT_BUDGET, month=MONTH, percent=100)
    assert events[-1] == BudgetThresholdReached(alert=alert)
    assert decider.when(budget(PRICE_MAX // 2)) == ()


def test_budgets_that_mean_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    decider = tenant()
    for asked in (budget(), budget(0), budget(1, 0), budget(-1)):
        assert of(decider.when(asked), Rejected).code == errors.MALFORMED
    assert of(decider.when(RemoveBudget(budget_id="key_9")), Rejected).code == errors.NOT_FOUND
    monkeypatch.setattr(budgets, "BUDGETS_MAX", 1)
    decider.accept(budget(1))
    refused = of(decider.when(budget(1, of_key="key_1")), Rejected)
    assert refused.code == errors.ILLEGAL_STATE
    decider.accept(budget(2))
