"""Budgets of the `job` stream → rows of budgets."""

from typing import TypeAlias, assert_never

from schemas.admission import BudgetCounted, BudgetRemoved, BudgetSet, BudgetThresholdReached
from schemas.envelope import Header
from services.gateway.views.tables.accounts import BUDGETS
from tunery.runtime.verbs import Change

BudgetEvent: TypeAlias = BudgetSet | BudgetRemoved | BudgetCounted | BudgetThresholdReached


def project_budget(header: Header, event: BudgetEvent) -> tuple[Change, ...]:
    """The row of a budget after an event of it. What is not limited is written as null."""
    match event:
        case BudgetSet(terms=terms):
            return (
                BUDGETS.update(
                    {"tenant": header.key, "id": terms.budget_id},
                    **BUDGETS.shared(terms),
                    set_at=header.at,
                ),
            )
        case BudgetRemoved(budget_id=budget_id):
            return (BUDGETS.delete({"tenant": header.key, "id": budget_id}),)
        case BudgetCounted(budget_id=budget_id):
            key = {"tenant": header.key, "id": budget_id}
            return (BUDGETS.update(key, month=event.month, use=event.use),)
        case BudgetThresholdReached(alert=alert):
            return (BUDGETS.update({"tenant": header.key, "id": alert.budget_id}, alert=alert),)
        case _:
            assert_never(event)
