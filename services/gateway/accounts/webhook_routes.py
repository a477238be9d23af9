"""`/v1/webhook_endpoints`."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from schemas.account import (
    EVENT_TYPES,
    ChangeEndpoint,
    CreateEndpoint,
    DeleteEndpoint,
    Deliver,
    RotateEndpoint,
)
from schemas.envelope import Message
from schemas.ids import DELIVERY, ENDPOINT, EVENT
from schemas.topics import ACCOUNT
from schemas.units import Ms
from services.gateway.accounts.documents import (
    Delivery,
    Endpoint,
    EndpointTest,
    EventTypes,
    NewEndpoint,
)
from services.gateway.accounts.responses import delivery_object, endpoint_object
from services.gateway.jobs.bodies import (
    DAY_S,
    REDELIVERIES_MAX,
    EndpointChangeRequest,
    EndpointRequest,
    RedeliverRequest,
    RotateSecretRequest,
    TestRequest,
)
from services.gateway.ports import Row
from services.gateway.views.tables import DELIVERIES, ENDPOINTS
from services.gateway.web.answers import says
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.documents import Deleted, Page
from services.gateway.web.errors import invalid, not_found
from services.gateway.web.pages import After, page
from services.gateway.web.responses import deleted, listing
from tunery.runtime.seal.webhooks import webhook_secret

LIMIT: Final = 20
LIMIT_MAX: Final = 100
SECRET_VERSION: Final = 1
TEST_MS_MAX: Final[Ms] = 20_000  # the receiver's 15 s, and the way there and back
POLL_MS: Final[Ms] = 50
LOOKED_AT_MAX: Final = 10_000  # deliveries, newest first, that a range is looked for in
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
router = APIRouter(tags=["webhooks"])
ROOT: Final = "/v1/webhook_endpoints"


@router.get("/v1/webhook_event_types", responses=says(EventTypes))
async def list_event_types(caller: Caller) -> dict[str, Any]:
    """What endpoints may subscribe to."""
    return {"object": "list", "data": list(EVENT_TYPES)}


@router.post(ROOT, responses=says(NewEndpoint))
async def create_endpoint(body: EndpointRequest, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    """The signing secret is in this answer and in no other."""
    endpoint_id = deps.fresh(ENDPOINT)
    seal, tenant = deps.seal, caller.tenant
    created = CreateEndpoint(
        endpoint_id=endpoint_id,
        name=seal.seal(tenant, body.name),
        url=seal.seal(tenant, body.url),
        event_types=tuple(body.event_types),
        secret_version=SECRET_VERSION,
    )
    await _decide(deps, caller, created)
    return await _with_secret(deps, caller, endpoint_id)


@router.get(ROOT, responses=says(Page[Endpoint]))
async def list_endpoints(
    deps: WithDeps, caller: Caller, after: After = None, limit: Limit = LIMIT
) -> dict[str, Any]:
    where = {"tenant": caller.tenant}
    rows, more = await page(deps.views, ENDPOINTS, where, limit=limit, after=after)
    return listing([_shown(deps, row) for row in rows], more)


@router.get(ROOT + "/{endpoint_id}", responses=says(Endpoint))
async def retrieve_endpoint(endpoint_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    return _shown(deps, await _endpoint(deps, caller, endpoint_id))


@router.post(ROOT + "/{endpoint_id}", responses=says(Endpoint))
async def change_endpoint(
    endpoint_id: str, body: EndpointChangeRequest, deps: WithDeps, caller: Caller
) -> dict[str, Any]:
    """Deliveries that are due already keep the address they were due to."""
    await _endpoint(deps, caller, endpoint_id)
    seal, tenant = deps.seal, caller.tenant
    changed = ChangeEndpoint(
        endpoint_id=endpoint_id,
        name=None if body.name is None else seal.seal(tenant, body.name),
        url=None if body.url is None else seal.seal(tenant, body.url),
        event_types=None if body.event_types is None else tuple(body.event_types),
    )
    await _decide(deps, caller, changed)
    return _shown(deps, await _endpoint(deps, caller, endpoint_id))


@router.delete(ROOT + "/{endpoint_id}", responses=says(Deleted))
async def delete_endpoint(endpoint_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    await _endpoint(deps, caller, endpoint_id)
    await _decide(deps, caller, DeleteEndpoint(endpoint_id=endpoint_id))
    return deleted("webhook_endpoint.deleted", endpoint_id)


@router.post(ROOT + "/{endpoint_id}/rotate_secret", responses=says(NewEndpoint))
async def rotate_secret(
    endpoint_id: str,
    deps: WithDeps,
    caller: Caller,
    body: RotateSecretRequest | None = None,
) -> dict[str, Any]:
    """A new signing secret. For the overlap every delivery carries both signatures."""
    await _endpoint(deps, caller, endpoint_id)
    overlap = body is not None and body.keep_old_secret_active_for_24_hours
    until = deps.clock.now_ms() + DAY_S * 1_000 * overlap
    await _decide(deps, caller, RotateEndpoint(endpoint_id=endpoint_id, previous_until=until))
    return await _with_secret(deps, caller, endpoint_id)


@router.post(ROOT + "/{endpoint_id}/test", responses=says(EndpointTest))
async def send_test(
    endpoint_id: str, deps: WithDeps, caller: Caller, body: TestRequest | None = None
) -> dict[str, Any]:
    """One signed event about nothing, sent once; the answer tells what the receiver said."""
    await _endpoint(deps, caller, endpoint_id)
    event_type = (body or TestRequest()).event_type
    if event_type not in EVENT_TYPES:
        raise invalid(f"Choose one of: {', '.join(EVENT_TYPES)}.", "event_type")
    test = Deliver(
        endpoint_id=endpoint_id,
        delivery_id=deps.fresh(DELIVERY),
        event_id=deps.fresh(EVENT),
        event_type=event_type,
        object_id="test",
        created_at=deps.clock.now_ms(),
        once=True,
    )
    await _decide(deps, caller, test)
    row = await _ended(deps, caller, test.delivery_id)
    return {
        "object": "webhook_endpoint.test",
        "webhook_endpoint_id": endpoint_id,
        "event_type": event_type,
        "delivery_id": test.delivery_id,
        "status_code": row["status"],
        "success": row["outcome"] == "delivered",
        "outcome": row["outcome"] or "pending",
    }


async def _ended(deps: Deps, caller: Principal, delivery_id: str) -> Row:
    """The delivery's row, ended or not, after TEST_MS_MAX at the latest."""
    where = {"tenant": caller.tenant, "id": delivery_id}
    for _ in range(TEST_MS_MAX // POLL_MS):
        row = await deps.views.one(DELIVERIES, where)
        if row is not None and row["ended_at"] is not None:
            return row
        await deps.clock.sleep(POLL_MS)
    return {"status": None, "outcome": None}


@router.get(ROOT + "/{endpoint_id}/deliveries", responses=says(Page[Delivery]))
async def list_deliveries(
    endpoint_id: str, deps: WithDeps, caller: Caller, after: After = None, limit: Limit = LIMIT
) -> dict[str, Any]:
    """What was sent and what came of it; kept when the endpoint is deleted."""
    where = {"tenant": caller.tenant, "endpoint_id": endpoint_id}
    known = await deps.views.one(ENDPOINTS, {"tenant": caller.tenant, "id": endpoint_id})
    rows, more = await page(deps.views, DELIVERIES, where, limit=limit, after=after)
    if known is None and not rows:
        raise not_found("webhook endpoint", endpoint_id, "id")
    return listing([delivery_object(row) for row in rows], more)


@router.post(ROOT + "/{endpoint_id}/redeliver", responses=says(Page[Delivery]))
async def redeliver(
    endpoint_id: str, body: RedeliverRequest, deps: WithDeps, caller: Caller
) -> dict[str, Any]:
    """The same events once more, with the ids they had: receivers tell repeats by them.

    At most REDELIVERIES_MAX a call, oldest first; `has_more` says that the range has others.
    """
    await _endpoint(deps, caller, endpoint_id)
    rows = await _chosen(deps, caller, endpoint_id, body)
    made = []
    for row in rows[:REDELIVERIES_MAX]:
        again = Deliver(
            endpoint_id=endpoint_id,
            delivery_id=deps.fresh(DELIVERY),
            event_id=row["event_id"],
            event_type=row["event_type"],
            object_id=row["object_id"],
            created_at=row["event_at"],
        )
        await _decide(deps, caller, again)
        where = {"tenant": caller.tenant, "id": again.delivery_id}
        made.append(await deps.views.one(DELIVERIES, where))
    shown = [delivery_object(row) for row in made if row is not None]
    return listing(shown, len(rows) > REDELIVERIES_MAX)


async def _chosen(
    deps: Deps, caller: Principal, endpoint_id: str, body: RedeliverRequest
) -> Sequence[Row]:
    """Deliveries to make once more, oldest first. Raises ApiError 400, 404."""
    where = {"tenant": caller.tenant, "endpoint_id": endpoint_id}
    if body.delivery_ids is not None:
        found = [await deps.views.one(DELIVERIES, {**where, "id": i}) for i in body.delivery_ids]
        for one, name in zip(found, body.delivery_ids, strict=True):
            if one is None:
                raise not_found("delivery", name, "delivery_ids")
        return [one for one in found if one is not None]
    if body.after is None:
        raise invalid("Give delivery_ids, or after (and before).", "delivery_ids")
    rows = await deps.views.page(DELIVERIES, where, limit=LOOKED_AT_MAX)
    begin = body.after * 1_000
    end = deps.clock.now_ms() if body.before is None else body.before * 1_000
    return [
        row
        for row in reversed(rows)
        if begin <= row["due_at"] < end
        and row["ended_at"] is not None
        and not (body.only_failed and row["outcome"] == "delivered")
    ]


async def _decide(deps: Deps, caller: Principal, command: Message) -> None:
    actor = deps.seal.seal(caller.tenant, caller.key_id)
    await deps.commands.decide(ACCOUNT, caller.tenant, command, actor=actor)


async def _with_secret(deps: Deps, caller: Principal, endpoint_id: str) -> dict[str, Any]:
    row = await _endpoint(deps, caller, endpoint_id)
    return {**_shown(deps, row), "signing_secret": _secret(deps, row)}


def _shown(deps: Deps, row: Row) -> dict[str, Any]:
    return endpoint_object(row, deps.opened, _secret(deps, row))


def _secret(deps: Deps, row: Row) -> str:
    return webhook_secret(deps.seal, row["tenant"], row["id"], row["secret_version"])


async def _endpoint(deps: Deps, caller: Principal, endpoint_id: str) -> Row:
    row = await deps.views.one(ENDPOINTS, {"tenant": caller.tenant, "id": endpoint_id})
    if row is None:
        raise not_found("webhook endpoint", endpoint_id, "id")
    return row
