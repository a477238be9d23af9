"""The state of `account`: what decisions need, and nothing that only readers need."""

from typing import Final

from immutables import Map
from msgspec import Struct

from schemas.account import (
    PlanChange,
    PlanTerms,
)
from schemas.billing import (
    BillingTerms,
    PrepaidCredit,
    PriceBook,
    Statement,
    TaxRate,
)
from schemas.endpoints import EndpointTerms
from schemas.envelope import Sha256
from schemas.erasure import ErasedPart, ErasurePart
from schemas.units import GpuMs, Micro, Ms

KEYS_MAX: Final = 100  # usable keys of one tenant
ENDPOINTS_MAX: Final = 20
CONFIRMATIONS_MAX: Final = 20  # codes that a tenant has mailed within a day
DELIVERIES_OPEN_MAX: Final = 10_000  # a tenant whose endpoints are all dead for 72 h

ADJUSTMENTS_MAX: Final = 10_000  # of one tenant in one month


class ApiKey(Struct, frozen=True, kw_only=True):
    sha256: Sha256
    scopes: tuple[str, ...] = ()
    revoked: bool = False
    expires_at: Ms | None = None

    def works_at(self, at: Ms) -> bool:
        """Whether it is neither revoked nor expired."""
        return not self.revoked and (self.expires_at is None or at < self.expires_at)


class WebhookEndpoint(Struct, frozen=True, kw_only=True):
    """`previous_until`: until then deliveries carry the signature of the secret before, too.

    `unconfirmed_since`: when a code was asked for; None: the endpoint gets deliveries.
    """

    terms: EndpointTerms
    previous_until: Ms | None = None
    unconfirmed_since: Ms | None = None


class IssuedInvoice(Struct, frozen=True, kw_only=True):
    """What credit notes need to know of an invoice. `credited_micro`: net, by its credit notes."""

    number: str
    net_micro: Micro
    rates: tuple[TaxRate, ...]
    credited_micro: Micro = 0


class PrepaidBalance(Struct, frozen=True, kw_only=True):
    """A prepaid credit: `first_month`: the first that it may pay; what was used, and what has
    expired or was revoked.
    """

    credit: PrepaidCredit
    first_month: str
    used_micro: Micro = 0
    expired_micro: Micro = 0

    @property
    def left_micro(self) -> Micro:
        return self.credit.amount_micro - self.used_micro - self.expired_micro


class Erasure(Struct, frozen=True, kw_only=True):
    """The erasure of a tenant. `parts`: those that are gone, in their order."""

    begun_at: Ms
    parts: tuple[ErasedPart, ...] = ()

    @property
    def names(self) -> tuple[ErasurePart, ...]:
        return tuple(done.part for done in self.parts)


class AccountState(Struct, frozen=True, kw_only=True):
    """`deliveries` are the open ones: delivery id → endpoint id.

    `period`: the oldest month that is not closed; `closes_at`: when it will be, None while it is
    being closed. `closed`: the month before. `scheduled`: a plan that is to come.
    `soft_gpu_ms`: month → limit at its end, where it changed, from that which binds `period` on;
    `price_versions`: likewise the price book.
    `adjustments`: reference → month, of `closed` and later. `issued`: month → currency →
    invoice. `adjusted`: month → how many of `adjustments`. `invoices`, `credit_notes`: how many
    there are. `prepaid`: by reference. `codes_mailed`: when, of the last day.
    `erasure`: None: the tenant is not erased.
    """

    terms: PlanTerms
    scheduled: PlanChange | None = None
    suspended: bool = False
    keys: Map[str, ApiKey] = Map()
    endpoints: Map[str, WebhookEndpoint] = Map()
    deliveries: Map[str, str] = Map()
    codes_mailed: tuple[Ms, ...] = ()
    adjustments: Map[str, str] = Map()
    adjusted: Map[str, int] = Map()
    period: str
    closes_at: Ms | None
    closed: Statement | None = None
    billing: BillingTerms = BillingTerms()
    soft_gpu_ms: Map[str, GpuMs] = Map()
    price_versions: Map[str, str] = Map()
    issued: Map[str, Map[str, IssuedInvoice]] = Map()
    invoices: int = 0
    credit_notes: int = 0
    prepaid: Map[str, PrepaidBalance] = Map()
    erasure: Erasure | None = None


class Accounts(Struct, frozen=True, kw_only=True):
    """State of one partition. `tenants`: by id; `books`: price books by version, of everybody;
    `withdrawn`: number of the last key that is withdrawn, by node id.
    """

    tenants: Map[str, AccountState] = Map()
    books: Map[str, PriceBook] = Map()
    withdrawn: Map[str, int] = Map()


INITIAL: Final = Accounts()
