"""Stream `account` (key: tenant, owner: billing): tenants, plans, API keys, webhooks, prices.

Price books are global, with the global key. `ImportPrices` goes to PRICES_PARTITION, which alone
judges a book; billing sends on to the other partitions what was imported there.
"""

from typing import Final, Literal, TypeAlias, get_args

from schemas.admission import BudgetAlert
from schemas.anomaly import Anomaly
from schemas.answers import AnswersCounted, CountAnswers
from schemas.batch import BatchCommand, BatchEvent
from schemas.billing import (
    BillingTerms,
    CreditNote,
    HourlyUse,
    InvoiceAdjustment,
    Price,
    PriceBook,
    Statement,
)
from schemas.billing import Lane as Lane
from schemas.endpoints import ConfirmEndpoint, EndpointChange, EndpointConfirmed, EndpointTerms
from schemas.envelope import Message, Part, Rejected, Repeated, Sha256, Tick
from schemas.erasure import ErasureCommand, ErasureEvent
from schemas.imports import ImportCommand, ImportEvent
from schemas.integrations import (
    RemoveTrackingServer,
    SetTrackingServer,
    TrackingServerRemoved,
    TrackingServerSet,
)
from schemas.keys import KeyRotation, KeyTerms
from schemas.node import NodeKeysWithdrawn, WithdrawNodeKeys
from schemas.prepaid import PrepaidCommand, PrepaidEvent
from schemas.sealed import Sealed
from schemas.units import GpuMs, Ms

LANES: Final[tuple[str, ...]] = get_args(Lane)
PRICES_PARTITION: Final = 0
DeliveryOutcome: TypeAlias = Literal["delivered", "gave_up", "gone", "refused"]
PlanStart: TypeAlias = Literal["now", "next_month"]


class Limits(Part):
    """Usage limits of a tenant in a calendar month (UTC)."""

    soft_gpu_ms: GpuMs  # GPU time above it is overage: allowed, and marked
    hard_gpu_ms: GpuMs  # GPU time at which admissions stop
    concurrency: int  # jobs that may be active (requested to run and not done) at the same time


class PlanTerms(Part):
    """Plan of a tenant as its admissions apply it. Admitted jobs keep their lane and price."""

    lane: Lane  # service class of new jobs
    limits: Limits  # what the tenant may use
    price_version: str  # price book of new jobs
    # price of the lane in that book; None: the book was not on the log when the plan was set. Terms
    # of replicas and other work that begins by itself begin at this price.
    price: Price | None = None


class PlanChange(Part):
    """A plan that is to come."""

    terms: PlanTerms  # the plan
    effective_at: Ms  # the first moment at which it is in force, by the time of the broker


class WebhookEvent(Part):
    """An event for endpoints. The payload is {id, object, created_at, type, data: {id}}."""

    event_id: str  # the event; the same for all endpoints and all repeats
    event_type: str  # one of EVENT_TYPES
    object_id: str  # what it happened to
    created_at: Ms  # when it happened
    # alert of a budget; its month and percent are in the payload's data
    alert: BudgetAlert | None = None
    # hourly use of a job; its hour, kind and GPU time are in the payload's data
    usage: HourlyUse | None = None
    # anomaly of a job; its kind, attempt, window and figures are in the payload's data
    anomaly: Anomaly | None = None


class DeliveryReport(Part):
    """How a delivery ended."""

    delivery_id: str
    outcome: DeliveryOutcome  # what became of it
    attempts: int  # how often it was sent
    status: int | None = None  # HTTP status of the last response, None: there was none


# What an endpoint may subscribe to. The first three are what OpenAI's SDKs know how to unwrap, and
# what an endpoint gets that does not say; the others only reach endpoints that ask for them.
STANDARD_EVENT_TYPES: Final = (
    "fine_tuning.job.succeeded",
    "fine_tuning.job.failed",
    "fine_tuning.job.cancelled",
)
USAGE_RECORDED: Final = "usage.recorded"
NUMBERED_EXPORTS: Final = "exports/"  # before a stream, in the `source.stream` of an `Announce`
RICH_EVENT_TYPES: Final = (
    "fine_tuning.job.running",
    "fine_tuning.job.paused",
    "fine_tuning.job.gated",
    "fine_tuning.job.anomaly",
    "budget.threshold_reached",
    "serving_pool.stalled",
    "sweep.stopped",
    "sweep.waiting",
    USAGE_RECORDED,
)
EVENT_TYPES: Final = STANDARD_EVENT_TYPES + RICH_EVENT_TYPES

ADMIN_SCOPE: Final = "admin"  # tenants and their keys, of everybody: for operators
BUDGETS_SCOPE: Final = "budgets.write"  # monthly budgets; `write` alone does not change them
KEYS_SCOPE: Final = "keys.write"  # a tenant's other keys; `write` alone is for the key itself


# --- commands
class CreateTenant(Message):
    """A new tenant."""

    name: Sealed  # what operators call it
    terms: PlanTerms  # its plan


class SetPlan(Message):
    """Another plan for the jobs to come. It replaces a change that was scheduled before."""

    terms: PlanTerms  # the new plan
    # start of the plan: the first moment of the next calendar month (UTC), or now
    start: PlanStart = "now"


class SuspendTenant(Message):
    """Stop the tenant from starting jobs. Its submitted jobs continue."""


class ResumeTenant(Message):
    """The tenant may start jobs again."""


class CreateKey(Message):
    """A new API key."""

    terms: KeyTerms  # the key


class RotateKey(Message):
    """The key continues with a new secret."""

    key_id: str
    rotation: KeyRotation  # the new secret
    # SHA-256 of the secret that asks, where the tenant does; None: an operator does
    secret: Sha256 | None = None


class RevokeKey(Message):
    """The key stops working, for good."""

    key_id: str
    secret: Sha256 | None = None  # see `RotateKey`


class CreateEndpoint(Message):
    """A new webhook endpoint."""

    terms: EndpointTerms  # the endpoint


class ChangeEndpoint(Message):
    """Deliveries that are due already keep the address they were due to."""

    endpoint_id: str
    change: EndpointChange  # the new terms


class RotateEndpoint(Message):
    """A new signing secret."""

    endpoint_id: str
    previous_until: Ms  # end of the time in which deliveries are signed with the old secret as well


class DeleteEndpoint(Message):
    """No new deliveries; the open ones end by their schedule."""

    endpoint_id: str


class Deliver(Message):
    """One delivery to one endpoint, whatever it subscribes to: a test, or an event once more."""

    endpoint_id: str
    delivery_id: str  # the new delivery
    event: WebhookEvent  # what is delivered
    once: bool = False  # a single attempt, for a client that waits for the answer


class Announce(Message):
    """Something happened that endpoints may have subscribed to (a reaction of job and model)."""

    event: WebhookEvent  # what happened


class EndDelivery(Message):
    """Result of the deliver effect."""

    report: DeliveryReport  # how the delivery ended


class ImportPrices(Message):
    """Tenants may be priced by this book. Its key is the global one."""

    book: PriceBook  # the prices; a version never changes
    sha256: Sha256  # hash of the file that it comes from


class SetBillingTerms(Message):
    """Set a tenant's invoice texts and contract terms from a month on, until later terms apply."""

    terms: BillingTerms  # the complete terms; they replace those of the month
    from_month: str | None = None  # the first month: "2026-12"; None: the current one


class AdjustInvoice(Message):
    """A credit or a charge."""

    adjustment: InvoiceAdjustment  # what, and why
    period: str | None = None  # the month it is for, None: the current one


class CloseInvoice(Message):
    """Result of the close effect."""

    statement: Statement  # the month's bill


# --- events
class TenantCreated(Message):
    """The tenant may have keys and submit jobs."""

    name: Sealed  # what operators call it
    terms: PlanTerms  # its plan


class PlanSet(Message):
    """New jobs are admitted under another plan."""

    terms: PlanTerms  # the new plan
    effective_at: Ms | None = None  # the moment for which it was scheduled; None: that of the event


class PlanScheduled(Message):
    """New jobs are admitted under another plan from a later moment on."""

    change: PlanChange  # the plan, and the moment. It replaces what was scheduled before.


class TenantSuspended(Message):
    """The tenant starts no more jobs. Those that it has submitted go on."""


class TenantResumed(Message):
    """The tenant may start jobs again."""


class KeyCreated(Message):
    """The key works."""

    terms: KeyTerms  # the key


class KeyRotated(Message):
    """The key has a new secret."""

    key_id: str
    rotation: KeyRotation  # the new secret
    previous_sha256: Sha256  # hash of the old secret


class KeyRevoked(Message):
    """The key does not work any more."""

    key_id: str
    sha256: Sha256  # hash of its newest secret


class EndpointCreated(Message):
    """The endpoint gets deliveries of what happens from now on."""

    terms: EndpointTerms  # the endpoint; its event types sorted, each once


class EndpointChanged(Message):
    """The endpoint has new terms."""

    endpoint_id: str
    change: EndpointChange  # the new terms; event types sorted, each once


class EndpointRotated(Message):
    """The endpoint has a new signing secret."""

    endpoint_id: str
    secret_version: int  # version of the new secret
    previous_until: Ms  # end of the time in which deliveries are signed with the old secret as well


class EndpointDeleted(Message):
    """The endpoint gets no new deliveries."""

    endpoint_id: str


class DeliveryDue(Message):
    """One delivery to one endpoint of that moment."""

    delivery_id: str
    endpoint_id: str
    url: Sealed  # destination, even if the endpoint's address changes later
    secret_version: int  # version of the endpoint's signing secret
    event: WebhookEvent  # what is delivered
    # end of the time in which it is signed with the old secret as well
    previous_until: Ms | None = None
    once: bool = False  # see `Deliver`


class DeliveryEnded(Message):
    """The delivery is over."""

    endpoint_id: str
    report: DeliveryReport  # how it ended


class PeriodEnded(Message):
    """The month is over, and its last usage had time to arrive: its bill is to be closed."""

    period: str  # the month: "2026-11"
    soft_gpu_ms: GpuMs  # the tenant's soft limit at its end
    before: Statement | None  # how the month before was closed, None: this is the tenant's first
    terms: BillingTerms | None = None  # what its invoices say
    price_version: str = ""  # the tenant's price book at its end, which says its currency


class InvoiceClosed(Message):
    """The month's bill is final."""

    statement: Statement  # the bill


class InvoiceAdjusted(Message):
    """An adjustment is on the bill of a month."""

    period: str  # the month in which it was decided
    adjustment: InvoiceAdjustment  # what, and why


class PricesImported(Message):
    """Tenants may be priced by this book."""

    book: PriceBook  # the prices
    sha256: Sha256  # hash of the file that it comes from


class BillingTermsSet(Message):
    """The tenant's invoices say something else from a month on."""

    terms: BillingTerms  # the complete terms
    # the first month; empty, in old journals: the oldest that was not closed then
    from_month: str = ""


class CreditNoteIssued(Message):
    """The invoice of a closed month is corrected."""

    period: str  # the month
    note: CreditNote  # the credit note


Command: TypeAlias = (
    CreateTenant
    | SetPlan
    | SuspendTenant
    | ResumeTenant
    | CreateKey
    | RotateKey
    | RevokeKey
    | CreateEndpoint
    | ChangeEndpoint
    | ConfirmEndpoint
    | RotateEndpoint
    | DeleteEndpoint
    | SetTrackingServer
    | RemoveTrackingServer
    | Deliver
    | Announce
    | EndDelivery
    | ImportPrices
    | SetBillingTerms
    | AdjustInvoice
    | PrepaidCommand
    | ErasureCommand
    | CountAnswers
    | BatchCommand
    | ImportCommand
    | WithdrawNodeKeys
    | CloseInvoice
    | Tick
)
Event: TypeAlias = (
    TenantCreated
    | PlanSet
    | PlanScheduled
    | TenantSuspended
    | TenantResumed
    | KeyCreated
    | KeyRotated
    | KeyRevoked
    | EndpointCreated
    | EndpointChanged
    | EndpointConfirmed
    | EndpointRotated
    | EndpointDeleted
    | TrackingServerSet
    | TrackingServerRemoved
    | DeliveryDue
    | DeliveryEnded
    | PeriodEnded
    | InvoiceClosed
    | InvoiceAdjusted
    | PricesImported
    | BillingTermsSet
    | CreditNoteIssued
    | PrepaidEvent
    | ErasureEvent
    | AnswersCounted
    | BatchEvent
    | ImportEvent
    | NodeKeysWithdrawn
    | Rejected
    | Repeated
)
