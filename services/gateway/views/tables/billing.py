"""Read models of bills: months, storage, tokens, adjustments, notes, terms, prepaid credits."""

from typing import Final

from schemas.account import PeriodEnded
from schemas.billing import BillingTerms, CreditNote, InvoiceAdjustment, PrepaidCredit, Statement
from schemas.units import Micro, Ms, Tokens
from services.gateway.views.table import Table, TableIndex, TableRow


class MonthRow(TableRow):
    """A month that is over; `id` is its name."""

    tenant: str
    ended: PeriodEnded
    statement: Statement | None = None  # the month as it was closed


class AdjustmentRow(TableRow):
    """A credit or a charge on a month's bill; `id` is its reference."""

    tenant: str
    period: str
    at: Ms
    adjustment: InvoiceAdjustment


class CreditNoteRow(TableRow):
    """A credit note for a closed month; `id` is its number."""

    tenant: str
    period: str
    note: CreditNote


class BillingTermsRow(TableRow):
    """Invoice texts and contract terms of a tenant from a month on; `id` is the month."""

    tenant: str
    terms: BillingTerms


class StoredRow(TableRow):
    """A file or a model that a tenant keeps or has kept; `id` is its own."""

    tenant: str
    bytes: int
    since: Ms
    until: Ms


class HeldBookRow(TableRow):
    """From when on a tenant has a price book; `id` is that moment."""

    tenant: str
    since: Ms
    price_version: str


class AnswerUseRow(TableRow):
    """Usage of one model by one key in a few seconds; `id` is its event's position in the log."""

    tenant: str
    hour_utc: int
    key_id: str
    model: str
    requests: int
    prompt_tokens: Tokens
    cached_tokens: Tokens
    completion_tokens: Tokens
    engine_ms: Ms
    price_version: str


class SessionUseRow(TableRow):
    """One answered command of a session; `id` is its event's position in the log."""

    tenant: str
    session_id: str
    hour_utc: int  # when it was answered
    price_version: str
    # kinds of `SessionTokens`
    train_tokens: Tokens
    prefill_tokens: Tokens
    sample_tokens: Tokens


class PrepaidRow(TableRow):
    """A prepaid credit; `id` is its reference. What is not left, expired or revoked was used."""

    tenant: str
    at: Ms
    credit: PrepaidCredit
    first_month: str
    left_micro: Micro
    expired_micro: Micro | None = None
    revoked_micro: Micro | None = None


STORED: Final = Table(
    "stored",
    StoredRow,
    key=("tenant", "id"),
    order="id",
    indexes=(TableIndex(("tenant", "until")),),
)
HELD_BOOKS: Final = Table("held_books", HeldBookRow, key=("tenant", "id"), order="id")
ANSWER_USES: Final = Table(
    "answer_uses",
    AnswerUseRow,
    key=("tenant", "id"),
    order="id",
    indexes=(TableIndex(("tenant", "hour_utc")),),
)
SESSION_USES: Final = Table(
    "session_uses",
    SessionUseRow,
    key=("tenant", "id"),
    order="id",
    indexes=(TableIndex(("tenant", "hour_utc")),),
)
MONTHS: Final = Table("months", MonthRow, key=("tenant", "id"), order="id")
ADJUSTMENTS: Final = Table("adjustments", AdjustmentRow, key=("tenant", "period", "id"), order="id")
CREDIT_NOTES: Final = Table("credit_notes", CreditNoteRow, key=("tenant", "id"), order="id")
PREPAID: Final = Table("prepaid", PrepaidRow, key=("tenant", "id"), order="at")
BILLING_TERMS: Final = Table("billing_terms", BillingTermsRow, key=("tenant", "id"), order="id")
