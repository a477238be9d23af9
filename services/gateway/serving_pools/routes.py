"""`/v1/serving_pools`: replicas that answer for deployments, on nodes of the scheduler's pool.

Their removal is in `deployments.routes`, for it looks at these first.
"""

from typing import Final

from msgspec.structs import replace

from schemas import errors
from schemas.ids import SERVING_POOL
from schemas.model import Base
from schemas.serving import ReplicaTerms, ServingPoolTerms, SetServingPool
from schemas.submission import Price
from schemas.topics import JOB
from services.gateway.accounts.tables import TENANTS
from services.gateway.models.routes import find_base, look_at_base
from services.gateway.serving_pools.bodies import ReplicasRequest, ServingPoolRequest
from services.gateway.serving_pools.responses import (
    MINUTE_MS,
    ServingPoolResponse,
    serving_pool_response,
)
from services.gateway.serving_pools.tables import REPLICAS, SERVING_POOLS, ServingPoolRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.errors import ApiError, not_found
from services.gateway.web.responses import Page, listing
from services.gateway.web.routing import new_router
from tunery.plan.memory import replica_bytes
from tunery.plan.price import lane_price

POOL: Final = "default"
POOLS_READ_MAX: Final = 100
TERMS_READ_MAX: Final = 200
router = new_router("models")


@router.post("/v1/serving_pools")
async def create_serving_pool(
    body: ServingPoolRequest, deps: WithDeps, caller: Caller
) -> ServingPoolResponse:
    """Let replicas of a base model answer, with the versions of it that deployments name.

    Each holds slots of a node for a term and is billed for them; the scheduler replaces it at the
    end of its term, or where its node fails.
    """
    base = await find_base(deps, body.model)
    if base is None:
        message = f"The model `{body.model}` does not exist or you do not have access to it."
        raise ApiError(404, errors.UNKNOWN_BASE, message, "model")
    if caller.models is not None and base.base_id not in caller.models:
        message = f"This key may not use {base.base_id}. Use another key, or create one with it."
        raise ApiError(403, errors.FORBIDDEN, message, "model")
    await look_at_base(deps, caller, base.base_id)
    terms = ServingPoolTerms(
        serving_pool_id=deps.fresh(SERVING_POOL),
        replicas=body.replicas,
        replica=_replica(base, body),
        price=await _price(deps, caller),
        key_id=caller.key_id,
        cap=caller.cap,
    )
    return await _set(deps, caller, terms)


@router.get("/v1/serving_pools")
async def list_serving_pools(deps: WithDeps, caller: Caller) -> Page[ServingPoolResponse]:
    """List serving pools, the one that was set last first."""
    mine = {"tenant": caller.tenant}
    rows = await deps.views.page(SERVING_POOLS, mine, limit=POOLS_READ_MAX)
    terms = await deps.views.page(REPLICAS, mine, limit=TERMS_READ_MAX, descending=False)
    shown = [serving_pool_response(row, terms) for row in rows]
    return listing(Page[ServingPoolResponse], shown, False)


@router.get("/v1/serving_pools/{serving_pool_id}")
async def retrieve_serving_pool(
    serving_pool_id: str, deps: WithDeps, caller: Caller
) -> ServingPoolResponse:
    """A serving pool, and what each of its replicas is doing."""
    return await _shown(deps, caller, serving_pool_id)


@router.post("/v1/serving_pools/{serving_pool_id}")
async def change_serving_pool(
    serving_pool_id: str, body: ReplicasRequest, deps: WithDeps, caller: Caller
) -> ServingPoolResponse:
    """Want another number of replicas. Terms that begin from now on have the price of today.

    A serving pool that is stalled is tried again.
    """
    row = await find_serving_pool(deps, caller, serving_pool_id, "serving_pool_id")
    terms = replace(
        row.terms,
        replicas=body.replicas,
        price=await _price(deps, caller),
        key_id=caller.key_id,
        cap=caller.cap,
    )
    return await _set(deps, caller, terms)


async def find_serving_pool(
    deps: Deps, caller: Principal, serving_pool_id: str, param: str
) -> ServingPoolRow:
    """A serving pool of the caller's tenant. Raises ApiError 404."""
    where = {"tenant": caller.tenant, "id": serving_pool_id}
    row = await deps.views.first(SERVING_POOLS, where)
    if row is None:
        raise not_found("serving pool", serving_pool_id, param)
    return row


async def _set(deps: Deps, caller: Principal, terms: ServingPoolTerms) -> ServingPoolResponse:
    await deps.commands.decide(
        JOB,
        caller.tenant,
        SetServingPool(terms=terms),
        actor=deps.seal.seal(caller.tenant, caller.key_id, "actor"),
    )
    return await _shown(deps, caller, terms.serving_pool_id)


async def _shown(deps: Deps, caller: Principal, serving_pool_id: str) -> ServingPoolResponse:
    row = await find_serving_pool(deps, caller, serving_pool_id, "serving_pool_id")
    where = {"tenant": caller.tenant, "serving_pool_id": serving_pool_id}
    terms = await deps.views.page(REPLICAS, where, limit=TERMS_READ_MAX, descending=False)
    return serving_pool_response(row, terms)


def _replica(base: Base, body: ServingPoolRequest) -> ReplicaTerms:
    return ReplicaTerms(
        base=base,
        pool=POOL,
        slots=body.slots,
        memory_bytes=replica_bytes(base) // body.slots,
        term_ms=body.term_minutes * MINUTE_MS,
    )


async def _price(deps: Deps, caller: Principal) -> Price:
    """What the tenant's plan says today. Raises ApiError 503 where that is not known."""
    tenant = await deps.views.first(TENANTS, {"id": caller.tenant})
    book = None if tenant is None else await deps.prices.book(tenant.price_version)
    if tenant is None or book is None:
        message = "The price book of this tenant is not on the log yet. Tell the operator."
        raise ApiError(503, "price_book_missing", message, headers={"retry-after": "5"})
    return lane_price(book, tenant.plan)
