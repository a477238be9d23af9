"""Fold of the `account` journal: total, whatever the order of events."""

from typing import assert_never

from msgspec.structs import replace

from schemas.account import (
    DeliveryDue,
    DeliveryEnded,
    EndpointCreated,
    EndpointDeleted,
    Event,
    KeyCreated,
    KeyRevoked,
    PlanSet,
    TenantCreated,
)
from schemas.envelope import Context, Rejected, Repeated
from services.billing.domain.state import ApiKey, Endpoint, Tenant, Tenants


def evolve(state: Tenants, event: Event, ctx: Context) -> Tenants:
    if isinstance(event, Rejected | Repeated):
        return state
    if isinstance(event, TenantCreated):
        created = Tenant(plan=event.plan, limits=event.limits, price_version=event.price_version)
        return state.set(ctx.key, created)
    tenant = state.get(ctx.key)
    return state if tenant is None else state.set(ctx.key, _evolved(tenant, event))


Changed = (
    PlanSet
    | KeyCreated
    | KeyRevoked
    | EndpointCreated
    | EndpointDeleted
    | DeliveryDue
    | DeliveryEnded
)


def _evolved(tenant: Tenant, event: Changed) -> Tenant:
    match event:
        case PlanSet():
            return replace(
                tenant, plan=event.plan, limits=event.limits, price_version=event.price_version
            )
        case KeyCreated():
            return replace(tenant, keys=tenant.keys.set(event.key_id, ApiKey(sha256=event.sha256)))
        case KeyRevoked():
            revoked = ApiKey(sha256=event.sha256, revoked=True)
            return replace(tenant, keys=tenant.keys.set(event.key_id, revoked))
        case EndpointCreated():
            endpoint = Endpoint(
                url=event.url, event_types=event.event_types, secret_version=event.secret_version
            )
            return replace(tenant, endpoints=tenant.endpoints.set(event.endpoint_id, endpoint))
        case EndpointDeleted():
            if event.endpoint_id not in tenant.endpoints:
                return tenant
            return replace(tenant, endpoints=tenant.endpoints.delete(event.endpoint_id))
        case DeliveryDue():
            opened = tenant.deliveries.set(event.delivery_id, event.endpoint_id)
            return replace(tenant, deliveries=opened)
        case DeliveryEnded():
            if event.delivery_id not in tenant.deliveries:
                return tenant
            return replace(tenant, deliveries=tenant.deliveries.delete(event.delivery_id))
        case _:
            assert_never(event)
