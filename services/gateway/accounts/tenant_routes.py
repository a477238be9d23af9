"""`/v1/tenants`: for operators. Tenants, their API keys, what is credited to them."""

from typing import Final

from fastapi import APIRouter

from schemas.account import (
    AdjustInvoice,
    CreateKey,
    CreateTenant,
    InvoiceAdjustment,
    KeyTerms,
    Lane,
    Limits,
    PlanTerms,
)
from schemas.ids import KEY
from schemas.sealed import Sealed
from schemas.topics import ACCOUNT
from schemas.units import HOUR_MS, Ms
from services.gateway.accounts import key_routes as keys
from services.gateway.accounts.auth import digest
from services.gateway.accounts.bodies import (
    AdjustmentRequest,
    KeyRequest,
    RotateKeyRequest,
    TenantRequest,
)
from services.gateway.accounts.responses import (
    HINT_CHARACTERS,
    AdjustmentResponse,
    KeyResponse,
    NewKeyResponse,
    TenantResponse,
    adjustment_response,
    tenant_response,
)
from services.gateway.accounts.tables import LIMITS, TENANTS, TenantRow
from services.gateway.web.deps import Admin, Deps, Principal, WithDeps
from services.gateway.web.errors import invalid, not_found
from services.gateway.web.pages import After, page
from services.gateway.web.responses import Page, listing

LIMITS_MS_MAX: Final[Ms] = 3_000  # how long the answer waits until jobs can be submitted
POLL_MS: Final[Ms] = 50
# What a plan allows unless the request says otherwise: (soft, hard) GPU-hours a month, jobs at once
PLANS: Final[dict[Lane, tuple[int, int, int]]] = {
    "premium": (2_000, 4_000, 20),
    "standard": (500, 1_000, 8),
    "free": (10, 20, 1),
}
router = APIRouter(prefix="/v1/tenants", tags=["tenants"])


@router.post("", status_code=201)
async def create_tenant(body: TenantRequest, deps: WithDeps, admin: Admin) -> TenantResponse:
    """Returns when the tenant can submit jobs."""
    version = body.price_version or deps.prices.newest()
    if deps.prices.book(version) is None:
        raise invalid(f"There is no price book {version!r}.", "price_version")
    await deps.commands.decide(
        ACCOUNT,
        body.id,
        CreateTenant(
            name=deps.seal.seal(body.id, body.name or body.id),
            terms=PlanTerms(lane=body.plan, limits=_limits(body), price_version=version),
        ),
        actor=_actor(deps, admin, body.id),
    )
    await _until_admitted(deps, body.id)
    return tenant_response(await _tenant(deps, body.id), deps.unseal)


def _limits(body: TenantRequest) -> Limits:
    if body.limits is not None:
        return Limits(**body.limits.model_dump())
    soft, hard, concurrency = PLANS[body.plan]
    return Limits(soft_gpu_ms=soft * HOUR_MS, hard_gpu_ms=hard * HOUR_MS, concurrency=concurrency)


async def _until_admitted(deps: Deps, tenant: str) -> None:
    """Wait until the decider of jobs knows the tenant, LIMITS_MS_MAX at the most."""
    for _ in range(LIMITS_MS_MAX // POLL_MS):
        if await deps.views.first(LIMITS, {"id": tenant}) is not None:
            return
        await deps.clock.sleep(POLL_MS)


@router.get("")
async def list_tenants(
    deps: WithDeps, admin: Admin, after: After = None, limit: keys.Limit = keys.LIMIT
) -> Page[TenantResponse]:
    rows, more = await page(deps.views, TENANTS, {}, limit=limit, after=after, descending=False)
    return listing(Page[TenantResponse], [tenant_response(row, deps.unseal) for row in rows], more)


@router.get("/{tenant}")
async def retrieve_tenant(tenant: str, deps: WithDeps, admin: Admin) -> TenantResponse:
    return tenant_response(await _tenant(deps, tenant), deps.unseal)


@router.post("/{tenant}/keys", status_code=201)
async def create_key(tenant: str, body: KeyRequest, deps: WithDeps, admin: Admin) -> NewKeyResponse:
    """The key is in this answer and in no other: only its SHA-256 is kept."""
    await _tenant(deps, tenant)
    secret = keys.fresh_secret(deps)
    key_id = deps.fresh(KEY)
    terms = KeyTerms(
        key_id=key_id,
        name=deps.seal.seal(tenant, body.name),
        sha256=digest(secret),
        hint=secret[-HINT_CHARACTERS:],
        scopes=tuple(sorted(set(body.scopes))),
        expires_at=None if body.expires_at is None else body.expires_at * 1_000,
        models=None if body.models is None else tuple(sorted(set(body.models))),
        spend_cap_micro=body.spend_cap_micro,
        requests_per_minute=body.requests_per_minute,
    )
    actor = _actor(deps, admin, tenant)
    await deps.commands.decide(ACCOUNT, tenant, CreateKey(terms=terms), actor=actor)
    return await keys.with_secret(deps, tenant, key_id, secret)


@router.post("/{tenant}/keys/{key_id}/rotate")
async def rotate_key(
    tenant: str, key_id: str, body: RotateKeyRequest, deps: WithDeps, admin: Admin
) -> NewKeyResponse:
    """A new secret under the same id, scopes and caps; the old one is good a while longer."""
    return await keys.rotated(deps, tenant, key_id, body, _actor(deps, admin, tenant))


@router.get("/{tenant}/keys")
async def list_keys(
    tenant: str, deps: WithDeps, admin: Admin, after: After = None, limit: keys.Limit = keys.LIMIT
) -> Page[KeyResponse]:
    await _tenant(deps, tenant)
    return await keys.listed(deps, tenant, after, limit)


@router.delete("/{tenant}/keys/{key_id}")
async def revoke_key(tenant: str, key_id: str, deps: WithDeps, admin: Admin) -> KeyResponse:
    return await keys.revoked(deps, tenant, key_id, _actor(deps, admin, tenant))


@router.post("/{tenant}/adjustments", status_code=201)
async def adjust_invoice(
    tenant: str, body: AdjustmentRequest, deps: WithDeps, admin: Admin
) -> AdjustmentResponse:
    """A credit or a charge on the invoice of the month; a reference counts once."""
    row = await _tenant(deps, tenant)
    book = deps.prices.book(row.price_version)
    if book is None:
        raise invalid(f"There is no price book {row.price_version!r}.", "tenant")
    adjustment = InvoiceAdjustment(
        reference=body.reference,
        amount_micro=body.amount_micro,
        currency=book.currency,
        reason=body.reason,
    )
    actor = _actor(deps, admin, tenant)
    command = AdjustInvoice(adjustment=adjustment)
    outcome = await deps.commands.decide(ACCOUNT, tenant, command, actor=actor)
    return adjustment_response(tenant, adjustment, outcome.at)


def _actor(deps: Deps, admin: Principal, tenant: str) -> Sealed:
    """Sealed for the tenant whose journal it goes into, so that erasing it erases all."""
    return deps.seal.seal(tenant, admin.key_id)


async def _tenant(deps: Deps, tenant: str) -> TenantRow:
    row = await deps.views.first(TENANTS, {"id": tenant})
    if row is None:
        raise not_found("tenant", tenant, "tenant")
    return row
