"""Fold of the `account` journal: total for any order of events."""

from typing import TypeAlias, TypeVar, assert_never

from immutables import Map
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
    PricesImported,
    TenantCreated,
    TenantResumed,
    TenantSuspended,
)
from schemas.answers import AnswersCounted
from schemas.batch import (
    BatchBegun,
    BatchClosing,
    BatchCreated,
    BatchEnded,
    BatchEvent,
    BatchRowsAnswered,
)
from schemas.billing import Statement
from schemas.endpoints import CONFIRMATION_REQUESTED, EndpointConfirmed, EndpointTerms
from schemas.envelope import Context, Rejected, Repeated
from schemas.erasure import ErasureEvent, ErasurePartDone, TenantErased, TenantErasureBegun
from schemas.imports import ImportAdvanced, ImportEnded, ImportEvent, ImportStarted
from schemas.integrations import TrackingServerRemoved, TrackingServerSet
from schemas.node import NodeKeysWithdrawn
from schemas.prepaid import PrepaidExpired, PrepaidGranted, PrepaidRevoked
from schemas.units import DAY_MS, Ms
from services.billing.domain.batches import evolve_batches
from services.billing.domain.erasure import evolve_erasure
from services.billing.domain.imports import evolve_imports
from services.billing.domain.prepaid import use_up
from services.billing.domain.state import (
    Accounts,
    AccountState,
    ApiKey,
    IssuedInvoice,
    PrepaidBalance,
    WebhookEndpoint,
)
from tunery.billing.periods import CLOSE_AFTER_MS, period, period_of

OfReaders: TypeAlias = (
    AnswersCounted | TrackingServerSet | TrackingServerRemoved | Rejected | Repeated
)


def evolve(state: Accounts, event: Event, ctx: Context) -> Accounts:
    """Apply an event to the tenants and price books."""
    if isinstance(event, OfReaders):
        return state
    if isinstance(event, TenantCreated):
        month = period_of(ctx.at)
        created = AccountState(
            terms=event.terms,
            period=month.name,
            closes_at=month.end_ms + CLOSE_AFTER_MS,
            soft_gpu_ms=Map({month.name: event.terms.limits.soft_gpu_ms}),
            price_versions=Map({month.name: event.terms.price_version}),
        )
        return replace(state, tenants=state.tenants.set(ctx.key, created))
    if isinstance(event, PricesImported):
        return replace(state, books=state.books.set(event.book.version, event.book))
    if isinstance(event, NodeKeysWithdrawn):
        return replace(state, withdrawn=state.withdrawn.set(event.node_id, event.number))
    tenant = state.tenants.get(ctx.key)
    if tenant is None:
        return state
    return replace(state, tenants=state.tenants.set(ctx.key, _evolved(tenant, event, ctx)))


Term = TypeVar("Term")
OfEndpoint: TypeAlias = (
    EndpointCreated | EndpointChanged | EndpointConfirmed | EndpointRotated | EndpointDeleted
)
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
    | BillingTermsSet
    | CreditNoteIssued
    | PrepaidGranted
    | PrepaidExpired
    | PrepaidRevoked
    | BatchEvent
    | ImportEvent
    | ErasureEvent
)


def _evolved(tenant: AccountState, event: Changed, ctx: Context) -> AccountState:
    match event:
        case PlanSet():
            # a scheduled plan is written late where the owner was away, even months later
            since = ctx.at if event.effective_at is None else event.effective_at
            month = period_of(since).name
            soft = tenant.soft_gpu_ms.set(month, event.terms.limits.soft_gpu_ms)
            return replace(
                tenant,
                terms=event.terms,
                scheduled=None,
                soft_gpu_ms=soft,
                price_versions=tenant.price_versions.set(month, event.terms.price_version),
            )
        case PlanScheduled():
            return replace(tenant, scheduled=event.change)
        case TenantSuspended() | TenantResumed():
            return replace(tenant, suspended=isinstance(event, TenantSuspended))
        case KeyCreated(terms=terms):
            created = ApiKey(sha256=terms.sha256, scopes=terms.scopes, expires_at=terms.expires_at)
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
            return _close_month(tenant, event.statement)
        case InvoiceAdjusted():
            return _with_adjustment(tenant, event.adjustment.reference, event.period)
        case BillingTermsSet():
            month = event.from_month or tenant.period
            return replace(tenant, billing=tenant.billing.set(month, event.terms))
        case CreditNoteIssued():
            return _credit_invoice(tenant, event)
        case PrepaidGranted() | PrepaidExpired() | PrepaidRevoked():
            return replace(tenant, prepaid=_prepaid(tenant.prepaid, event))
        case BatchCreated() | BatchBegun() | BatchRowsAnswered() | BatchClosing() | BatchEnded():
            return replace(tenant, batches=evolve_batches(tenant.batches, event, ctx.at))
        case ImportStarted() | ImportAdvanced() | ImportEnded():
            return replace(tenant, imports=evolve_imports(tenant.imports, event))
        case TenantErasureBegun() | ErasurePartDone() | TenantErased():
            return evolve_erasure(tenant, event, ctx)
        case DeliveryDue():
            return _open_delivery(tenant, event, ctx.at)
        case DeliveryEnded():
            delivery_id = event.report.delivery_id
            if delivery_id not in tenant.deliveries:
                return tenant
            return replace(tenant, deliveries=tenant.deliveries.delete(delivery_id))
        case _:
            return replace(tenant, endpoints=_endpoints(tenant.endpoints, event, ctx.at))


def _open_delivery(tenant: AccountState, event: DeliveryDue, at: Ms) -> AccountState:
    opened = tenant.deliveries.set(event.delivery_id, event.endpoint_id)
    if event.event.event_type != CONFIRMATION_REQUESTED:
        return replace(tenant, deliveries=opened)
    recent = (mailed_at for mailed_at in tenant.codes_mailed if at < mailed_at + DAY_MS)
    return replace(tenant, deliveries=opened, codes_mailed=(*recent, at))


def _close_month(tenant: AccountState, statement: Statement) -> AccountState:
    """Close a month: the next one is the oldest open month. Forget what only older ones needed."""
    following = period(statement.period).following()
    known, counts = tenant.adjustments.items(), tenant.adjusted.items()
    rates = statement.terms.taxes if statement.terms else ()
    issued = {
        bill.currency: IssuedInvoice(number=bill.number, net_micro=bill.net_micro, rates=rates)
        for bill in statement.bills
    }
    return replace(
        tenant,
        period=following.name,
        closes_at=following.end_ms + CLOSE_AFTER_MS,
        closed=statement,
        soft_gpu_ms=_later(tenant.soft_gpu_ms, following.name),
        price_versions=_later(tenant.price_versions, following.name),
        billing=_later(tenant.billing, following.name),
        adjustments=Map({name: month for name, month in known if month >= statement.period}),
        adjusted=Map({month: n for month, n in counts if month >= statement.period}),
        issued=tenant.issued.set(statement.period, Map(issued)) if issued else tenant.issued,
        invoices=tenant.invoices + len(issued),
        prepaid=use_up(tenant.prepaid, statement.bills),
    )


def _later(changes: Map[str, Term], month: str) -> Map[str, Term]:
    """Drop changes that apply neither to this month nor to later ones."""
    binding = max((name for name in changes if name <= month), default=month)
    return Map({name: term for name, term in changes.items() if name >= binding})


def _credit_invoice(tenant: AccountState, event: CreditNoteIssued) -> AccountState:
    note = event.note
    of_month = tenant.issued.get(event.period, Map())
    invoice = of_month.get(note.adjustment.currency)
    if invoice is not None:
        credited = replace(invoice, credited_micro=invoice.credited_micro - note.net_micro)
        of_month = of_month.set(note.adjustment.currency, credited)
    adjusted = _with_adjustment(tenant, note.adjustment.reference, period_of(note.issued_at).name)
    return replace(
        adjusted,
        issued=tenant.issued.set(event.period, of_month),
        credit_notes=tenant.credit_notes + 1,
    )


def _with_adjustment(tenant: AccountState, reference: str, month: str) -> AccountState:
    count = tenant.adjusted.get(month, 0)
    return replace(
        tenant,
        adjustments=tenant.adjustments.set(reference, month),
        adjusted=tenant.adjusted.set(month, count + 1),
    )


def _prepaid(
    balances: Map[str, PrepaidBalance], event: PrepaidGranted | PrepaidExpired | PrepaidRevoked
) -> Map[str, PrepaidBalance]:
    if isinstance(event, PrepaidGranted):
        granted = PrepaidBalance(credit=event.credit, first_month=event.first_month)
        return balances.set(event.credit.reference, granted)
    balance = balances.get(event.reference)
    if balance is None:
        return balances
    expired = balance.expired_micro + event.amount_micro
    return balances.set(event.reference, replace(balance, expired_micro=expired))


def _endpoints(
    endpoints: Map[str, WebhookEndpoint], event: OfEndpoint, at: Ms
) -> Map[str, WebhookEndpoint]:
    if isinstance(event, EndpointCreated):
        created = _with_terms(WebhookEndpoint(terms=event.terms), event.terms, at)
        return endpoints.set(event.terms.endpoint_id, created)
    endpoint = endpoints.get(event.endpoint_id)
    if endpoint is None:
        return endpoints
    match event:
        case EndpointChanged():
            fields = asdict(event.change).items()
            changed = {name: value for name, value in fields if value is not None}
            terms = replace(endpoint.terms, **changed)
            if event.change.url is None:
                return endpoints.set(event.endpoint_id, replace(endpoint, terms=terms))
            terms = replace(terms, confirmation=event.change.confirmation)
            return endpoints.set(event.endpoint_id, _with_terms(endpoint, terms, at))
        case EndpointConfirmed():
            return endpoints.set(event.endpoint_id, replace(endpoint, unconfirmed_since=None))
        case EndpointRotated():
            terms = replace(endpoint.terms, secret_version=event.secret_version)
            rotated = replace(endpoint, terms=terms, previous_until=event.previous_until)
            return endpoints.set(event.endpoint_id, rotated)
        case EndpointDeleted():
            return endpoints.delete(event.endpoint_id)
        case _:
            assert_never(event)


def _with_terms(endpoint: WebhookEndpoint, terms: EndpointTerms, at: Ms) -> WebhookEndpoint:
    """The endpoint with an address that is new at `at`."""
    since = None if terms.confirmation is None else at
    return replace(endpoint, terms=terms, unconfirmed_since=since)
