"""Prepaid credits: `/v1/tenants/{id}/prepaid`, for operators, and `/v1/billing/prepaid`."""

from typing import Final, Literal

from pydantic import Field

from schemas.billing import PrepaidCredit
from schemas.prepaid import GrantPrepaid, RevokePrepaid
from schemas.records import build_from
from schemas.topics import ACCOUNT
from services.gateway.accounts.deps import rows_of_named_tenant
from services.gateway.accounts.domain.bodies import Reference
from services.gateway.billing.contract_routes import currency_of
from services.gateway.billing.domain.contract_terms import Amount, Currency, Month
from services.gateway.views.tables.billing import PREPAID, PrepaidRow
from services.gateway.web.deps import Admin, WithDeps
from services.gateway.web.domain.bodies import Body
from services.gateway.web.domain.responses import ListItem, Seconds
from services.gateway.web.resources import Resource, each
from services.gateway.web.routing import new_router

router = new_router("billing")


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
