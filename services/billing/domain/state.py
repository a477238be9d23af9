"""The state of `account`: what decisions need, and nothing that only readers need."""

from typing import Final

from immutables import Map
from msgspec import Struct

from schemas.account import PlanChange, PlanTerms
from schemas.batch import BatchClosingReason, BatchCounts
from schemas.billing import BillingTerms, PrepaidCredit, PriceBook, Statement, TaxRate
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
        """Return whether the key is neither revoked nor expired at a time."""
        return not self.revoked and (self.expires_at is None or at < self.expires_at)


class WebhookEndpoint(Struct, frozen=True, kw_only=True):
    """Webhook endpoint of a tenant."""

    terms: EndpointTerms
    # until then deliveries carry the signature of the old secret as well
    previous_until: Ms | None = None
    # when a code was asked for; None: the endpoint gets deliveries
    unconfirmed_since: Ms | None = None


class IssuedInvoice(Struct, frozen=True, kw_only=True):
    """Issued invoice as credit notes need it."""

    number: str
    net_micro: Micro
    rates: tuple[TaxRate, ...]
    credited_micro: Micro = 0  # net sum of its credit notes


class PrepaidBalance(Struct, frozen=True, kw_only=True):
    """Prepaid credit, and what is left of it."""

    credit: PrepaidCredit
    first_month: str  # the first month whose invoice it may pay
    used_micro: Micro = 0
    expired_micro: Micro = 0  # what has expired or was revoked

    @property
    def left_micro(self) -> Micro:
        return self.credit.amount_micro - self.used_micro - self.expired_micro


class Erasure(Struct, frozen=True, kw_only=True):
    """Erasure of a tenant."""

    begun_at: Ms
    parts: tuple[ErasedPart, ...] = ()  # erased parts, in the order in which their erasure ended

    @property
    def names(self) -> tuple[ErasurePart, ...]:
        return tuple(done.part for done in self.parts)


class OpenBatch(Struct, frozen=True, kw_only=True):
    """Batch that has not ended."""

    expires_at: Ms
    rows: int | None = None  # number of rows; None: its file is being checked
    counts: BatchCounts = BatchCounts()  # rows that have ended
    closing: BatchClosingReason | None = None  # why no more rows are answered


class AccountState(Struct, frozen=True, kw_only=True):
    """Account of one tenant."""

    terms: PlanTerms
    scheduled: PlanChange | None = None  # plan that is to come
    suspended: bool = False
    keys: Map[str, ApiKey] = Map()
    endpoints: Map[str, WebhookEndpoint] = Map()
    deliveries: Map[str, str] = Map()  # open deliveries: id of the delivery → id of the endpoint
    codes_mailed: tuple[Ms, ...] = ()  # times of the last day at which codes were mailed
    adjustments: Map[str, str] = Map()  # reference → month, of the month `closed` and later
    adjusted: Map[str, int] = Map()  # month → number of its adjustments
    period: str  # the oldest month that is not closed
    closes_at: Ms | None  # when that month will be closed; None: it is being closed
    closed: Statement | None = None  # the month before
    billing: Map[str, BillingTerms] = Map()  # terms of invoices by month, also of months to come
    # month → limit at its end, where it changed, from the one that binds `period` on
    soft_gpu_ms: Map[str, GpuMs] = Map()
    price_versions: Map[str, str] = Map()  # month → price book at its end, in the same way
    issued: Map[str, Map[str, IssuedInvoice]] = Map()  # month → currency → invoice
    # invoices, credit_notes: how many were issued
    invoices: int = 0
    credit_notes: int = 0
    prepaid: Map[str, PrepaidBalance] = Map()  # prepaid credits by reference
    batches: Map[str, OpenBatch] = Map()  # open batches by id
    imports: tuple[str, ...] = ()  # ids of open imports
    erasure: Erasure | None = None  # None: the tenant is not erased


class Accounts(Struct, frozen=True, kw_only=True):
    """State of one partition."""

    tenants: Map[str, AccountState] = Map()  # accounts by tenant
    books: Map[str, PriceBook] = Map()  # price books of all tenants, by version
    withdrawn: Map[str, int] = Map()  # number of the last withdrawn key, by node id


INITIAL: Final = Accounts()
