"""The state of `account`: what decisions need, and nothing that only readers need."""

from typing import Final, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.account import EndpointTerms, PlanChange, PlanTerms, Statement
from schemas.envelope import Sha256
from schemas.units import HOUR_MS, Ms

KEYS_MAX: Final = 100  # usable keys of one tenant
ENDPOINTS_MAX: Final = 20
DELIVERIES_OPEN_MAX: Final = 10_000  # a tenant whose endpoints are all dead for 72 h


ADJUSTMENTS_MAX: Final = 10_000
CLOSE_AFTER_MS: Final[Ms] = 2 * HOUR_MS  # from a month's end: its last slices are written by then


class ApiKey(Struct, frozen=True, kw_only=True):
    sha256: Sha256
    scopes: tuple[str, ...] = ()
    revoked: bool = False


class WebhookEndpoint(Struct, frozen=True, kw_only=True):
    """`previous_until`: until then deliveries carry the signature of the secret before, too."""

    terms: EndpointTerms
    previous_until: Ms | None = None


class AccountState(Struct, frozen=True, kw_only=True):
    """`deliveries` are the open ones: delivery id → endpoint id; `adjustments`: reference → period.

    `period`: the oldest month that is not closed; `closes_at`: when it will be, None while it is
    being closed. `closed`: the month before. `scheduled`: a plan that is to come.
    """

    terms: PlanTerms
    scheduled: PlanChange | None = None
    suspended: bool = False
    keys: Map[str, ApiKey] = Map()
    endpoints: Map[str, WebhookEndpoint] = Map()
    deliveries: Map[str, str] = Map()
    adjustments: Map[str, str] = Map()
    period: str
    closes_at: Ms | None
    closed: Statement | None = None


Tenants: TypeAlias = Map[str, AccountState]
INITIAL: Final[Tenants] = Map()
