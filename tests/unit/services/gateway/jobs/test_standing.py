"""A job compared with its tenant's limits."""

from dataclasses import replace
from typing import Any

import msgspec

from schemas.account import Limits
from services.gateway.jobs.standing import NO_USE, Standing, refusals
from services.gateway.views.tables.accounts import BudgetRow, LimitsRow
from simulator.control_plane.samples import spec
from tests.unit.tunery.plan.samples import tokens
from tunery.plan.estimate import estimate

LIMITS = Limits(soft_gpu_ms=10**12, hard_gpu_ms=10**12, concurrency=2)
NEEDS = estimate(spec(), tokens(20_000))
BUDGET = BudgetRow(tenant="t", id="tenant", currency="EUR", set_at=1, use=NO_USE, month="1970-01")
STANDING = Standing(limits=None, running=0, used_gpu_ms=0, held_gpu_ms=0, budgets=(), at=0)


def test_a_tenant_without_limits_is_refused_for_that_alone() -> None:
    (problem,) = refusals(STANDING, spec(), NEEDS)
    assert problem.reason is not None
    assert problem.reason.code == "limits_missing"


def codes(*budgets: BudgetRow, **changes: Any) -> list[str]:
    row = LimitsRow(id="t", lane="free", limits=LIMITS, price_version="1")
    standing = replace(STANDING, limits=row, budgets=budgets, **changes)
    reasons = [problem.reason for problem in refusals(standing, spec(), NEEDS)]
    return [reason.code for reason in reasons if reason is not None]


def test_each_limit_is_listed() -> None:
    assert codes() == []
    assert codes(running=2, used_gpu_ms=10**12) == ["jobs_at_most", "hard_limit"]
    assert codes(held_gpu_ms=10**12 - NEEDS.hold_gpu_ms + 1) == ["hard_limit"]
    assert codes(held_gpu_ms=10**12 - NEEDS.hold_gpu_ms) == []


def test_budgets_count_what_is_used_in_this_month_and_all_that_is_held() -> None:
    enough = msgspec.structs.replace(BUDGET, max_gpu_ms=NEEDS.hold_gpu_ms)
    used = msgspec.structs.replace(NO_USE, used_gpu_ms=1, used_micro=1)
    assert codes(enough) == []
    assert codes(msgspec.structs.replace(enough, use=used)) == ["month_budget_gpu_hours"]
    assert codes(msgspec.structs.replace(enough, use=used, month="1969-12")) == []
    held = msgspec.structs.replace(NO_USE, held_gpu_ms=1)
    assert codes(msgspec.structs.replace(enough, use=held, month="1969-12")) != []
    amount = msgspec.structs.replace(BUDGET, max_amount_micro=NEEDS.price_max_micro - 1)
    assert codes(amount) == ["month_budget_amount"]
    assert codes(msgspec.structs.replace(amount, currency="USD")) == ["month_budget_currency"]
