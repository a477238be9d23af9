"""Why a job does not fit into what its tenant may use in a month."""

import msgspec
import pytest

from schemas.account import Limits
from schemas.admission import BudgetTerms, BudgetUse
from schemas.envelope import Rejected
from simulator.control_plane.samples import spec
from tests.unit.tunery.plan.samples import tokens
from tunery.plan.estimate import estimate
from tunery.plan.limits import over_hard_limit, over_month

NEEDS = estimate(spec(), tokens(20_000))
HOURS, PRICE = NEEDS.hold_gpu_ms, NEEDS.price_max_micro
USE = BudgetUse(used_gpu_ms=1, held_gpu_ms=2, used_micro=3, held_micro=4)


def code_of(refusal: Rejected | None) -> str:
    assert refusal is not None
    assert refusal.reason is not None
    return refusal.reason.code


def codes(terms: dict[str, int | str]) -> list[str]:
    budget = msgspec.structs.replace(BudgetTerms(budget_id="tenant", currency="EUR"), **terms)
    return [code_of(refusal) for refusal in over_month(budget, USE, "2026-11", NEEDS)]


def test_a_hold_fits_up_to_the_hard_limit_and_the_refusal_names_the_rest() -> None:
    limits = Limits(soft_gpu_ms=1, hard_gpu_ms=HOURS + 10, concurrency=1)
    assert over_hard_limit(limits, 10, NEEDS) is None
    above = over_hard_limit(limits, 11, NEEDS)
    assert code_of(above) == "hard_limit"
    assert above is not None
    assert above.reason is not None
    assert above.reason.params["left_gpu_ms"] == HOURS - 1


@pytest.mark.parametrize(
    ("terms", "reasons"),
    [
        ({}, []),
        ({"max_gpu_ms": HOURS + 3, "max_amount_micro": PRICE + 7}, []),
        ({"max_gpu_ms": HOURS + 2}, ["month_budget_gpu_hours"]),
        ({"max_amount_micro": PRICE + 6}, ["month_budget_amount"]),
        ({"max_amount_micro": PRICE + 6, "currency": "USD"}, ["month_budget_currency"]),
        (
            {"max_gpu_ms": HOURS + 2, "max_amount_micro": PRICE + 6},
            ["month_budget_gpu_hours", "month_budget_amount"],
        ),
    ],
)
def test_every_bound_of_a_budget_that_a_job_passes_is_named(
    terms: dict[str, int | str], reasons: list[str]
) -> None:
    assert codes(terms) == reasons
