"""Fold of the `account` journal: total, whatever the order of events."""

from typing import TypeAlias, assert_never

from immutables import Map
from msgspec.structs import asdict, replace

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
    PlanScheduled,
    PlanSet,
    TenantCreated,
    TenantResumed,
    TenantSuspended,
)
from schemas.envelope import Context, Rejected, Repeated
from services.billing.domain.periods import period, period_of
from services.billing.domain.state import (
    CLOSE_AFTER_MS,
    AccountState,
    ApiKey,
    Tenants,
    WebhookEndpoint,
)


def evolve(state: Tenants, event: Event, ctx: Context) -> Tenants:
    """All tenants after an event of one of them."""
    if isinstance(event, Rejected | Repeated):
        return state
    if isinstance(event, TenantCreated):
        month = period_of(ctx.at)
        created = AccountState(
            terms=event.terms,
            period=month.name,
            closes_at=month.end_ms + CLOSE_AFTER_MS,
        )
        return state.set(ctx.key, created)
    tenant = state.get(ctx.key)
    return state if tenant is None else state.set(ctx.key, _evolved(tenant, event))


OfEndpoint: TypeAlias = EndpointCreated | EndpointChanged | EndpointRotated | EndpointDeleted
Changed: TypeAlias = (
    PlanSet
    | PlanScheduled
    | TenantSuspended
    | TenantResumed
    | KeyCreated
    | KeyRotated
    | KeyRevoked
    | OfEndpoint
    | DeliveryDue
    | DeliveryEnded
    | PeriodEnded
    | InvoiceClosed
    | InvoiceAdjusted
)


def _evolved(tenant: AccountState, event: Changed) -> AccountState:
    match event:
        case PlanSet():
            return replace(tenant, terms=event.terms, scheduled=None)
        case PlanScheduled():
            return replace(tenant, scheduled=event.change)
        case TenantSuspended() | TenantResumed():
            return replace(tenant, suspended=isinstance(event, TenantSuspended))
        case KeyCreated(terms=terms):
            created = ApiKey(sha256=terms.sha256, scopes=terms.scopes)
            return replace(tenant, keys=tenant.keys.set(terms.key_id, created))
        case KeyRotated() | KeyRevoked():
            revoked = isinstance(event, KeyRevoked)
            sha256 = event.sha256 if isinstance(event, KeyRevoked) else event.rotation.sha256
            key = tenant.keys.get(event.key_id, ApiKey(sha256=sha256))
            changed = replace(key, sha256=sha256, revoked=revoked)
            return replace(tenant, keys=tenant.keys.set(event.key_id, changed))
        case PeriodEnded():
            return replace(tenant, closes_at=None)
        case InvoiceClosed():
            following = period(event.statement.period).following()
            return replace(
                tenant,
                period=following.name,
                closes_at=following.end_ms + CLOSE_AFTER_MS,
                closed=event.statement,
            )
        case InvoiceAdjusted():
            known = tenant.adjustments.set(event.adjustment.reference, event.period)
            return replace(tenant, adjustments=known)
        case DeliveryDue():
            opened = tenant.deliveries.set(event.delivery_id, event.endpoint_id)
            return replace(tenant, deliveries=opened)
        case DeliveryEnded():
            delivery_id = event.report.delivery_id
            if delivery_id not in tenant.deliveries:
                return tenant
            return replace(tenant, deliveries=tenant.deliveries.delete(delivery_id))
        case _:
            return replace(tenant, endpoints=_endpoints(tenant.endpoints, event))


def _endpoints(
    endpoints: Map[str, WebhookEndpoint], event: OfEndpoint
) -> Map[str, WebhookEndpoint]:
    if isinstance(event, EndpointCreated):
        return endpoints.set(event.terms.endpoint_id, WebhookEndpoint(terms=event.terms))
    endpoint = endpoints.get(event.endpoint_id)
    if endpoint is None:
        return endpoints
    match event:
        case EndpointChanged():
            fields = asdict(event.change).items()
            changed = {name: value for name, value in fields if value is not None}
            terms = replace(endpoint.terms, **changed)
            return endpoints.set(event.endpoint_id, replace(endpoint, terms=terms))
        case EndpointRotated():
            terms = replace(endpoint.terms, secret_version=event.secret_version)
            rotated = replace(endpoint, terms=terms, previous_until=event.previous_until)
            return endpoints.set(event.endpoint_id, rotated)
        case EndpointDeleted():
            return endpoints.delete(event.endpoint_id)
        case _:
            assert_never(event)
