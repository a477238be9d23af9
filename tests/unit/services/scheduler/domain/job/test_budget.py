"""A job's own budget: it bounds the hold, so it bounds all that the job can use."""

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected
from schemas.job import Budget, HoldTaken, JobEnded, RecordFile, SubmitJob
from simulator.control_plane.samples import limits, submit, tokens
from tests.unit.services.scheduler.fold import of
from tests.unit.services.scheduler.lives import new_tenant

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
    validated = RecordFile(file_id=file, accepted=True, tokens=(tokens(),), message=None)
    ended = of(waiting.when(validated), JobEnded)
    assert ended.failure is not None
    assert ended.failure.code == errors.BUDGET_TOO_SMALL
