"""`/v1/tenants/{id}/billing`, for operators, and `/v1/billing/terms`: what invoices say and add."""

from schemas.account import SetBillingTerms
from schemas.billing import BillingTerms
from schemas.topics import ACCOUNT
from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.domain.contract_terms import (
    BillingTermsRequest,
    BillingTermsResponse,
    Month,
    billing_terms,
    billing_terms_response,
)
from services.gateway.billing.invoice_reads import terms_by_month
from services.gateway.views.tables.accounts import TENANTS
from services.gateway.web.deps import Admin, Deps, WithDeps
from services.gateway.web.domain.errors import invalid, not_found
from services.gateway.web.routing import new_router
from tunery.billing.contract import is_month
from tunery.billing.periods import in_force, period_of

router = new_router("billing")


@router.put("/v1/tenants/{tenant}/billing")
async def set_billing_terms(
    tenant: str, body: BillingTermsRequest, deps: WithDeps, admin: Admin
) -> BillingTermsResponse:
    """Set what the tenant's invoices say, and its contract's terms, from a month on.

    They hold until the next month that has its own. Closed invoices stay.
    """
    current = period_of(deps.clock.now_ms()).name
    month = body.from_month or current
    currency = await currency_of(deps, tenant, month)
    buyer = None if body.buyer is None else deps.seal.seal(tenant, body.buyer, "buyer")
    terms = billing_terms(body, buyer, currency)
    command = SetBillingTerms(terms=terms, from_month=body.from_month)
    await deps.decide(admin, ACCOUNT, command, tenant=tenant)
    changes = {**await terms_by_month(deps, tenant), month: terms}
    return billing_terms_response(tenant, changes, month, body.buyer)


@router.get("/v1/billing/terms")
async def retrieve_billing_terms(
    deps: WithDeps, tenant: NamedTenant, month: Month | None = None
) -> BillingTermsResponse:
    """Return the tenant's invoice texts and contract terms in a month, by default this one."""
    if month is not None and not is_month(month):
        raise invalid(f"{month!r} is not a month; write it like 2026-11.", "month")
    changes = await terms_by_month(deps, tenant)
    name = month or period_of(deps.clock.now_ms()).name
    buyer = deps.unseal(in_force(changes, name, BillingTerms()).buyer, "buyer")
    return billing_terms_response(tenant, changes, name, buyer)


async def currency_of(deps: Deps, tenant: str, month: str | None = None) -> str:
    """Currency of the tenant's prices now, or at a month's end. Raises ApiError 404 and 400."""
    row = await deps.views.first(TENANTS, {"id": tenant})
    if row is None:
        raise not_found("tenant", tenant, "tenant")
    version, change = row.price_version, row.scheduled
    if change is not None and month is not None:
        begins = period_of(change.effective_at).name
        version = change.terms.price_version if month >= begins else version
    book = await deps.prices.book(version)
    if book is None:
        raise invalid(f"There is no price book {version!r}.", "tenant")
    return book.currency
