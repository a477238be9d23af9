"""`/v1/budgets`: what a tenant's jobs, or those of one API key, may use in a calendar month.

The stream `job` decides: a submission that could pass a budget is refused there.
"""

from typing import Final, Literal

from schemas.account import ADMIN_SCOPE, BUDGETS_SCOPE
from schemas.admission import TENANT_BUDGET, BudgetTerms, BudgetUse, RemoveBudget, SetBudget
from schemas.topics import JOB
from schemas.units import HOUR_MS, hour_of, month_of
from services.gateway.accounts.domain.bodies import MonthBudgetRequest
from services.gateway.views.tables.accounts import BUDGETS, KEYS, TENANTS, BudgetRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import FORBIDDEN, ApiError, invalid, not_found
from services.gateway.web.domain.responses import Deleted, ListItem, Seconds
from services.gateway.web.resources import Resource, each
from services.gateway.web.routing import new_router

NO_USE: Final = BudgetUse(used_gpu_ms=0, held_gpu_ms=0, used_micro=0, held_micro=0)
router = new_router("budgets", "/v1/budgets")


class MonthBudgetResponse(ListItem):
    """A budget in the present month (UTC). Its id is `tenant`, or that of the API key.

    Per unit: limit = used + held + left. What is left is below zero where the limit was lowered.
    `reached_percent`: the last threshold that was announced this month.
    """

    id: str
    object: Literal["budget"] = "budget"
    key_id: str | None
    set_at: Seconds
    month: str
    currency: str
    max_gpu_ms: int | None
    used_gpu_ms: int
    held_gpu_ms: int
    left_gpu_ms: int | None
    max_amount_micro: int | None
    used_micro: int
    held_micro: int
    left_micro: int | None
    reached_percent: int


def budget_response(deps: Deps, row: BudgetRow) -> MonthBudgetResponse:
    """A budget without a change in this month has used nothing, and holds what it held."""
    month, last = month_of(hour_of(deps.clock.now_ms())), row.use or NO_USE
    same = row.month == month
    used_gpu_ms, used_micro = (last.used_gpu_ms, last.used_micro) if same else (0, 0)
    alert = row.alert if row.alert is not None and row.alert.month == month else None
    hours, amount = row.max_gpu_ms, row.max_amount_micro
    return MonthBudgetResponse.of(
        row,
        last,
        key_id=None if row.id == TENANT_BUDGET else row.id,
        month=month,
        used_gpu_ms=used_gpu_ms,
        left_gpu_ms=None if hours is None else hours - used_gpu_ms - last.held_gpu_ms,
        used_micro=used_micro,
        left_micro=None if amount is None else amount - used_micro - last.held_micro,
        reached_percent=0 if alert is None else alert.percent,
    )


BUDGET: Final = Resource(
    noun="budget",
    table=BUDGETS,
    response=MonthBudgetResponse,
    respond=each(budget_response),
    newest_first=False,
)
BUDGET.add_list(
    router,
    "",
    "list_budgets",
    "List the tenant's budgets, with what is used, held and left of each.",
)
BUDGET.add_retrieve(router, "/{budget_id}", "retrieve_budget")


@router.post("")
async def set_budget(
    body: MonthBudgetRequest, deps: WithDeps, caller: Caller
) -> MonthBudgetResponse:
    """Set the budget of the tenant, or of one of its API keys, in place of the one before."""
    _require_scope(caller)
    if body.max_gpu_hours is None and body.max_amount_micro is None:
        raise invalid("Give max_gpu_hours, max_amount_micro, or both.", "max_amount_micro")
    if body.key_id is not None:
        row = await deps.views.first(KEYS, {"tenant": caller.tenant, "id": body.key_id})
        if row is None or row.revoked_at is not None:
            raise not_found("API key", body.key_id, "key_id")
    hours = body.max_gpu_hours
    terms = BudgetTerms(
        budget_id=body.key_id or TENANT_BUDGET,
        currency=await _currency(deps, caller),
        max_gpu_ms=None if hours is None else max(1, round(hours * HOUR_MS)),
        max_amount_micro=body.max_amount_micro,
    )
    await deps.decide(caller, JOB, SetBudget(terms=terms))
    return await BUDGET.retrieve(deps, caller.rows, terms.budget_id)


@router.delete("/{budget_id}")
async def remove_budget(budget_id: str, deps: WithDeps, caller: Caller) -> Deleted:
    """Remove a budget. It binds no more submissions; what was used this month stays counted."""
    await BUDGET.find(deps, caller.rows, budget_id)
    _require_scope(caller)
    command = RemoveBudget(budget_id=budget_id)
    await deps.decide(caller, JOB, command)
    return Deleted(id=budget_id, object="budget")


def _require_scope(caller: Principal) -> None:
    """`write` alone is not enough: a key that submits jobs must not raise its own budget."""
    if not {BUDGETS_SCOPE, ADMIN_SCOPE} & caller.scopes:
        message = f"Budgets are changed with a key that has the scope {BUDGETS_SCOPE!r} itself."
        raise ApiError(403, FORBIDDEN, message)


async def _currency(deps: Deps, caller: Principal) -> str:
    tenant = await deps.views.first(TENANTS, {"id": caller.tenant})
    book = None if tenant is None else await deps.prices.book(tenant.price_version)
    if book is None:
        raise not_found("tenant", caller.tenant, "tenant")
    return book.currency
