"""`/v1/tenants/{id}/billing`, for operators, and `/v1/billing/terms`: what invoices say and add."""

from schemas.account import SetBillingTerms
from schemas.billing import BillingTerms
from schemas.topics import ACCOUNT
from services.gateway.accounts.deps import NamedTenant
from services.gateway.accounts.tables import TENANTS
from services.gateway.billing.contract_terms import (
    BillingTermsRequest,
    BillingTermsResponse,
    billing_terms,
    billing_terms_response,
)
from services.gateway.billing.tables import BILLING_TERMS
from services.gateway.web.deps import Admin, Deps, WithDeps
from services.gateway.web.errors import invalid, not_found
from services.gateway.web.routing import new_router

router = new_router("billing")


@router.put("/v1/tenants/{tenant}/billing")
async def set_billing_terms(
    tenant: str, body: BillingTermsRequest, deps: WithDeps, admin: Admin
) -> BillingTermsResponse:
    """Set what the tenant's invoices say, and its contract's terms. Closed invoices stay."""
    currency = await currency_of(deps, tenant)
    buyer = None if body.buyer is None else deps.seal.seal(tenant, body.buyer, "buyer")
    terms = billing_terms(body, buyer, currency)
    actor = deps.seal.seal(tenant, admin.key_id, "actor")
    await deps.commands.decide(ACCOUNT, tenant, SetBillingTerms(terms=terms), actor=actor)
    return billing_terms_response(tenant, terms, body.buyer)


@router.get("/v1/billing/terms")
async def retrieve_billing_terms(deps: WithDeps, tenant: NamedTenant) -> BillingTermsResponse:
    """What the tenant's invoices say, and its contract's terms."""
    row = await deps.views.first(BILLING_TERMS, {"id": tenant})
    terms = BillingTerms() if row is None else row.terms
    return billing_terms_response(tenant, terms, deps.unseal(terms.buyer, "buyer"))


async def currency_of(deps: Deps, tenant: str) -> str:
    """That of the tenant's prices. Raises ApiError 404 and 400."""
    row = await deps.views.first(TENANTS, {"id": tenant})
    if row is None:
        raise not_found("tenant", tenant, "tenant")
    book = await deps.prices.book(row.price_version)
    if book is None:
        raise invalid(f"There is no price book {row.price_version!r}.", "tenant")
    return book.currency
