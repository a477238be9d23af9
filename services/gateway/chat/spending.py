"""Budgets and caps, where answers have a price: who has reached one is answered no more.

What a budget has used is as the log has it; tokens are those that engines have counted so far, so
the answers of the last seconds are not among them.
"""

from collections.abc import AsyncGenerator
from typing import NamedTuple

from schemas.admission import TENANT_BUDGET
from schemas.billing import PriceBook
from schemas.units import Micro
from services.gateway.billing.invoice_reads import answers_of_month
from services.gateway.views.tables.accounts import BUDGETS, TENANTS
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.errors import INSUFFICIENT_QUOTA, ApiError
from tunery.billing.answers import answer_charges
from tunery.billing.currency import in_units
from tunery.billing.periods import Period, period_of


class Bound(NamedTuple):
    """Spending limit of a month, and the amount used."""

    name: str
    limit_micro: Micro
    used_micro: Micro


async def refuse_above_budget(deps: Deps, caller: Principal) -> PriceBook | None:
    """Return the prices of answers, if they have any.

    Raises ApiError 429 where the tenant's budget, or the key's budget or cap, is reached.
    """
    tenant = await deps.views.first(TENANTS, {"id": caller.tenant})
    book = None if tenant is None else await deps.prices.book(tenant.price_version)
    if book is None or book.answers is None:
        return None
    month = period_of(deps.clock.now_ms())
    async for bound in _bounds(deps, caller, book, month):
        if bound.used_micro >= bound.limit_micro:
            limit = f"{in_units(bound.limit_micro)} {book.currency}"
            message = (
                f"{bound.name} of {limit} is reached in {month.name}, with answers and jobs. "
                "Raise it, or wait for the next month."
            )
            raise ApiError(429, INSUFFICIENT_QUOTA, message)
    return book


async def _bounds(
    deps: Deps, caller: Principal, book: PriceBook, month: Period
) -> AsyncGenerator[Bound, None]:
    """Budgets and the cap in the currency of the book; others cannot be compared with it."""
    used_micro = None
    for budget_id in (TENANT_BUDGET, caller.key_id):
        row = await deps.views.first(BUDGETS, {"tenant": caller.tenant, "id": budget_id})
        if row is None:
            continue
        if row.currency != book.currency:
            continue
        used = row.use.used_micro if row.use is not None and row.month == month.name else 0
        if budget_id == caller.key_id:
            used_micro = used
        if row.max_amount_micro is not None:
            yield Bound(f"The budget {budget_id!r}", row.max_amount_micro, used)
    cap = caller.cap
    if cap is not None and cap.currency in ("", book.currency):
        if used_micro is None:  # jobs of a key are summed for its budget alone
            used_micro = await _answers_micro(deps, caller.tenant, cap.key_id, book, month)
        yield Bound("The spending cap of this API key", cap.spend_cap_micro, used_micro)


async def _answers_micro(
    deps: Deps, tenant: str, key_id: str, book: PriceBook, month: Period
) -> Micro:
    """Return the cost of the key's answers in the book's currency, at the price of each time."""
    uses = await answers_of_month(deps, tenant, month, book.version, key_id)
    books = [await deps.prices.book(use.price_version) for use in uses]
    priced = {each.version: each for each in books if each and each.currency == book.currency}
    return sum(charge.amount_micro for charge in answer_charges(uses, priced))
