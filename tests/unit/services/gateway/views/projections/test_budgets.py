"""Rows of budgets: what is no longer limited is null again."""

from msgspec.structs import replace

from schemas.admission import (
    BudgetAlert,
    BudgetCounted,
    BudgetRemoved,
    BudgetSet,
    BudgetTerms,
    BudgetThresholdReached,
    BudgetUse,
)
from services.gateway.views.projections.jobs import project_budget
from services.gateway.views.tables.accounts import BUDGETS
from tests.unit.services.scheduler.test_react import HEADER
from tunery.runtime.verbs import Delete, Upsert

USE = BudgetUse(used_gpu_ms=1, held_gpu_ms=2, used_micro=3, held_micro=4)


def test_a_budget_is_written_over_and_deleted() -> None:
    header = replace(HEADER, key="acme", at=5)
    terms = BudgetTerms(budget_id="tenant", currency="EUR", max_amount_micro=9)
    (written,) = project_budget(header, BudgetSet(terms=terms))
    assert isinstance(written, Upsert)
    assert (written.values["max_gpu_ms"], written.values["max_amount_micro"]) == (None, 9)
    counted = BudgetCounted(budget_id="tenant", month="2026-11", use=USE)
    alert = BudgetAlert(budget_id="tenant", month="2026-11", percent=50)
    record: dict[str, object] = {**written.key, **written.values}
    for event in (counted, BudgetThresholdReached(alert=alert)):
        (change,) = project_budget(header, event)
        assert isinstance(change, Upsert)
        record |= change.values
    row = BUDGETS.read(record)
    assert row is not None
    assert (row.set_at, row.month, row.use, row.alert) == (5, "2026-11", USE, alert)
    (gone,) = project_budget(header, BudgetRemoved(budget_id="tenant"))
    assert gone == Delete("budgets", {"tenant": "acme", "id": "tenant"})
