"""Read models of tenants, API keys, budgets, webhook endpoints and their deliveries.

Sealed fields are stored sealed and opened for responses. `sequence`: number of the event that
created the row, in its tenant's stream; lists are ordered by it.
"""

from typing import Final

from schemas.account import DeliveryOutcome, Lane, Limits, PlanChange
from schemas.admission import BudgetAlert, BudgetUse
from schemas.billing import PriceBook
from schemas.sealed import Sealed
from schemas.units import GpuMs, Micro, Ms
from services.gateway.views.table import Table, TableIndex, TableRow

TENANT_ID: Final = ("tenant", "id")
MLFLOW: Final = "mlflow"


class TenantRow(TableRow):
    name: Sealed
    plan: Lane
    limits: Limits
    price_version: str
    created_at: Ms
    scheduled: PlanChange | None = None
    suspended_at: Ms | None = None
    erasure_begun_at: Ms | None = None
    erased_at: Ms | None = None
    erasure_sha256: str | None = None


class ErasedPartRow(TableRow):
    """A part of an erased tenant that is gone; its id is the part."""

    tenant: str
    at: Ms


class PriceRow(TableRow):
    """A price book; its id is its version."""

    effective_from: str
    book: PriceBook


class LimitsRow(TableRow):
    """Limits of a tenant as the stream `job` knows them; without this row it cannot submit jobs."""

    lane: Lane
    limits: Limits
    price_version: str
    suspended: bool | None = None


class KeyRow(TableRow):
    """An API key, known by the SHA-256 of its secret."""

    tenant: str
    sequence: int
    name: Sealed
    sha256: str
    hint: str  # the end of the secret
    scopes: tuple[str, ...]
    created_at: Ms
    expires_at: Ms | None
    models: tuple[str, ...] | None  # the base models its jobs may train, None: all
    spend_cap_micro: Micro | None
    requests_per_minute: int | None
    revoked_at: Ms | None = None
    # hash of the secret before the last rotation, valid until `previous_until`
    previous_sha256: str | None = None
    previous_until: Ms | None = None
    spend_cap_currency: str | None = None


class KeyUseRow(TableRow):
    """When a key was last used, to ten minutes; of the topic of audit records."""

    tenant: str
    last_used_at: Ms


class EndpointRow(TableRow):
    """A webhook endpoint."""

    tenant: str
    sequence: int
    name: Sealed
    url: Sealed
    event_types: tuple[str, ...]
    secret_version: int
    created_at: Ms
    updated_at: Ms | None = None
    # delivery that mails its code; None: there is nothing to confirm
    confirmation_id: str | None = None


class TrackingServerRow(TableRow):
    """A server that jobs of a tenant are written to; its id is the tool, which is MLflow."""

    tenant: str
    set_at: Ms
    url: Sealed
    header: Sealed | None = None  # `authorization`, as it is sent


class DeliveryRow(TableRow):
    """The delivery of one event to one endpoint."""

    tenant: str
    sequence: int
    endpoint_id: str
    event_id: str
    event_type: str
    object_id: str
    event_at: Ms
    due_at: Ms
    ended_at: Ms | None = None
    outcome: DeliveryOutcome | None = None
    attempts: int | None = None
    status: int | None = None  # HTTP status of the receiver's last response


class BudgetRow(TableRow):
    """A monthly budget, and what the last change of it left: `month`, totals, percent announced."""

    tenant: str
    currency: str
    set_at: Ms
    max_gpu_ms: GpuMs | None = None
    max_amount_micro: Micro | None = None
    month: str | None = None
    use: BudgetUse | None = None
    alert: BudgetAlert | None = None


PRICES: Final = Table("prices", PriceRow, key=("id",), order="effective_from")
TENANTS: Final = Table("tenants", TenantRow, key=("id",), order="id")
ERASED_PARTS: Final = Table("erased_parts", ErasedPartRow, key=TENANT_ID, order="at")
LIMITS: Final = Table("limits", LimitsRow, key=("id",), order="id")
KEYS: Final = Table(
    "keys",
    KeyRow,
    key=TENANT_ID,
    order="sequence",
    indexes=(TableIndex(("sha256",)), TableIndex(("previous_sha256",))),
)
KEY_USES: Final = Table("key_uses", KeyUseRow, key=TENANT_ID, order="last_used_at")
BUDGETS: Final = Table("budgets", BudgetRow, key=TENANT_ID, order="id")
ENDPOINTS: Final = Table("endpoints", EndpointRow, key=TENANT_ID, order="sequence")
TRACKING_SERVERS: Final = Table(
    "tracking_servers", TrackingServerRow, key=TENANT_ID, order="set_at"
)
DELIVERIES: Final = Table(
    "deliveries",
    DeliveryRow,
    key=TENANT_ID,
    order="sequence",
    indexes=(
        TableIndex(("tenant", "endpoint_id", "sequence")),
        TableIndex(("ended_at",), where="ended_at IS NOT NULL"),
    ),
)
