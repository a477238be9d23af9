"""Stream `account` (key: tenant, owner: billing): tenants, plans, API keys, webhooks."""

from typing import Final, Literal, TypeAlias

from schemas.envelope import Message, Part, Rejected, Repeated, Sha256, Tick
from schemas.sealed import Sealed
from schemas.units import GpuMs, Micro, Ms

Lane: TypeAlias = Literal["premium", "standard", "free"]
DeliveryOutcome: TypeAlias = Literal["delivered", "gave_up", "gone", "refused"]
AdjustmentReason: TypeAlias = Literal["goodwill", "correction", "contract"]


class Limits(Part):
    """What a tenant may use. The GPU-time limits are per calendar month (UTC).

    soft: above it use is overage (allowed, marked). hard: admissions stop. concurrency: jobs that
    are wanted to run and not done.
    """

    soft_gpu_ms: GpuMs
    hard_gpu_ms: GpuMs
    concurrency: int


class Statement(Part):
    """The bill of a calendar month ("2026-11") as it was closed; it never changes.

    `cut`: for each partition of the pool's journal, the first offset that is not in it. What comes
    after it for this month is on the next bill.
    """

    period: str
    cut: tuple[int, ...]
    currency: str
    soft_gpu_ms: GpuMs
    gpu_ms: GpuMs
    amount_micro: Micro


# What an endpoint may subscribe to. The first three are what OpenAI's SDKs know how to unwrap, and
# what an endpoint gets that does not say; the others only reach endpoints that ask for them.
STANDARD_EVENT_TYPES: Final = (
    "fine_tuning.job.succeeded",
    "fine_tuning.job.failed",
    "fine_tuning.job.cancelled",
)
RICH_EVENT_TYPES: Final = (
    "fine_tuning.job.running",
    "fine_tuning.job.paused",
    "fine_tuning.job.gated",
)
EVENT_TYPES: Final = STANDARD_EVENT_TYPES + RICH_EVENT_TYPES

ADMIN_SCOPE: Final = "admin"  # tenants and their keys, of everybody: for operators
KEYS_SCOPE: Final = "keys.write"  # a tenant's other keys; `write` alone is for the key itself


# --- commands
class CreateTenant(Message):
    name: Sealed
    plan: Lane
    limits: Limits
    price_version: str


class SetPlan(Message):
    plan: Lane
    limits: Limits
    price_version: str


class CreateKey(Message):
    key_id: str
    name: Sealed
    sha256: Sha256
    hint: str
    scopes: tuple[str, ...]
    expires_at: Ms | None = None
    models: tuple[str, ...] | None = None  # base models that jobs may name; None: all
    spend_cap_micro: Micro | None = None  # per calendar month (UTC)
    requests_per_minute: int | None = None


class RotateKey(Message):
    """The key goes on with a new secret; the old one is good until `previous_until`.

    `secret`: SHA-256 of the secret that asks, where the tenant does; None: an operator does.
    """

    key_id: str
    sha256: Sha256
    hint: str
    previous_until: Ms
    secret: Sha256 | None = None


class RevokeKey(Message):
    """`secret` as in RotateKey."""

    key_id: str
    secret: Sha256 | None = None


class CreateEndpoint(Message):
    """The signing secret is derived from the tenant's key, the endpoint id and `secret_version`."""

    endpoint_id: str
    name: Sealed
    url: Sealed
    event_types: tuple[str, ...]
    secret_version: int = 1


class ChangeEndpoint(Message):
    """What is None stays as it is."""

    endpoint_id: str
    name: Sealed | None = None
    url: Sealed | None = None
    event_types: tuple[str, ...] | None = None


class RotateEndpoint(Message):
    """A new secret; deliveries are signed with the old one as well until `previous_until`."""

    endpoint_id: str
    previous_until: Ms


class DeleteEndpoint(Message):
    endpoint_id: str


class Deliver(Message):
    """One delivery to one endpoint, whatever it subscribes to: a test, or an event once more.

    `once`: a single attempt, for somebody who waits for the answer.
    """

    endpoint_id: str
    delivery_id: str
    event_id: str
    event_type: str
    object_id: str
    created_at: Ms
    once: bool = False


class Announce(Message):
    """Something happened that endpoints may have subscribed to (a reaction of job and model)."""

    event_id: str
    event_type: str
    object_id: str
    created_at: Ms


class EndDelivery(Message):
    delivery_id: str
    outcome: DeliveryOutcome
    attempts: int
    status: int | None = None


class AdjustInvoice(Message):
    """A credit (below zero) or a charge by an operator. `reference`: once for each tenant."""

    reference: str
    amount_micro: Micro
    currency: str
    reason: AdjustmentReason


class CloseInvoice(Message):
    """Outcome of the close effect."""

    statement: Statement


# --- events
class TenantCreated(Message):
    name: Sealed
    plan: Lane
    limits: Limits
    price_version: str


class PlanSet(Message):
    plan: Lane
    limits: Limits
    price_version: str


class KeyCreated(Message):
    key_id: str
    name: Sealed
    sha256: Sha256
    hint: str
    scopes: tuple[str, ...]
    expires_at: Ms | None
    models: tuple[str, ...] | None = None
    spend_cap_micro: Micro | None = None
    requests_per_minute: int | None = None


class KeyRotated(Message):
    key_id: str
    sha256: Sha256
    hint: str
    previous_sha256: Sha256
    previous_until: Ms


class KeyRevoked(Message):
    key_id: str
    sha256: Sha256


class EndpointCreated(Message):
    endpoint_id: str
    name: Sealed
    url: Sealed
    event_types: tuple[str, ...]
    secret_version: int


class EndpointChanged(Message):
    endpoint_id: str
    name: Sealed | None
    url: Sealed | None
    event_types: tuple[str, ...] | None


class EndpointRotated(Message):
    endpoint_id: str
    secret_version: int
    previous_until: Ms


class EndpointDeleted(Message):
    endpoint_id: str


class DeliveryDue(Message):
    """One per endpoint of that moment; the payload is {id, object, created_at, type, data:{id}}.

    Until `previous_until` it is signed with the secret of the version before as well.
    """

    delivery_id: str
    endpoint_id: str
    url: Sealed
    secret_version: int
    event_id: str
    event_type: str
    object_id: str
    created_at: Ms
    previous_until: Ms | None = None
    once: bool = False


class DeliveryEnded(Message):
    delivery_id: str
    endpoint_id: str
    outcome: DeliveryOutcome
    attempts: int
    status: int | None


class PeriodEnded(Message):
    """The month is over, and its last usage had time to arrive: its bill is to be closed.

    `before`: how the month before was closed.
    """

    period: str
    soft_gpu_ms: GpuMs
    before: Statement | None


class InvoiceClosed(Message):
    statement: Statement


class InvoiceAdjusted(Message):
    """On the bill of `period`, the month in which it was decided."""

    reference: str
    period: str
    amount_micro: Micro
    currency: str
    reason: AdjustmentReason


Command: TypeAlias = (
    CreateTenant
    | SetPlan
    | CreateKey
    | RotateKey
    | RevokeKey
    | CreateEndpoint
    | ChangeEndpoint
    | RotateEndpoint
    | DeleteEndpoint
    | Deliver
    | Announce
    | EndDelivery
    | AdjustInvoice
    | CloseInvoice
    | Tick
)
Event: TypeAlias = (
    TenantCreated
    | PlanSet
    | KeyCreated
    | KeyRotated
    | KeyRevoked
    | EndpointCreated
    | EndpointChanged
    | EndpointRotated
    | EndpointDeleted
    | DeliveryDue
    | DeliveryEnded
    | PeriodEnded
    | InvoiceClosed
    | InvoiceAdjusted
    | Rejected
    | Repeated
)
