"""Stream `account` (key: tenant, owner: billing): tenants, plans, API keys, webhooks, prices.

Price books are global, with the global key. `ImportPrices` goes to PRICES_PARTITION, which alone
judges a book; billing sends on to the other partitions what was imported there.
"""

from typing import Final, Literal, TypeAlias, get_args

from schemas.admission import BudgetAlert
from schemas.anomaly import Anomaly
from schemas.answers import AnswersCounted, CountAnswers
from schemas.billing import (
    BillingTerms,
    CreditNote,
    HourlyUse,
    InvoiceAdjustment,
    PriceBook,
    Statement,
)
from schemas.endpoints import ConfirmEndpoint, EndpointChange, EndpointConfirmed, EndpointTerms
from schemas.envelope import Message, Part, Rejected, Repeated, Sha256, Tick
from schemas.erasure import ErasureCommand, ErasureEvent
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

Lane: TypeAlias = Literal["premium", "standard", "free"]
LANES: Final[tuple[str, ...]] = get_args(Lane)
PRICES_PARTITION: Final = 0
DeliveryOutcome: TypeAlias = Literal["delivered", "gave_up", "gone", "refused"]
PlanStart: TypeAlias = Literal["now", "next_month"]


class Limits(Part):
    """What a tenant may use in a calendar month (UTC).

    soft_gpu_ms: GPU time above it is overage: allowed, and marked.
    hard_gpu_ms: GPU time at which admissions stop.
    concurrency: jobs that are wanted to run and not done.
    """

    soft_gpu_ms: GpuMs
    hard_gpu_ms: GpuMs
    concurrency: int


class PlanTerms(Part):
    """What binds a tenant's admissions. Jobs keep the lane and the price of their own admission.

    lane: service class of new jobs.
    limits: what the tenant may use.
    price_version: price book of new jobs.
    """

    lane: Lane
    limits: Limits
    price_version: str


class PlanChange(Part):
    """A plan that is to come.

    terms: the plan.
    effective_at: the first moment at which it is in force, by the time of the broker.
    """

    terms: PlanTerms
    effective_at: Ms


class WebhookEvent(Part):
    """An event for endpoints. The payload is {id, object, created_at, type, data: {id}}.

    event_id: the event; the same for all endpoints and all repeats.
    event_type: one of EVENT_TYPES.
    object_id: what it happened to.
    created_at: when it happened.
    alert: of a budget; its month and percent are in the payload's data.
    usage: of a job; its hour, kind and GPU time are in the payload's data.
    anomaly: of a job; its kind, attempt, window and figures are in the payload's data.
    """

    event_id: str
    event_type: str
    object_id: str
    created_at: Ms
    alert: BudgetAlert | None = None
    usage: HourlyUse | None = None
    anomaly: Anomaly | None = None


class DeliveryReport(Part):
    """How a delivery ended.

    delivery_id: the delivery.
    outcome: what became of it.
    attempts: how often it was sent.
    status: HTTP status of the last response, None: there was none.
    """

    delivery_id: str
    outcome: DeliveryOutcome
    attempts: int
    status: int | None = None


# What an endpoint may subscribe to. The first three are what OpenAI's SDKs know how to unwrap, and
# what an endpoint gets that does not say; the others only reach endpoints that ask for them.
STANDARD_EVENT_TYPES: Final = (
    "fine_tuning.job.succeeded",
    "fine_tuning.job.failed",
    "fine_tuning.job.cancelled",
)
USAGE_RECORDED: Final = "usage.recorded"
RICH_EVENT_TYPES: Final = (
    "fine_tuning.job.running",
    "fine_tuning.job.paused",
    "fine_tuning.job.gated",
    "fine_tuning.job.anomaly",
    "budget.threshold_reached",
    USAGE_RECORDED,
)
EVENT_TYPES: Final = STANDARD_EVENT_TYPES + RICH_EVENT_TYPES

ADMIN_SCOPE: Final = "admin"  # tenants and their keys, of everybody: for operators
BUDGETS_SCOPE: Final = "budgets.write"  # monthly budgets; `write` alone does not change them
KEYS_SCOPE: Final = "keys.write"  # a tenant's other keys; `write` alone is for the key itself


# --- commands
class CreateTenant(Message):
    """A new tenant.

    name: what operators call it.
    terms: its plan.
    """

    name: Sealed
    terms: PlanTerms


class SetPlan(Message):
    """Another plan for the jobs to come. It replaces a change that was scheduled before.

    terms: the new plan.
    start: from when on: the first moment of the next calendar month (UTC), or now.
    """

    terms: PlanTerms
    start: PlanStart = "now"


class SuspendTenant(Message):
    """The tenant shall start no more jobs. Those that it has submitted go on."""


class ResumeTenant(Message):
    """The tenant may start jobs again."""


class CreateKey(Message):
    """A new API key.

    terms: the key.
    """

    terms: KeyTerms


class RotateKey(Message):
    """The key goes on with a new secret.

    key_id: the key.
    rotation: the new secret.
    secret: SHA-256 of the secret that asks, where the tenant does; None: an operator does.
    """

    key_id: str
    rotation: KeyRotation
    secret: Sha256 | None = None


class RevokeKey(Message):
    """The key stops working, for good.

    key_id: the key.
    secret: as in `RotateKey`.
    """

    key_id: str
    secret: Sha256 | None = None


class CreateEndpoint(Message):
    """A new webhook endpoint.

    terms: the endpoint.
    """

    terms: EndpointTerms


class ChangeEndpoint(Message):
    """Deliveries that are due already keep the address they were due to.

    endpoint_id: the endpoint.
    change: the new terms.
    """

    endpoint_id: str
    change: EndpointChange


class RotateEndpoint(Message):
    """A new signing secret.

    endpoint_id: the endpoint.
    previous_until: until when deliveries are signed with the old secret as well.
    """

    endpoint_id: str
    previous_until: Ms


class DeleteEndpoint(Message):
    """No new deliveries; the open ones end by their schedule.

    endpoint_id: the endpoint.
    """

    endpoint_id: str


class Deliver(Message):
    """One delivery to one endpoint, whatever it subscribes to: a test, or an event once more.

    endpoint_id: the endpoint.
    delivery_id: the new delivery.
    event: what is delivered.
    once: a single attempt, for a client that waits for the answer.
    """

    endpoint_id: str
    delivery_id: str
    event: WebhookEvent
    once: bool = False


class Announce(Message):
    """Something happened that endpoints may have subscribed to (a reaction of job and model).

    event: what happened.
    """

    event: WebhookEvent


class EndDelivery(Message):
    """Result of the deliver effect.

    report: how the delivery ended.
    """

    report: DeliveryReport


class ImportPrices(Message):
    """Tenants may be priced by this book. Its key is the global one.

    book: the prices; a version never changes.
    sha256: of the file that it comes from.
    """

    book: PriceBook
    sha256: Sha256


class SetBillingTerms(Message):
    """What the tenant's invoices say from now on, the one of this month included.

    terms: all of it.
    """

    terms: BillingTerms


class AdjustInvoice(Message):
    """A credit or a charge.

    adjustment: what, and why.
    period: the month it is for, None: the current one.
    """

    adjustment: InvoiceAdjustment
    period: str | None = None


class CloseInvoice(Message):
    """Result of the close effect.

    statement: the month's bill.
    """

    statement: Statement


# --- events
class TenantCreated(Message):
    """The tenant may have keys and submit jobs.

    name: what operators call it.
    terms: its plan.
    """

    name: Sealed
    terms: PlanTerms


class PlanSet(Message):
    """New jobs are admitted under another plan.

    terms: the new plan.
    """

    terms: PlanTerms


class PlanScheduled(Message):
    """New jobs are admitted under another plan from a later moment on.

    change: the plan, and the moment. It replaces what was scheduled before.
    """

    change: PlanChange


class TenantSuspended(Message):
    """The tenant starts no more jobs. Those that it has submitted go on."""


class TenantResumed(Message):
    """The tenant may start jobs again."""


class KeyCreated(Message):
    """The key works.

    terms: the key.
    """

    terms: KeyTerms


class KeyRotated(Message):
    """The key has a new secret.

    key_id: the key.
    rotation: the new secret.
    previous_sha256: of the old secret.
    """

    key_id: str
    rotation: KeyRotation
    previous_sha256: Sha256


class KeyRevoked(Message):
    """The key does not work any more.

    key_id: the key.
    sha256: of its newest secret.
    """

    key_id: str
    sha256: Sha256


class EndpointCreated(Message):
    """The endpoint gets deliveries of what happens from now on.

    terms: the endpoint; its event types sorted, each once.
    """

    terms: EndpointTerms


class EndpointChanged(Message):
    """The endpoint has new terms.

    endpoint_id: the endpoint.
    change: the new terms; event types sorted, each once.
    """

    endpoint_id: str
    change: EndpointChange


class EndpointRotated(Message):
    """The endpoint has a new signing secret.

    endpoint_id: the endpoint.
    secret_version: of the new secret.
    previous_until: until when deliveries are signed with the secret before as well.
    """

    endpoint_id: str
    secret_version: int
    previous_until: Ms


class EndpointDeleted(Message):
    """The endpoint gets no new deliveries.

    endpoint_id: the endpoint.
    """

    endpoint_id: str


class DeliveryDue(Message):
    """One delivery to one endpoint of that moment.

    delivery_id: the delivery.
    endpoint_id: the endpoint.
    url: where it goes, whatever the endpoint's address becomes.
    secret_version: of the endpoint's signing secret.
    event: what is delivered.
    previous_until: until when it is signed with the secret before as well.
    once: as in `Deliver`.
    """

    delivery_id: str
    endpoint_id: str
    url: Sealed
    secret_version: int
    event: WebhookEvent
    previous_until: Ms | None = None
    once: bool = False


class DeliveryEnded(Message):
    """The delivery is over.

    endpoint_id: the endpoint.
    report: how it ended.
    """

    endpoint_id: str
    report: DeliveryReport


class PeriodEnded(Message):
    """The month is over, and its last usage had time to arrive: its bill is to be closed.

    period: the month: "2026-11".
    soft_gpu_ms: the tenant's soft limit at its end.
    before: how the month before was closed, None: this is the tenant's first.
    terms: what its invoices say.
    price_version: the tenant's price book at its end, by which storage is billed; empty: it is not.
    """

    period: str
    soft_gpu_ms: GpuMs
    before: Statement | None
    terms: BillingTerms | None = None
    price_version: str = ""


class InvoiceClosed(Message):
    """The month's bill is final.

    statement: the bill.
    """

    statement: Statement


class InvoiceAdjusted(Message):
    """An adjustment is on the bill of a month.

    period: the month in which it was decided.
    adjustment: what, and why.
    """

    period: str
    adjustment: InvoiceAdjustment


class PricesImported(Message):
    """Tenants may be priced by this book.

    book: the prices.
    sha256: of the file that it comes from.
    """

    book: PriceBook
    sha256: Sha256


class BillingTermsSet(Message):
    """The tenant's invoices say something else from now on.

    terms: all of it.
    """

    terms: BillingTerms


class CreditNoteIssued(Message):
    """The invoice of a closed month is corrected.

    period: the month.
    note: the credit note.
    """

    period: str
    note: CreditNote


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
    | NodeKeysWithdrawn
    | Rejected
    | Repeated
)
