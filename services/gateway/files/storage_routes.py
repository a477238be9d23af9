"""`/v1/storage`: what a tenant keeps, beside what its plan allows."""

from typing import Final, Literal

from schemas import errors
from schemas.reasons import refusing
from schemas.storage import NOT_COUNTED
from services.gateway.accounts.deps import NamedTenant, limits_of
from services.gateway.plan_limits import PlanLimits
from services.gateway.views.ports import Buckets
from services.gateway.views.tables.files import FILES, UPLOADS
from services.gateway.web.deps import Deps, Principal, WithDeps
from services.gateway.web.domain.errors import refused
from services.gateway.web.domain.responses import Response
from services.gateway.web.routing import new_router
from services.gateway.wording import refusal_words

EVER: Final = 2**62
ALL_TIME: Final = Buckets(column="created_at", first=0, end=EVER, width=EVER)
router = new_router("files")


class StorageLimitsResponse(Response):
    """Storage limits of the tenant's plan."""

    bytes: int
    files: int
    uploads: int


class StorageResponse(Response):
    """Current storage use. `bytes`: size of files, and declared size of pending uploads."""

    object: Literal["storage"] = "storage"
    bytes: int
    files: int
    uploads: int
    limits: StorageLimitsResponse


@router.get("/v1/storage")
async def storage(deps: WithDeps, tenant: NamedTenant) -> StorageResponse:
    """Bytes, files and pending uploads of the tenant, and its limits. Failed files count, too."""
    return await _used(deps, tenant, await limits_of(deps, tenant))


async def checked_limits(deps: Deps, caller: Principal) -> PlanLimits:
    """The limits of the caller's plan. Raises ApiError 429 when there is no place for a file.

    This spares a client from sending bytes in vain. Whether they fit is decided on the log.
    """
    limits = await limits_of(deps, caller.tenant)
    used = await _used(deps, caller.tenant, limits)
    if used.files >= limits.files_max:
        reason = refusing("files_at_most", limit=limits.files_max)
    elif used.bytes >= limits.storage_bytes_max:
        reason = refusing(
            "bytes_at_most", limit=limits.storage_bytes_max, used_bytes=used.bytes, size_bytes=1
        )
    else:
        return limits
    raise refused(errors.QUOTA_EXCEEDED, refusal_words(reason), None)


async def _used(deps: Deps, tenant: str, limits: PlanLimits) -> StorageResponse:
    files = await deps.views.sums(
        FILES, {"tenant": tenant}, ALL_TIME, by=("purpose",), of=("bytes",), limit=10
    )
    pending = {"tenant": tenant, "status": "pending"}
    uploads = await deps.views.sums(
        UPLOADS, pending, ALL_TIME, by=("purpose",), of=("bytes",), limit=10
    )
    return StorageResponse(
        bytes=sum(sums["bytes"] for sums in (*files, *uploads) if sums["purpose"] != NOT_COUNTED),
        files=sum(sums["rows"] for sums in files),
        uploads=sum(sums["rows"] for sums in uploads),
        limits=StorageLimitsResponse(
            bytes=limits.storage_bytes_max, files=limits.files_max, uploads=limits.uploads_max
        ),
    )
