"""Billing terms and prepaid credits: `/v1/tenants/{id}/billing` and `…/prepaid`, for operators, and
`/v1/billing`: what invoices say and add, and what was paid in advance.
"""

from typing import Final, Literal

from pydantic import Field

from schemas.account import SetBillingTerms
from schemas.billing import BillingTerms, PrepaidCredit
from schemas.prepaid import GrantPrepaid, RevokePrepaid
from schemas.records import build_from
from schemas.topics import ACCOUNT
from services.gateway.accounts.deps import NamedTenant, rows_of_named_tenant
from services.gateway.accounts.domain.bodies import Reference
from services.gateway.billing.domain.contract_terms import (
    Amount,
    BillingTermsRequest,
    BillingTermsResponse,
    Currency,
    Month,
    billing_terms,
    billing_terms_response,
)
from services.gateway.billing.invoice_reads import terms_by_month
from services.gateway.views.tables.accounts import TENANTS
from services.gateway.views.tables.billing import PREPAID, PrepaidRow
from services.gateway.web.deps import Admin, Deps, WithDeps
from services.gateway.web.domain.bodies import Body
from services.gateway.web.domain.errors import invalid, not_found
from services.gateway.web.domain.responses import ListItem, Seconds
from services.gateway.web.resources import Resource, each
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


class PrepaidRequest(Body):
    """Money that was paid in advance; `amount_micro` in whole minor units of the currency."""

    reference: Reference
    amount_micro: Amount
    currency: Currency | None = Field(default=None, description="by default the tenant's")
    last_month: Month | None = Field(
        default=None, description="the last month whose invoice it may pay, like 2027-10"
    )


class RevokePrepaidRequest(Body):
    """Prepaid credit to revoke, which was recorded by mistake."""

    reference: Reference


class PrepaidResponse(ListItem):
    """A prepaid credit; its id is its reference. `amount_micro` is the sum of the other four
    amounts.
    """

    id: str
    object: Literal["prepaid_credit"] = "prepaid_credit"
    created_at: Seconds
    amount_micro: int
    currency: str
    first_month: str
    last_month: str | None
    used_micro: int
    expired_micro: int
    revoked_micro: int
    left_micro: int


def prepaid_response(row: PrepaidRow) -> PrepaidResponse:
    """A prepaid credit as it is now."""
    credit, expired, revoked = row.credit, row.expired_micro or 0, row.revoked_micro or 0
    return PrepaidResponse.of(
        row,
        credit,
        created_at=row.at,
        used_micro=credit.amount_micro - expired - revoked - row.left_micro,
        expired_micro=expired,
        revoked_micro=revoked,
    )


PREPAID_CREDIT: Final = Resource(
    noun="prepaid credit",
    table=PREPAID,
    response=PrepaidResponse,
    respond=each(lambda _, row: prepaid_response(row)),
    rows=rows_of_named_tenant,
    param="reference",
)
PREPAID_CREDIT.add_list(
    router,
    "/v1/billing/prepaid",
    "list_prepaid",
    "List prepaid credits, the newest first, with what is used, expired and left of each.",
)


@router.post("/v1/tenants/{tenant}/prepaid", status_code=201)
async def grant_prepaid(
    tenant: str, body: PrepaidRequest, deps: WithDeps, admin: Admin
) -> PrepaidResponse:
    """Record money that the tenant has paid in advance; the same once more changes nothing."""
    currency = body.currency or await currency_of(deps, tenant)
    credit = build_from(PrepaidCredit, body, currency=currency)
    await deps.decide(admin, ACCOUNT, GrantPrepaid(credit=credit), tenant=tenant)
    return await PREPAID_CREDIT.retrieve(deps, {"tenant": tenant}, body.reference)


@router.post("/v1/tenants/{tenant}/prepaid/revoke")
async def revoke_prepaid(
    tenant: str, body: RevokePrepaidRequest, deps: WithDeps, admin: Admin
) -> PrepaidResponse:
    """Take back what is left of a prepaid credit; what it has paid stays paid."""
    command = RevokePrepaid(reference=body.reference)
    await deps.decide(admin, ACCOUNT, command, tenant=tenant)
    return await PREPAID_CREDIT.retrieve(deps, {"tenant": tenant}, body.reference)
