"""`account` → tenants, keys, endpoints, deliveries, batches, imports."""

from typing import Any, assert_never

from msgspec.structs import asdict, replace

from schemas.account import (
    BillingTermsSet,
    CreditNoteIssued,
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
    PlanTerms,
    PricesImported,
    TenantCreated,
    TenantResumed,
    TenantSuspended,
)
from schemas.answers import AnswersCounted
from schemas.batch import BatchBegun, BatchClosing, BatchCreated, BatchEnded, BatchRowsAnswered
from schemas.endpoints import EndpointChange, EndpointConfirmed, EndpointTerms
from schemas.envelope import Header, Rejected, Repeated
from schemas.erasure import ErasureEvent, ErasurePartDone, TenantErased, TenantErasureBegun
from schemas.imports import ImportAdvanced, ImportEnded, ImportStarted
from schemas.integrations import TrackingServerRemoved, TrackingServerSet
from schemas.keys import KeyTerms
from schemas.node import NodeKeysWithdrawn
from schemas.prepaid import PrepaidExpired, PrepaidGranted, PrepaidRevoked
from services.gateway.views.projections.batches import project_batch, project_import
from services.gateway.views.tables.accounts import (
    DELIVERIES,
    ENDPOINTS,
    ERASED_PARTS,
    KEYS,
    MLFLOW,
    PRICES,
    TENANTS,
    TRACKING_SERVERS,
    DeliveryRow,
    EndpointRow,
    ErasedPartRow,
    KeyRow,
    PriceRow,
    TenantRow,
)
from tunery.runtime.verbs import Change


def project_account(header: Header, event: Event) -> tuple[Change, ...]:
    """Rows that follow from one event of `account`."""
    tenant = header.key
    match event:
        case TenantCreated():
            return (_tenant(header, event),)
        case PlanSet(terms=terms):
            return (_plan(tenant, terms),)
        case PlanScheduled():
            return (TENANTS.update({"id": tenant}, scheduled=event.change),)
        case TenantSuspended():
            return (TENANTS.update({"id": tenant}, suspended_at=header.at),)
        case TenantResumed():
            return (TENANTS.update({"id": tenant}, suspended_at=None),)
        case TenantErasureBegun() | ErasurePartDone() | TenantErased():
            return (_erasure(header, event),)
        case KeyCreated():
            return (_key(header, event.terms),)
        case KeyRotated():
            return (_rotated_key(header, event),)
        case KeyRevoked():
            key = {"tenant": tenant, "id": event.key_id}
            return (KEYS.update(key, sha256=event.sha256, revoked_at=header.at),)
        case EndpointCreated():
            return (_endpoint(header, event.terms),)
        case EndpointChanged():
            return (_changed_endpoint(header, event.endpoint_id, **_changes(event.change)),)
        case EndpointConfirmed():
            return (_changed_endpoint(header, event.endpoint_id, confirmation_id=None),)
        case EndpointRotated():
            version = event.secret_version
            return (_changed_endpoint(header, event.endpoint_id, secret_version=version),)
        case EndpointDeleted():
            return (ENDPOINTS.delete({"tenant": tenant, "id": event.endpoint_id}),)
        case TrackingServerSet() | TrackingServerRemoved():
            return (_tracking_server(header, event),)
        case PricesImported(book=book):  # of every partition, and all the same
            row = PriceRow(id=book.version, effective_from=book.effective_from, book=book)
            return (PRICES.insert(row),)
        case DeliveryDue():
            return (_due(header, event),)
        case DeliveryEnded():
            ended = asdict(event.report)
            key = {"tenant": tenant, "id": ended.pop("delivery_id")}
            return (DELIVERIES.update(key, ended_at=header.at, **ended),)
        case BatchCreated() | BatchBegun() | BatchRowsAnswered() | BatchClosing() | BatchEnded():
            return project_batch(header, event)
        case ImportStarted() | ImportAdvanced() | ImportEnded():
            return project_import(header, event)
        case (
            PeriodEnded()
            | InvoiceClosed()
            | InvoiceAdjusted()
            | BillingTermsSet()
            | CreditNoteIssued()
            | PrepaidGranted()
            | PrepaidExpired()
            | PrepaidRevoked()
            | AnswersCounted()
            | NodeKeysWithdrawn()
            | Rejected()
            | Repeated()
        ):
            return ()
        case _:
            assert_never(event)


def _plan(tenant: str, terms: PlanTerms) -> Change:
    return TENANTS.update(
        {"id": tenant},
        plan=terms.lane,
        limits=terms.limits,
        price_version=terms.price_version,
        scheduled=None,
    )


def _tenant(header: Header, event: TenantCreated) -> Change:
    return TENANTS.insert(
        TenantRow(
            id=header.key,
            name=event.name,
            plan=event.terms.lane,
            limits=event.terms.limits,
            price_version=event.terms.price_version,
            created_at=header.at,
        )
    )


def _erasure(header: Header, event: ErasureEvent) -> Change:
    match event:
        case TenantErasureBegun():
            return TENANTS.update({"id": header.key}, erasure_begun_at=header.at)
        case ErasurePartDone():
            done = ErasedPartRow(tenant=header.key, id=event.part, at=header.at)
            return ERASED_PARTS.insert(done)
        case TenantErased():
            erased = {"erased_at": header.at, "erasure_sha256": event.sha256}
            return TENANTS.update({"id": header.key}, **erased)
        case _:
            assert_never(event)


def _key(header: Header, terms: KeyTerms) -> Change:
    return KEYS.insert(
        KeyRow.of(
            terms,
            tenant=header.key,
            id=terms.key_id,
            sequence=header.seq,
            created_at=header.at,
            spend_cap_currency=terms.spend_cap_currency or None,
        )
    )


def _rotated_key(header: Header, event: KeyRotated) -> Change:
    return KEYS.update(
        {"tenant": header.key, "id": event.key_id},
        previous_sha256=event.previous_sha256,
        **asdict(event.rotation),
    )


def _endpoint(header: Header, terms: EndpointTerms) -> Change:
    return ENDPOINTS.insert(
        EndpointRow.of(
            terms,
            tenant=header.key,
            id=terms.endpoint_id,
            sequence=header.seq,
            created_at=header.at,
            confirmation_id=_confirmation_id(terms),
        )
    )


def _changed_endpoint(header: Header, endpoint_id: str, **values: Any) -> Change:
    key = {"tenant": header.key, "id": endpoint_id}
    return ENDPOINTS.update(key, updated_at=header.at, **values)


def _changes(change: EndpointChange) -> dict[str, Any]:
    """Columns of an endpoint that have new values."""
    fields = asdict(replace(change, confirmation=None)).items()
    changed = {name: value for name, value in fields if value is not None}
    return (
        changed if change.url is None else changed | {"confirmation_id": _confirmation_id(change)}
    )


def _confirmation_id(terms: EndpointTerms | EndpointChange) -> str | None:
    return None if terms.confirmation is None else terms.confirmation.delivery_id


def _tracking_server(header: Header, event: TrackingServerSet | TrackingServerRemoved) -> Change:
    key = {"tenant": header.key, "id": MLFLOW}
    if isinstance(event, TrackingServerRemoved):
        return TRACKING_SERVERS.delete(key)
    server = event.server
    return TRACKING_SERVERS.update(
        key, set_at=header.at, url=server.url, header=server.authorization
    )


def _due(header: Header, event: DeliveryDue) -> Change:
    return DELIVERIES.insert(
        DeliveryRow.of(
            event,
            event.event,
            tenant=header.key,
            id=event.delivery_id,
            sequence=header.seq,
            event_at=event.event.created_at,
            due_at=header.at,
        )
    )
