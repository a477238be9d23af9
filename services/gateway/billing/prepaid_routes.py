"""Prepaid credits: `/v1/tenants/{id}/prepaid`, for operators, and `/v1/billing/prepaid`."""

from typing import Annotated, Final, Literal

from fastapi import Query
from pydantic import Field

from schemas.billing import PrepaidCredit
from schemas.prepaid import GrantPrepaid, RevokePrepaid
from schemas.topics import ACCOUNT
from services.gateway.accounts.bodies import Reference
from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.contract_routes import currency_of
from services.gateway.billing.contract_terms import Amount, Currency, Month
from services.gateway.billing.tables import PREPAID, PrepaidRow
from services.gateway.web.bodies import Body
from services.gateway.web.deps import Admin, Deps, WithDeps
from services.gateway.web.errors import not_found
from services.gateway.web.pages import After, page
from services.gateway.web.responses import ListItem, Page, listing, seconds
from services.gateway.web.routing import new_router

LIMIT: Final = 100
LIMIT_MAX: Final = 1_000
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
    """Which prepaid credit was recorded by mistake."""

    reference: Reference


class PrepaidResponse(ListItem):
    """`id`: its reference. `amount_micro` is the sum of the other four amounts."""

    id: str
    object: Literal["prepaid_credit"] = "prepaid_credit"
    created_at: int
    amount_micro: int
    currency: str
    first_month: str
    last_month: str | None
    used_micro: int
    expired_micro: int
    revoked_micro: int
    left_micro: int


@router.post("/v1/tenants/{tenant}/prepaid", status_code=201)
async def grant_prepaid(
    tenant: str, body: PrepaidRequest, deps: WithDeps, admin: Admin
) -> PrepaidResponse:
    """Record money that the tenant has paid in advance; the same once more changes nothing."""
    credit = PrepaidCredit(
        reference=body.reference,
        amount_micro=body.amount_micro,
        currency=body.currency or await currency_of(deps, tenant),
        last_month=body.last_month,
    )
    actor = deps.seal.seal(tenant, admin.key_id, "actor")
    await deps.commands.decide(ACCOUNT, tenant, GrantPrepaid(credit=credit), actor=actor)
    return await _find(deps, tenant, body.reference)


@router.post("/v1/tenants/{tenant}/prepaid/revoke")
async def revoke_prepaid(
    tenant: str, body: RevokePrepaidRequest, deps: WithDeps, admin: Admin
) -> PrepaidResponse:
    """Take back what is left of a prepaid credit; what it has paid stays paid."""
    actor = deps.seal.seal(tenant, admin.key_id, "actor")
    command = RevokePrepaid(reference=body.reference)
    await deps.commands.decide(ACCOUNT, tenant, command, actor=actor)
    return await _find(deps, tenant, body.reference)


async def _find(deps: Deps, tenant: str, reference: str) -> PrepaidResponse:
    row = await deps.views.first(PREPAID, {"tenant": tenant, "id": reference})
    if row is None:
        raise not_found("prepaid credit", reference, "reference")
    return prepaid_response(row)


@router.get("/v1/billing/prepaid")
async def list_prepaid(
    deps: WithDeps,
    tenant: NamedTenant,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT,
) -> Page[PrepaidResponse]:
    """List prepaid credits, the newest first, with what is used, expired and left of each."""
    rows, more = await page(deps.views, PREPAID, {"tenant": tenant}, limit=limit, after=after)
    return listing(Page[PrepaidResponse], [prepaid_response(row) for row in rows], more)


def prepaid_response(row: PrepaidRow) -> PrepaidResponse:
    """A prepaid credit as it is now."""
    credit, expired, revoked = row.credit, row.expired_micro or 0, row.revoked_micro or 0
    return PrepaidResponse(
        id=row.id,
        created_at=seconds(row.at),
        amount_micro=credit.amount_micro,
        currency=credit.currency,
        first_month=row.first_month,
        last_month=credit.last_month,
        used_micro=credit.amount_micro - expired - revoked - row.left_micro,
        expired_micro=expired,
        revoked_micro=revoked,
        left_micro=row.left_micro,
    )
