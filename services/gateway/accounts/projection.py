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
from services.gateway.accounts.tables import (
    DELIVERIES,
    ENDPOINTS,
    KEYS,
    TENANTS,
    DeliveryRow,
    EndpointRow,
    KeyRow,
    TenantRow,
)
from tunery.runtime.verbs import Change


def project_account(header: Header, event: Event) -> tuple[Change, ...]:
    """Rows of tenants, keys, endpoints and deliveries that follow from one event of `account`."""
    tenant = header.key
    match event:
        case TenantCreated():
            return (_tenant(header, event),)
        case PlanSet():
            values = {
                "plan": event.plan,
                "limits": event.limits,
                "price_version": event.price_version,
            }
            return (TENANTS.update({"id": tenant}, **values),)
        case KeyCreated():
            return (_key(header, event),)
        case KeyRotated():
            return (_rotated_key(header, event),)
        case KeyRevoked():
            key = {"tenant": tenant, "id": event.key_id}
            return (KEYS.update(key, sha256=event.sha256, revoked_at=header.at),)
        case EndpointCreated():
            return (_endpoint(header, event),)
        case EndpointChanged():
            fields = {"name": event.name, "url": event.url, "event_types": event.event_types}
            changed = {name: value for name, value in fields.items() if value is not None}
            return (_changed_endpoint(header, event.endpoint_id, **changed),)
        case EndpointRotated():
            version = event.secret_version
            return (_changed_endpoint(header, event.endpoint_id, secret_version=version),)
        case EndpointDeleted():
            return (ENDPOINTS.delete({"tenant": tenant, "id": event.endpoint_id}),)
        case DeliveryDue():
            return (_due(header, event),)
        case DeliveryEnded():
            ended = {
                "ended_at": header.at,
                "outcome": event.outcome,
                "attempts": event.attempts,
                "status": event.status,
            }
            return (DELIVERIES.update({"tenant": tenant, "id": event.delivery_id}, **ended),)
        case PeriodEnded() | InvoiceClosed() | InvoiceAdjusted() | Rejected() | Repeated():
            return ()
        case _:
            assert_never(event)


def _tenant(header: Header, event: TenantCreated) -> Change:
    return TENANTS.insert(
        TenantRow(
            id=header.key,
            name=event.name,
            plan=event.plan,
            limits=event.limits,
            price_version=event.price_version,
            created_at=header.at,
        )
    )


def _key(header: Header, event: KeyCreated) -> Change:
    return KEYS.insert(
        KeyRow(
            tenant=header.key,
            id=event.key_id,
            sequence=header.seq,
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
    )


def _rotated_key(header: Header, event: KeyRotated) -> Change:
    return KEYS.update(
        {"tenant": header.key, "id": event.key_id},
        sha256=event.sha256,
        hint=event.hint,
        previous_sha256=event.previous_sha256,
        previous_until=event.previous_until,
    )


def _endpoint(header: Header, event: EndpointCreated) -> Change:
    return ENDPOINTS.insert(
        EndpointRow(
            tenant=header.key,
            id=event.endpoint_id,
            sequence=header.seq,
            name=event.name,
            url=event.url,
            event_types=event.event_types,
            secret_version=event.secret_version,
            created_at=header.at,
        )
    )


def _changed_endpoint(header: Header, endpoint_id: str, **values: Any) -> Change:
    key = {"tenant": header.key, "id": endpoint_id}
    return ENDPOINTS.update(key, updated_at=header.at, **values)


def _due(header: Header, event: DeliveryDue) -> Change:
    return DELIVERIES.insert(
        DeliveryRow(
            tenant=header.key,
            id=event.delivery_id,
            sequence=header.seq,
            endpoint_id=event.endpoint_id,
            event_id=event.event_id,
            event_type=event.event_type,
            object_id=event.object_id,
            event_at=event.created_at,
            due_at=header.at,
        )
    )
