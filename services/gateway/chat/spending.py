"""Budgets and caps, where answers have a price: who has reached one is answered no more.

What jobs have used of a budget is as the log has it; tokens are those that engines have counted so
far, so the answers of the last seconds are not among them.
"""

from collections.abc import AsyncGenerator
from typing import NamedTuple

from schemas.admission import TENANT_BUDGET
from schemas.billing import PriceBook
from schemas.units import Micro
from services.gateway.accounts.tables import BUDGETS, TENANTS
from services.gateway.billing.invoice_reads import answers_of_month
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.errors import INSUFFICIENT_QUOTA, ApiError
from tunery.billing.answers import answer_charge
from tunery.billing.currency import in_units
from tunery.billing.periods import Period, period_of


class Bound(NamedTuple):
    """What a month may cost. key_id: whose answers count; None: those of all keys."""

    name: str
    key_id: str | None
    limit_micro: Micro
    used_micro: Micro


async def refuse_above_budget(deps: Deps, caller: Principal) -> None:
    """Raises ApiError 429 where the tenant's budget, or the key's budget or cap, is reached."""
    tenant = await deps.views.first(TENANTS, {"id": caller.tenant})
    book = None if tenant is None else await deps.prices.book(tenant.price_version)
    if book is None or book.answers is None:
        return
    month = period_of(deps.clock.now_ms())
    async for bound in _bounds(deps, caller, book, month):
        answered = await _answers_micro(deps, caller.tenant, bound.key_id, book, month)
        if bound.used_micro + answered >= bound.limit_micro:
            limit = f"{in_units(bound.limit_micro)} {book.currency}"
            message = (
                f"{bound.name} of {limit} is reached in {month.name}, with answers and jobs. "
                "Raise it, or wait for the next month."
            )
            raise ApiError(429, INSUFFICIENT_QUOTA, message)


async def _bounds(
    deps: Deps, caller: Principal, book: PriceBook, month: Period
) -> AsyncGenerator[Bound, None]:
    """Budgets and the cap in the currency of the book; others cannot be compared with it."""
    used_micro = {}
    for budget_id in (TENANT_BUDGET, caller.key_id):
        row = await deps.views.first(BUDGETS, {"tenant": caller.tenant, "id": budget_id})
        if row is None:
            continue
        used = row.use.used_micro if row.use is not None and row.month == month.name else 0
        used_micro[budget_id] = used
        if row.max_amount_micro is not None and row.currency == book.currency:
            key_id = None if budget_id == TENANT_BUDGET else budget_id
            yield Bound(f"The budget {budget_id!r}", key_id, row.max_amount_micro, used)
    cap = caller.cap
    if cap is not None and cap.currency in ("", book.currency):
        used = used_micro.get(cap.key_id, 0)
        yield Bound("The spending cap of this API key", cap.key_id, cap.spend_cap_micro, used)


async def _answers_micro(
    deps: Deps, tenant: str, key_id: str | None, book: PriceBook, month: Period
) -> Micro:
    use = await answers_of_month(deps, tenant, month, book.version, key_id)
    charge = answer_charge(use, {book.version: book})
    return 0 if charge is None else charge.amount_micro
