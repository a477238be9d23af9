"""`/v1/webhook_endpoints`."""

from collections.abc import Sequence
from typing import Final

from schemas import ids
from schemas.account import (
    EVENT_TYPES,
    ChangeEndpoint,
    CreateEndpoint,
    DeleteEndpoint,
    Deliver,
    RotateEndpoint,
    WebhookEvent,
)
from schemas.endpoints import (
    Confirmation,
    ConfirmEndpoint,
    EndpointChange,
    EndpointTerms,
    mail_address,
)
from schemas.topics import ACCOUNT
from schemas.units import Ms
from services.gateway.accounts.auth import digest
from services.gateway.accounts.domain.bodies import (
    DAY_S,
    REDELIVERIES_MAX,
    ConfirmRequest,
    EndpointChangeRequest,
    EndpointRequest,
    RedeliverRequest,
    RotateSecretRequest,
    TestRequest,
)
from services.gateway.accounts.domain.responses import (
    DeliveryResponse,
    EndpointResponse,
    EndpointTestResponse,
    EventTypesResponse,
    NewEndpointResponse,
    delivery_response,
    endpoint_response,
)
from services.gateway.views.ports import Where
from services.gateway.views.tables.accounts import DELIVERIES, ENDPOINTS, DeliveryRow, EndpointRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import invalid
from services.gateway.web.domain.responses import Deleted, Page, listing
from services.gateway.web.resources import Resource, each, each_in_turn
from services.gateway.web.routing import new_router
from tunery.platform.seal.webhooks import confirmation_code, webhook_secret

LIMIT: Final = 20
LIMIT_MAX: Final = 100
SECRET_VERSION: Final = 1
TEST_MS_MAX: Final[Ms] = 20_000  # the receiver's 15 s, and time for the commands before and after
CONFIRMATION_MS_MAX: Final[Ms] = 2_000
POLL_MS: Final[Ms] = 50
LOOKED_AT_MAX: Final = 10_000  # newest deliveries in which a range of times is searched
router = new_router("webhooks")
ROOT: Final = "/v1/webhook_endpoints"


@router.get("/v1/webhook_event_types")
async def list_event_types(caller: Caller) -> EventTypesResponse:
    """List the event types that endpoints may subscribe to."""
    return EventTypesResponse(data=list(EVENT_TYPES))


def _secret(deps: Deps, row: EndpointRow) -> str:
    return webhook_secret(deps.seal, row.tenant, row.id, row.secret_version)


async def _respond(deps: Deps, row: EndpointRow) -> EndpointResponse:
    where = {"tenant": row.tenant, "id": row.confirmation_id}
    mailed = await deps.views.first(DELIVERIES, where) if row.confirmation_id else None
    allow_private = deps.settings.allow_private
    return endpoint_response(
        row, deps.unseal, _secret(deps, row), mailed, allow_private=allow_private
    )


ENDPOINT: Final = Resource(
    noun="webhook endpoint",
    table=ENDPOINTS,
    response=EndpointResponse,
    respond=each_in_turn(_respond),
    limit=LIMIT,
    limit_max=LIMIT_MAX,
)
ENDPOINT.add_list(router, ROOT, "list_endpoints", "List webhook endpoints, newest first.")
ENDPOINT.add_retrieve(router, ROOT + "/{endpoint_id}", "retrieve_endpoint")


@router.post(ROOT)
async def create_endpoint(
    body: EndpointRequest, deps: WithDeps, caller: Caller
) -> NewEndpointResponse:
    """Create an endpoint. Only this response contains the signing secret.

    An e-mail address gets nothing but a code, until that is confirmed.
    """
    endpoint_id = deps.fresh(ids.ENDPOINT)
    seal, tenant = deps.seal, caller.tenant
    confirmation = _confirmation(deps, caller, endpoint_id, body.url)
    terms = EndpointTerms(
        endpoint_id=endpoint_id,
        name=seal.seal(tenant, body.name, "name"),
        url=seal.seal(tenant, body.url, "url"),
        event_types=tuple(body.event_types),
        secret_version=SECRET_VERSION,
        confirmation=confirmation,
    )
    await deps.decide(caller, ACCOUNT, CreateEndpoint(terms=terms))
    await _await_confirmation(deps, caller, confirmation)
    return await _with_secret(deps, caller, endpoint_id)


@router.post(ROOT + "/{endpoint_id}")
async def change_endpoint(
    endpoint_id: str, body: EndpointChangeRequest, deps: WithDeps, caller: Caller
) -> EndpointResponse:
    """Change an endpoint. Deliveries that are already due are sent to the old URL.

    An e-mail address is to be confirmed again, also where it was the endpoint's before.
    """
    await ENDPOINT.find(deps, caller.rows, endpoint_id)
    seal, tenant = deps.seal, caller.tenant
    confirmation = _confirmation(deps, caller, endpoint_id, body.url)
    change = EndpointChange(
        name=None if body.name is None else seal.seal(tenant, body.name, "name"),
        url=None if body.url is None else seal.seal(tenant, body.url, "url"),
        event_types=None if body.event_types is None else tuple(body.event_types),
        confirmation=confirmation,
    )
    await deps.decide(caller, ACCOUNT, ChangeEndpoint(endpoint_id=endpoint_id, change=change))
    await _await_confirmation(deps, caller, confirmation)
    return await ENDPOINT.retrieve(deps, caller.rows, endpoint_id)


@router.post(ROOT + "/{endpoint_id}/confirm")
async def confirm_endpoint(
    endpoint_id: str, body: ConfirmRequest, deps: WithDeps, caller: Caller
) -> EndpointResponse:
    """Confirm the e-mail address of an endpoint with the code that was mailed to it."""
    await ENDPOINT.find(deps, caller.rows, endpoint_id)
    confirm = ConfirmEndpoint(endpoint_id=endpoint_id, code_sha256=digest(body.code))
    await deps.decide(caller, ACCOUNT, confirm)
    return await ENDPOINT.retrieve(deps, caller.rows, endpoint_id)


@router.delete(ROOT + "/{endpoint_id}")
async def delete_endpoint(endpoint_id: str, deps: WithDeps, caller: Caller) -> Deleted:
    await ENDPOINT.find(deps, caller.rows, endpoint_id)
    await deps.decide(caller, ACCOUNT, DeleteEndpoint(endpoint_id=endpoint_id))
    return Deleted(id=endpoint_id, object="webhook_endpoint.deleted")


@router.post(ROOT + "/{endpoint_id}/rotate_secret")
async def rotate_secret(
    endpoint_id: str,
    deps: WithDeps,
    caller: Caller,
    body: RotateSecretRequest | None = None,
) -> NewEndpointResponse:
    """Give an endpoint a new signing secret. During an overlap deliveries carry both signatures."""
    await ENDPOINT.find(deps, caller.rows, endpoint_id)
    overlap = body is not None and body.keep_old_secret_active_for_24_hours
    until = deps.clock.now_ms() + DAY_S * 1_000 * overlap
    await deps.decide(
        caller, ACCOUNT, RotateEndpoint(endpoint_id=endpoint_id, previous_until=until)
    )
    return await _with_secret(deps, caller, endpoint_id)


@router.post(ROOT + "/{endpoint_id}/test")
async def send_test(
    endpoint_id: str, deps: WithDeps, caller: Caller, body: TestRequest | None = None
) -> EndpointTestResponse:
    """Send one signed test event, once. The response has the receiver's status."""
    await ENDPOINT.find(deps, caller.rows, endpoint_id)
    event_type = (body or TestRequest()).event_type
    if event_type not in EVENT_TYPES:
        raise invalid(f"Choose one of: {', '.join(EVENT_TYPES)}.", "event_type")
    event = WebhookEvent(
        event_id=deps.fresh(ids.EVENT),
        event_type=event_type,
        object_id="test",
        created_at=deps.clock.now_ms(),
    )
    test = Deliver(
        endpoint_id=endpoint_id, delivery_id=deps.fresh(ids.DELIVERY), event=event, once=True
    )
    await deps.decide(caller, ACCOUNT, test)
    row = await _await_end(deps, caller, test.delivery_id, TEST_MS_MAX)
    outcome = None if row is None else row.outcome
    return EndpointTestResponse(
        webhook_endpoint_id=endpoint_id,
        event_type=event_type,
        delivery_id=test.delivery_id,
        status_code=None if row is None else row.status,
        success=outcome == "delivered",
        outcome=outcome or "pending",
    )


async def _await_end(
    deps: Deps, caller: Principal, delivery_id: str, within_ms: Ms
) -> DeliveryRow | None:
    """The delivery's row; None when it has not ended within this time."""
    where = {"tenant": caller.tenant, "id": delivery_id}
    for _ in range(within_ms // POLL_MS):
        row = await deps.views.first(DELIVERIES, where)
        if row is not None and row.ended_at is not None:
            return row
        await deps.clock.sleep(POLL_MS)
    return None


async def deliveries_of_endpoint(endpoint_id: str, deps: WithDeps, caller: Caller) -> Where:
    """Deliveries to an endpoint, which may be deleted since. Raises ApiError 404."""
    where = {"tenant": caller.tenant, "endpoint_id": endpoint_id}
    if await deps.views.first(DELIVERIES, where) is None:
        await ENDPOINT.find(deps, caller.rows, endpoint_id)
    return where


DELIVERY: Final = Resource(
    noun="delivery",
    table=DELIVERIES,
    response=DeliveryResponse,
    respond=each(lambda _, row: delivery_response(row)),
    rows=deliveries_of_endpoint,
    limit=LIMIT,
    limit_max=LIMIT_MAX,
    param="delivery_ids",
)
DELIVERY.add_list(
    router,
    ROOT + "/{endpoint_id}/deliveries",
    "list_deliveries",
    "List the deliveries to an endpoint and their outcomes, also after it was deleted.",
)


@router.post(ROOT + "/{endpoint_id}/redeliver")
async def redeliver(
    endpoint_id: str, body: RedeliverRequest, deps: WithDeps, caller: Caller
) -> Page[DeliveryResponse]:
    """Send events again under their old ids, by which receivers recognise repeats.

    At most REDELIVERIES_MAX a call, oldest first; `has_more` says that the range has others.
    """
    await ENDPOINT.find(deps, caller.rows, endpoint_id)
    rows = await _chosen(deps, caller, endpoint_id, body)
    repeats = []
    for row in rows[:REDELIVERIES_MAX]:
        event = WebhookEvent(
            event_id=row.event_id,
            event_type=row.event_type,
            object_id=row.object_id,
            created_at=row.event_at,
        )
        again = Deliver(endpoint_id=endpoint_id, delivery_id=deps.fresh(ids.DELIVERY), event=event)
        await deps.decide(caller, ACCOUNT, again)
        where = {"tenant": caller.tenant, "id": again.delivery_id}
        repeats.append(await deps.views.first(DELIVERIES, where))
    shown = [delivery_response(row) for row in repeats if row is not None]
    return listing(Page[DeliveryResponse], shown, len(rows) > REDELIVERIES_MAX)


async def _chosen(
    deps: Deps, caller: Principal, endpoint_id: str, body: RedeliverRequest
) -> Sequence[DeliveryRow]:
    """The deliveries to repeat, oldest first. Raises ApiError 400, 404."""
    where = {"tenant": caller.tenant, "endpoint_id": endpoint_id}
    if body.delivery_ids is not None:
        return [await DELIVERY.find(deps, where, name) for name in body.delivery_ids]
    if body.after is None:
        raise invalid("Give delivery_ids, or after (and before).", "delivery_ids")
    rows = await deps.views.page(DELIVERIES, where, limit=LOOKED_AT_MAX)
    begin = body.after * 1_000
    end = deps.clock.now_ms() if body.before is None else body.before * 1_000
    return [
        row
        for row in reversed(rows)
        if begin <= row.due_at < end
        and row.ended_at is not None
        and not (body.only_failed and row.outcome == "delivered")
    ]


async def _with_secret(deps: Deps, caller: Principal, endpoint_id: str) -> NewEndpointResponse:
    row = await ENDPOINT.find(deps, caller.rows, endpoint_id)
    shown = await _respond(deps, row)
    return NewEndpointResponse(**dict(shown), signing_secret=_secret(deps, row))


def _confirmation(
    deps: Deps, caller: Principal, endpoint_id: str, url: str | None
) -> Confirmation | None:
    """How this URL of an endpoint is confirmed; None: it is no e-mail address."""
    address = None if url is None else mail_address(url)
    if address is None:
        return None
    code = confirmation_code(deps.seal, caller.tenant, endpoint_id, address)
    return Confirmation(code_sha256=digest(code), delivery_id=deps.fresh(ids.DELIVERY))


async def _await_confirmation(
    deps: Deps, caller: Principal, confirmation: Confirmation | None
) -> None:
    """Wait a moment for the code to be mailed, so that the response can say why it was not."""
    if confirmation is not None:
        await _await_end(deps, caller, confirmation.delivery_id, CONFIRMATION_MS_MAX)
