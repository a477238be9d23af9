"""`account` → tenants, keys, endpoints, deliveries."""

from typing import Any, assert_never

from schemas.account import (
    DeliveryDue,
    DeliveryEnded,
    EndpointChanged,
    EndpointCreated,
    EndpointDeleted,
    EndpointRotated,
    Event,
    InvoiceAdjusted,
    InvoiceClosed,
    KeyCreated,
    KeyRevoked,
    KeyRotated,
    PeriodEnded,
    PlanSet,
    TenantCreated,
)
from schemas.envelope import Header, Rejected, Repeated
from services.gateway.views.rows import drop, put
from services.gateway.views.tables import DELIVERIES, ENDPOINTS, KEYS, TENANTS
from tunery.runtime.verbs import Change


def project_account(header: Header, event: Event) -> tuple[Change, ...]:
    tenant = header.key
    match event:
        case TenantCreated():
            return (
                put(
                    TENANTS,
                    {"id": tenant},
                    name=event.name,
                    plan=event.plan,
                    limits=event.limits,
                    price_version=event.price_version,
                    created_at=header.at,
                ),
            )
        case PlanSet():
            values = {
                "plan": event.plan,
                "limits": event.limits,
                "price_version": event.price_version,
            }
            return (put(TENANTS, {"id": tenant}, **values),)
        case KeyCreated():
            return (_key(header, event),)
        case KeyRotated():
            return (_rotated_key(header, event),)
        case KeyRevoked():
            key = {"tenant": tenant, "id": event.key_id}
            return (put(KEYS, key, sha256=event.sha256, revoked_at=header.at),)
        case EndpointCreated():
            return (_endpoint(header, event),)
        case EndpointChanged():
            fields = {"name": event.name, "url": event.url, "event_types": event.event_types}
            changed = {name: value for name, value in fields.items() if value is not None}
            return (_endpoint_row(header, event.endpoint_id, **changed),)
        case EndpointRotated():
            version = event.secret_version
            return (_endpoint_row(header, event.endpoint_id, secret_version=version),)
        case EndpointDeleted():
            return (drop(ENDPOINTS, {"tenant": tenant, "id": event.endpoint_id}),)
        case DeliveryDue():
            return (_due(header, event),)
        case DeliveryEnded():
            ended = {
                "ended_at": header.at,
                "outcome": event.outcome,
                "attempts": event.attempts,
                "status": event.status,
            }
            return (put(DELIVERIES, {"tenant": tenant, "id": event.delivery_id}, **ended),)
        case PeriodEnded() | InvoiceClosed() | InvoiceAdjusted() | Rejected() | Repeated():
            return ()
        case _:
            assert_never(event)


def _key(header: Header, event: KeyCreated) -> Change:
    return put(
        KEYS,
        {"tenant": header.key, "id": event.key_id},
        place=header.seq,
        name=event.name,
        sha256=event.sha256,
        hint=event.hint,
        scopes=event.scopes,
        expires_at=event.expires_at,
        created_at=header.at,
        models=event.models,
        spend_cap_micro=event.spend_cap_micro,
        requests_per_minute=event.requests_per_minute,
    )


def _rotated_key(header: Header, event: KeyRotated) -> Change:
    return put(
        KEYS,
        {"tenant": header.key, "id": event.key_id},
        sha256=event.sha256,
        hint=event.hint,
        previous_sha256=event.previous_sha256,
        previous_until=event.previous_until,
    )


def _endpoint_row(header: Header, endpoint_id: str, **values: Any) -> Change:
    key = {"tenant": header.key, "id": endpoint_id}
    return put(ENDPOINTS, key, updated_at=header.at, **values)


def _endpoint(header: Header, event: EndpointCreated) -> Change:
    return put(
        ENDPOINTS,
        {"tenant": header.key, "id": event.endpoint_id},
        place=header.seq,
        name=event.name,
        url=event.url,
        event_types=event.event_types,
        secret_version=event.secret_version,
        created_at=header.at,
    )


def _due(header: Header, event: DeliveryDue) -> Change:
    return put(
        DELIVERIES,
        {"tenant": header.key, "id": event.delivery_id},
        place=header.seq,
        endpoint_id=event.endpoint_id,
        event_id=event.event_id,
        event_type=event.event_type,
        object_id=event.object_id,
        event_at=event.created_at,
        due_at=header.at,
    )
