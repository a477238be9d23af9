"""Decisions of webhook endpoints, and which of them get a delivery.

An endpoint whose address is to be confirmed gets nothing but the code until then. The code has 120
bits and only its hash is here, so attempts need no limit of their own. How many codes are mailed is
limited, since the addresses may be those of strangers.
"""

from typing import Final, TypeAlias, assert_never

from msgspec.structs import replace

from schemas import errors
from schemas.account import (
    EVENT_TYPES,
    Announce,
    ChangeEndpoint,
    CreateEndpoint,
    DeleteEndpoint,
    Deliver,
    DeliveryDue,
    DeliveryEnded,
    EndDelivery,
    EndpointChanged,
    EndpointCreated,
    EndpointDeleted,
    EndpointRotated,
    Event,
    RotateEndpoint,
    WebhookEvent,
)
from schemas.endpoints import (
    CONFIRMATION_REQUESTED,
    ConfirmEndpoint,
    EndpointConfirmed,
    EndpointTerms,
)
from schemas.envelope import Context, Rejected, reject
from schemas.ids import DELIVERY, EVENT, derived_id
from schemas.reasons import refusing
from schemas.units import DAY_MS, HOUR_MS, Ms
from services.billing.domain.state import (
    CONFIRMATIONS_MAX,
    DELIVERIES_OPEN_MAX,
    ENDPOINTS_MAX,
    AccountState,
    WebhookEndpoint,
)

CONFIRM_WITHIN_MS: Final[Ms] = 3 * DAY_MS
OfEndpoint: TypeAlias = ChangeEndpoint | ConfirmEndpoint | RotateEndpoint | DeleteEndpoint | Deliver
Command: TypeAlias = CreateEndpoint | OfEndpoint | Announce | EndDelivery


def decide(tenant: AccountState, command: Command, ctx: Context) -> tuple[Event, ...]:
    """The events of a command about endpoints and their deliveries."""
    match command:
        case CreateEndpoint():
            return _create(tenant, command, ctx)
        case Announce():
            return _announce(tenant, command)
        case EndDelivery():
            return _end_delivery(tenant, command)
        case _:
            return _of_endpoint(tenant, command, ctx)


def _create(tenant: AccountState, command: CreateEndpoint, ctx: Context) -> tuple[Event, ...]:
    terms = command.terms
    if terms.endpoint_id in tenant.endpoints:
        exists = refusing("endpoint_exists", endpoint_id=terms.endpoint_id)
        return reject(errors.ALREADY_EXISTS, exists, "id")
    if len(tenant.endpoints) >= ENDPOINTS_MAX:
        return reject(errors.ILLEGAL_STATE, refusing("endpoints_at_most", limit=ENDPOINTS_MAX))
    wrong = _wrong_types(terms.event_types)
    if wrong:
        return wrong
    terms = replace(terms, event_types=tuple(sorted(set(terms.event_types))))
    return _with_code(tenant, EndpointCreated(terms=terms), terms, ctx)


def _with_code(
    tenant: AccountState,
    event: EndpointCreated | EndpointChanged,
    terms: EndpointTerms,
    ctx: Context,
) -> tuple[Event, ...]:
    """The event, and the delivery that mails the code of its address, where it has one."""
    confirmation = terms.confirmation
    if confirmation is None:
        return (event,)
    if sum(ctx.at < mailed_at + DAY_MS for mailed_at in tenant.codes_mailed) >= CONFIRMATIONS_MAX:
        limit = refusing("confirmations_at_most", limit=CONFIRMATIONS_MAX)
        return reject(errors.ILLEGAL_STATE, limit, "url")
    if full := _refuse_full(tenant):
        return full
    request = WebhookEvent(
        event_id=EVENT + derived_id(confirmation.delivery_id),
        event_type=CONFIRMATION_REQUESTED,
        object_id=terms.endpoint_id,
        created_at=ctx.at,
    )
    return (event, _due(confirmation.delivery_id, WebhookEndpoint(terms=terms), request))


def _wrong_types(event_types: tuple[str, ...]) -> tuple[Rejected, ...]:
    unknown = sorted(set(event_types) - set(EVENT_TYPES))
    if event_types and not unknown:
        return ()
    missing = refusing("event_types_missing")
    wrong = refusing("event_types_unknown", types=", ".join(unknown)) if unknown else missing
    return reject(errors.MALFORMED, wrong, "event_types")


def _of_endpoint(tenant: AccountState, command: OfEndpoint, ctx: Context) -> tuple[Event, ...]:
    endpoint = tenant.endpoints.get(command.endpoint_id)
    if endpoint is None:
        missing = refusing("endpoint_missing", endpoint_id=command.endpoint_id)
        return reject(errors.NOT_FOUND, missing, "id")
    match command:
        case ChangeEndpoint():
            return _change(tenant, endpoint, command, ctx)
        case ConfirmEndpoint():
            return _confirm(endpoint, command, ctx)
        case RotateEndpoint():
            return (
                EndpointRotated(
                    endpoint_id=command.endpoint_id,
                    secret_version=endpoint.terms.secret_version + 1,
                    previous_until=command.previous_until,
                ),
            )
        case DeleteEndpoint():  # open deliveries end on their own: they may still be wanted
            return (EndpointDeleted(endpoint_id=command.endpoint_id),)
        case Deliver():
            return _deliver(tenant, endpoint, command)
        case _:
            assert_never(command)


def _change(
    tenant: AccountState, endpoint: WebhookEndpoint, command: ChangeEndpoint, ctx: Context
) -> tuple[Event, ...]:
    change = command.change
    if change.event_types is not None:
        if wrong := _wrong_types(change.event_types):
            return wrong
        change = replace(change, event_types=tuple(sorted(set(change.event_types))))
    changed = EndpointChanged(endpoint_id=command.endpoint_id, change=change)
    if change.url is None:
        return (changed,)
    terms = replace(endpoint.terms, url=change.url, confirmation=change.confirmation)
    return _with_code(tenant, changed, terms, ctx)


def _confirm(
    endpoint: WebhookEndpoint, command: ConfirmEndpoint, ctx: Context
) -> tuple[Event, ...]:
    """Confirm an address; a repeat changes nothing."""
    confirmation = endpoint.terms.confirmation
    if confirmation is None or command.code_sha256 != confirmation.code_sha256:
        return reject(errors.MALFORMED, refusing("confirmation_wrong"), "code")
    if endpoint.unconfirmed_since is None:
        return ()
    if ctx.at >= endpoint.unconfirmed_since + CONFIRM_WITHIN_MS:
        hours = CONFIRM_WITHIN_MS // HOUR_MS
        return reject(errors.ILLEGAL_STATE, refusing("confirmation_late", hours=hours), "code")
    return (EndpointConfirmed(endpoint_id=command.endpoint_id),)


def _deliver(
    tenant: AccountState, endpoint: WebhookEndpoint, command: Deliver
) -> tuple[Event, ...]:
    if command.delivery_id in tenant.deliveries:
        return ()
    if endpoint.unconfirmed_since is not None:
        unconfirmed = refusing("endpoint_unconfirmed", endpoint_id=command.endpoint_id)
        return reject(errors.ILLEGAL_STATE, unconfirmed)
    if full := _refuse_full(tenant):
        return full
    return (_due(command.delivery_id, endpoint, command.event, command.once),)


def _refuse_full(tenant: AccountState) -> tuple[Rejected, ...]:
    if len(tenant.deliveries) < DELIVERIES_OPEN_MAX:
        return ()
    full = refusing("deliveries_at_most", limit=DELIVERIES_OPEN_MAX)
    return reject(errors.ILLEGAL_STATE, full)


def _due(
    delivery_id: str, endpoint: WebhookEndpoint, event: WebhookEvent, once: bool = False
) -> DeliveryDue:
    terms = endpoint.terms
    return DeliveryDue(
        delivery_id=delivery_id,
        endpoint_id=terms.endpoint_id,
        url=terms.url,
        secret_version=terms.secret_version,
        event=event,
        previous_until=endpoint.previous_until,
        once=once,
    )


def _announce(tenant: AccountState, command: Announce) -> tuple[Event, ...]:
    """One delivery for each confirmed endpoint that subscribes to this type now.

    The delivery's id follows from event and endpoint, so an event announced twice cannot open a
    second delivery while the first is open. One with the same source is not decided again at all.
    """
    free_count, event = DELIVERIES_OPEN_MAX - len(tenant.deliveries), command.event
    due = []
    for endpoint_id, endpoint in sorted(tenant.endpoints.items()):
        delivery_id = DELIVERY + derived_id(event.event_id, endpoint_id)
        subscribed = event.event_type in endpoint.terms.event_types
        confirmed = endpoint.unconfirmed_since is None
        if subscribed and confirmed and delivery_id not in tenant.deliveries:
            due.append(_due(delivery_id, endpoint, event))
    return tuple(due[: max(free_count, 0)])


def _end_delivery(tenant: AccountState, command: EndDelivery) -> tuple[Event, ...]:
    """End a delivery; its first outcome counts. An endpoint that answers 410 Gone is deleted."""
    endpoint_id = tenant.deliveries.get(command.report.delivery_id)
    if endpoint_id is None:
        return ()
    ended = DeliveryEnded(endpoint_id=endpoint_id, report=command.report)
    if command.report.outcome == "gone" and endpoint_id in tenant.endpoints:
        return (ended, EndpointDeleted(endpoint_id=endpoint_id))
    return (ended,)
