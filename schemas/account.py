"""Stream `account` (key: tenant, owner: billing): tenants, plans, API keys, webhooks."""

from typing import Literal, TypeAlias

from schemas.envelope import Message, Part, Rejected, Repeated, Sha256
from schemas.sealed import Sealed
from schemas.units import GpuMs, Ms

Lane: TypeAlias = Literal["premium", "standard", "free"]
DeliveryOutcome: TypeAlias = Literal["delivered", "gave_up", "gone", "refused"]


class Limits(Part):
    """What a tenant may use. The GPU-time limits are per calendar month (UTC).

    soft: above it use is overage (allowed, marked). hard: admissions stop. concurrency: jobs that
    are wanted to run and not done.
    """

    soft_gpu_ms: GpuMs
    hard_gpu_ms: GpuMs
    concurrency: int


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


class RevokeKey(Message):
    key_id: str


class CreateEndpoint(Message):
    """The signing secret is derived from the tenant's key, the endpoint id and `secret_version`."""

    endpoint_id: str
    name: Sealed
    url: Sealed
    event_types: tuple[str, ...]
    secret_version: int = 1


class DeleteEndpoint(Message):
    endpoint_id: str


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


class KeyRevoked(Message):
    key_id: str
    sha256: Sha256


class EndpointCreated(Message):
    endpoint_id: str
    name: Sealed
    url: Sealed
    event_types: tuple[str, ...]
    secret_version: int


class EndpointDeleted(Message):
    endpoint_id: str


class DeliveryDue(Message):
    """One per endpoint of that moment; the payload is {id, object, created_at, type, data:{id}}."""

    delivery_id: str
    endpoint_id: str
    url: Sealed
    secret_version: int
    event_id: str
    event_type: str
    object_id: str
    created_at: Ms


class DeliveryEnded(Message):
    delivery_id: str
    endpoint_id: str
    outcome: DeliveryOutcome
    attempts: int
    status: int | None


Command: TypeAlias = (
    CreateTenant
    | SetPlan
    | CreateKey
    | RevokeKey
    | CreateEndpoint
    | DeleteEndpoint
    | Announce
    | EndDelivery
)
Event: TypeAlias = (
    TenantCreated
    | PlanSet
    | KeyCreated
    | KeyRevoked
    | EndpointCreated
    | EndpointDeleted
    | DeliveryDue
    | DeliveryEnded
    | Rejected
    | Repeated
)
