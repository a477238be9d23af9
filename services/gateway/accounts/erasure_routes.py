"""`/v1/tenants/{tenant}/erase`, for operators: the end of a tenant and of what it wrote."""

from typing import Final, get_args

from schemas.erasure import EraseTenant, ErasurePart
from schemas.topics import ACCOUNT
from services.gateway.accounts.domain.bodies import EraseRequest
from services.gateway.accounts.domain.responses import ErasedPartResponse, ErasureResponse
from services.gateway.views.tables.accounts import ERASED_PARTS, TENANTS
from services.gateway.web.deps import Admin, Deps, WithDeps
from services.gateway.web.domain.errors import invalid, not_found
from services.gateway.web.domain.responses import seconds, seconds_or_none
from services.gateway.web.routing import new_router

PARTS: Final[tuple[ErasurePart, ...]] = get_args(ErasurePart)
router = new_router("tenants", "/v1/tenants")


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
