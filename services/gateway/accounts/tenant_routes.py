"""`/v1/tenants`, for operators: tenants, their API keys, adjustments of their invoices, their
erasure.
"""

import asyncio
from datetime import UTC, datetime
from typing import Final, get_args

from schemas.account import (
    AdjustInvoice,
    CreateKey,
    CreateTenant,
    Lane,
    Limits,
    PlanTerms,
    ResumeTenant,
    SetPlan,
    SuspendTenant,
)
from schemas.billing import InvoiceAdjustment, PriceBook
from schemas.envelope import Message
from schemas.erasure import EraseTenant, ErasurePart
from schemas.ids import KEY
from schemas.keys import KeyTerms
from schemas.records import build_from
from schemas.topics import ACCOUNT
from schemas.units import HOUR_MS, Ms
from services.gateway.accounts import key_routes as keys
from services.gateway.accounts.auth import digest, fresh_secret
from services.gateway.accounts.domain.bodies import (
    AdjustmentRequest,
    EraseRequest,
    KeyRequest,
    LimitsBody,
    PlanRequest,
    RotateKeyRequest,
    TenantRequest,
)
from services.gateway.accounts.domain.responses import (
    HINT_CHARACTERS,
    AdjustmentResponse,
    ErasedPartResponse,
    ErasureResponse,
    KeyResponse,
    NewKeyResponse,
    TenantResponse,
    adjustment_response,
    tenant_response,
)
from services.gateway.views.tables.accounts import (
    ERASED_PARTS,
    LIMITS,
    TENANTS,
    LimitsRow,
    TenantRow,
)
from services.gateway.web.deps import Admin, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import ApiError, invalid, not_found
from services.gateway.web.domain.responses import Page, seconds, seconds_or_none
from services.gateway.web.pages import After
from services.gateway.web.resources import Resource, all_rows, each
from services.gateway.web.routing import new_router

LIMITS_MS_MAX: Final[Ms] = 3_000  # how long the response waits until `job` admits by the terms
POLL_MS: Final[Ms] = 50
# What a plan allows unless the request says otherwise: (soft, hard) GPU-hours a month, jobs at once
PLANS: Final[dict[Lane, tuple[int, int, int]]] = {
    "premium": (2_000, 4_000, 20),
    "standard": (500, 1_000, 8),
    "free": (10, 20, 1),
}
router = new_router("tenants", "/v1/tenants")


TENANT: Final = Resource(
    noun="tenant",
    table=TENANTS,
    response=TenantResponse,
    respond=each(lambda deps, row: tenant_response(row, deps.unseal)),
    rows=all_rows,
    newest_first=False,
    param="tenant",
)
TENANT.add_list(router, "", "list_tenants", "List all tenants.")
TENANT.add_retrieve(router, "/{tenant}", "retrieve_tenant")


@router.post("", status_code=201)
async def create_tenant(body: TenantRequest, deps: WithDeps, admin: Admin) -> TenantResponse:
    """Create a tenant. The response comes when the tenant can submit jobs."""
    version = await _price_version(deps, body.price_version or await _newest_version(deps))
    limits = _limits(body.plan, body.limits)
    command = CreateTenant(
        name=deps.seal.seal(body.id, body.name or body.id, "name"),
        terms=PlanTerms(lane=body.plan, limits=limits, price_version=version),
    )
    return await _decided(deps, admin, body.id, command)


@router.post("/{tenant}/plan")
async def change_plan(
    tenant: str, body: PlanRequest, deps: WithDeps, admin: Admin
) -> TenantResponse:
    """Change a tenant's plan, now or from the next month on. It replaces a scheduled change."""
    row = await TENANT.find(deps, {}, tenant)
    if body.plan is None and body.limits is None and body.price_version is None:
        raise invalid("Give plan, limits or price_version.", "plan")
    keeps_limits = body.plan is None and body.limits is None
    plan = body.plan or row.plan
    terms = PlanTerms(
        lane=plan,
        limits=row.limits if keeps_limits else _limits(plan, body.limits),
        price_version=await _price_version(deps, body.price_version or row.price_version),
    )
    return await _decided(deps, admin, tenant, SetPlan(terms=terms, start=body.effective))


@router.post("/{tenant}/suspend")
async def suspend_tenant(tenant: str, deps: WithDeps, admin: Admin) -> TenantResponse:
    """Refuse the tenant's submissions and resumptions. What it has submitted continues."""
    await TENANT.find(deps, {}, tenant)
    return await _decided(deps, admin, tenant, SuspendTenant())


@router.post("/{tenant}/resume")
async def resume_tenant(tenant: str, deps: WithDeps, admin: Admin) -> TenantResponse:
    """Accept the tenant's submissions and resumptions again."""
    await TENANT.find(deps, {}, tenant)
    return await _decided(deps, admin, tenant, ResumeTenant())


async def _decided(deps: Deps, admin: Principal, tenant: str, command: Message) -> TenantResponse:
    """The tenant with what the command changed. Raises ApiError when it is refused."""
    await deps.decide(admin, ACCOUNT, command, tenant=tenant)
    # wait until the stream `job` admits by its terms, at most for LIMITS_MS_MAX
    row = await TENANT.find(deps, {}, tenant)
    for _ in range(LIMITS_MS_MAX // POLL_MS):
        known = await deps.views.first(LIMITS, {"id": tenant})
        if known is not None and _admits_by(known, row):
            break
        await deps.clock.sleep(POLL_MS)
    return tenant_response(row, deps.unseal)


def _limits(plan: Lane, limits: LimitsBody | None) -> Limits:
    if limits is not None:
        return Limits(**limits.model_dump())
    soft, hard, concurrency = PLANS[plan]
    return Limits(soft_gpu_ms=soft * HOUR_MS, hard_gpu_ms=hard * HOUR_MS, concurrency=concurrency)


async def _newest_version(deps: Deps) -> str:
    """Version of the newest price book in force. A new installation imports its books first."""
    today = datetime.fromtimestamp(deps.clock.now_ms() // 1_000, UTC).date().isoformat()
    for _ in range(LIMITS_MS_MAX // POLL_MS):
        if (book := await deps.prices.newest(today)) is not None:
            return book.version
        await asyncio.sleep(POLL_MS / 1_000)
    message = "No price book is in force. Billing imports the books of its folder when it starts."
    raise ApiError(503, "price_book_missing", message, headers={"retry-after": "60"})


async def _price_version(deps: Deps, version: str) -> str:
    if await deps.prices.book(version) is None:
        raise invalid(f"There is no price book {version!r}.", "price_version")
    return version


def _admits_by(known: LimitsRow, row: TenantRow) -> bool:
    suspended = row.suspended_at is not None
    return (known.lane, known.limits, known.price_version, known.suspended or False) == (
        row.plan,
        row.limits,
        row.price_version,
        suspended,
    )


@router.post("/{tenant}/keys", status_code=201)
async def create_key(tenant: str, body: KeyRequest, deps: WithDeps, admin: Admin) -> NewKeyResponse:
    """Create an API key. Only this response contains the key; its SHA-256 is stored."""
    row = await TENANT.find(deps, {}, tenant)
    capped = body.spend_cap_micro is not None
    secret = fresh_secret(deps)
    key_id = deps.fresh(KEY)
    terms = KeyTerms(
        key_id=key_id,
        name=deps.seal.seal(tenant, body.name, "name"),
        sha256=digest(secret),
        hint=secret[-HINT_CHARACTERS:],
        scopes=tuple(sorted(set(body.scopes))),
        expires_at=None if body.expires_at is None else body.expires_at * 1_000,
        models=None if body.models is None else tuple(sorted(set(body.models))),
        spend_cap_micro=body.spend_cap_micro,
        requests_per_minute=body.requests_per_minute,
        spend_cap_currency=(await _book(deps, row)).currency if capped else "",
    )
    await deps.decide(admin, ACCOUNT, CreateKey(terms=terms), tenant=tenant)
    return await keys.with_secret(deps, tenant, key_id, secret)


@router.post("/{tenant}/keys/{key_id}/rotate")
async def rotate_key(
    tenant: str, key_id: str, body: RotateKeyRequest, deps: WithDeps, admin: Admin
) -> NewKeyResponse:
    """Give a key a new secret. Id, scopes and caps stay; the old secret is valid for a while."""
    return await keys.rotate_secret(deps, tenant, key_id, body, admin)


@router.get("/{tenant}/keys")
async def list_keys(
    tenant: str, deps: WithDeps, admin: Admin, after: After = None, limit: keys.Limit = keys.LIMIT
) -> Page[KeyResponse]:
    await TENANT.find(deps, {}, tenant)
    return await keys.list_tenant_keys(deps, tenant, after, limit)


@router.delete("/{tenant}/keys/{key_id}")
async def revoke_key(tenant: str, key_id: str, deps: WithDeps, admin: Admin) -> KeyResponse:
    return await keys.revoke(deps, tenant, key_id, admin)


@router.post("/{tenant}/adjustments", status_code=201)
async def adjust_invoice(
    tenant: str, body: AdjustmentRequest, deps: WithDeps, admin: Admin
) -> AdjustmentResponse:
    """Add a credit or a charge to a month's invoice. A closed one gets a credit note."""
    row = await TENANT.find(deps, {}, tenant)
    book = await _book(deps, row)
    adjustment = build_from(InvoiceAdjustment, body, book)
    command = AdjustInvoice(adjustment=adjustment, period=body.period)
    outcome = await deps.decide(admin, ACCOUNT, command, tenant=tenant)
    return adjustment_response(tenant, adjustment, outcome.at, body.period)


async def _book(deps: Deps, row: TenantRow) -> PriceBook:
    book = await deps.prices.book(row.price_version)
    if book is None:
        raise invalid(f"There is no price book {row.price_version!r}.", "tenant")
    return book


PARTS: Final[tuple[ErasurePart, ...]] = get_args(ErasurePart)


@router.post("/{tenant}/erase", status_code=202)
async def erase_tenant(
    tenant: str, body: EraseRequest, deps: WithDeps, admin: Admin
) -> ErasureResponse:
    """Erase a tenant: close its keys, end its jobs, remove what it stored, destroy its data key.

    It cannot be taken back, and its id is not used again. `confirm` must be the tenant's id. Bills
    and the audit log stay, with identifiers alone. A repetition says how far the erasure is.
    """
    if body.confirm != tenant:
        raise invalid(
            "Give the tenant's id as `confirm`: an erasure cannot be taken back.", "confirm"
        )
    await deps.decide(admin, ACCOUNT, EraseTenant(), tenant=tenant)
    return await _erasure(deps, tenant)


@router.get("/{tenant}/erasure")
async def retrieve_erasure(tenant: str, deps: WithDeps, admin: Admin) -> ErasureResponse:
    """How far the erasure of a tenant is."""
    return await _erasure(deps, tenant)


async def _erasure(deps: Deps, tenant: str) -> ErasureResponse:
    row = await deps.views.first(TENANTS, {"id": tenant})
    if row is None or row.erasure_begun_at is None:
        raise not_found("erasure", tenant, "tenant")
    rows = await deps.views.page(
        ERASED_PARTS, {"tenant": tenant}, limit=len(PARTS), after=None, descending=False
    )
    gone = {done.id: seconds(done.at) for done in rows}
    return ErasureResponse(
        tenant=tenant,
        status="running" if row.erased_at is None else "done",
        begun_at=seconds(row.erasure_begun_at),
        erased_at=seconds_or_none(row.erased_at),
        parts=[ErasedPartResponse(part=part, erased_at=gone.get(part)) for part in PARTS],
        sha256=row.erasure_sha256,
    )
