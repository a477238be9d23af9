"""`/v1/serving_pools`: replicas that answer for deployments, on nodes of the scheduler's pool.

Their removal is in `deployments.routes`, for it looks at these first.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from schemas import errors, ids
from schemas.model import Base
from schemas.serving import ReplicaTerms, ServingPoolTerms, SetServingPool
from schemas.submission import Price
from schemas.topics import JOB
from services.gateway.models.routes import find_base, look_at_base
from services.gateway.serving_pools.domain.responses import (
    MINUTE_MS,
    ReplicasRequest,
    ServingPoolRequest,
    ServingPoolResponse,
    serving_pool_response,
)
from services.gateway.views.tables.accounts import TENANTS
from services.gateway.views.tables.serving_pools import REPLICAS, SERVING_POOLS, ServingPoolRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.resources import Resource
from services.gateway.web.routing import new_router
from tunery.plan.memory import replica_bytes
from tunery.plan.price import lane_price

POOL: Final = "default"
POOLS_READ_MAX: Final = 100
TERMS_READ_MAX: Final = 200
router = new_router("models")


async def _respond(deps: Deps, rows: Sequence[ServingPoolRow]) -> list[ServingPoolResponse]:
    """Serving pools with what each of their replicas is doing."""
    where = {
        "tenant": tuple({row.tenant for row in rows}),
        "serving_pool_id": tuple(row.id for row in rows),
    }
    terms = await deps.views.page(REPLICAS, where, limit=TERMS_READ_MAX, descending=False)
    return [serving_pool_response(row, terms) for row in rows]


SERVING_POOL: Final = Resource(
    noun="serving pool",
    table=SERVING_POOLS,
    response=ServingPoolResponse,
    respond=_respond,
    limit=POOLS_READ_MAX,
    limit_max=POOLS_READ_MAX,
    param="serving_pool_id",
)
SERVING_POOL.add_list(
    router,
    "/v1/serving_pools",
    "list_serving_pools",
    "List serving pools, the one that was set last first.",
)
SERVING_POOL.add_retrieve(
    router,
    "/v1/serving_pools/{serving_pool_id}",
    "retrieve_serving_pool",
    "A serving pool, and what each of its replicas is doing.",
)


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
        serving_pool_id=deps.fresh(ids.SERVING_POOL),
        replicas=body.replicas,
        replica=_replica(base, body),
        price=await _price(deps, caller),
        key_id=caller.key_id,
        cap=caller.cap,
    )
    return await _set(deps, caller, terms)


@router.post("/v1/serving_pools/{serving_pool_id}")
async def change_serving_pool(
    serving_pool_id: str, body: ReplicasRequest, deps: WithDeps, caller: Caller
) -> ServingPoolResponse:
    """Want another number of replicas. Terms that begin from now on have the price of today.

    A serving pool that is stalled is tried again.
    """
    row = await SERVING_POOL.find(deps, caller.rows, serving_pool_id)
    terms = replace(
        row.terms,
        replicas=body.replicas,
        price=await _price(deps, caller),
        key_id=caller.key_id,
        cap=caller.cap,
    )
    return await _set(deps, caller, terms)


async def _set(deps: Deps, caller: Principal, terms: ServingPoolTerms) -> ServingPoolResponse:
    await deps.decide(caller, JOB, SetServingPool(terms=terms))
    return await SERVING_POOL.retrieve(deps, caller.rows, terms.serving_pool_id)


def _replica(base: Base, body: ServingPoolRequest) -> ReplicaTerms:
    return ReplicaTerms(
        base=base,
        pool=POOL,
        slots=body.slots,
        memory_bytes=replica_bytes(base) // body.slots,
        term_ms=body.term_minutes * MINUTE_MS,
    )


async def _price(deps: Deps, caller: Principal) -> Price:
    """Return the current price of the tenant's plan. Raises ApiError 503 if its book is unknown."""
    tenant = await deps.views.first(TENANTS, {"id": caller.tenant})
    book = None if tenant is None else await deps.prices.book(tenant.price_version)
    if tenant is None or book is None:
        message = "The price book of this tenant is not on the log yet. Tell the operator."
        raise ApiError(503, "price_book_missing", message, headers={"retry-after": "5"})
    return lane_price(book, tenant.plan)
