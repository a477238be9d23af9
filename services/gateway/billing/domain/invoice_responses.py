"""Invoices and their lines."""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from schemas.billing import TaxAmount
from schemas.ids import derived_id
from schemas.session import TOKEN_KINDS, SessionTokens
from schemas.units import HOUR_MS
from services.gateway.web.domain.responses import (
    Items,
    ListItem,
    Response,
    Seconds,
    TextOrNone,
    Unseal,
    fields_of,
    with_fields,
)
from tunery.billing.answers import answer_parts, answer_words
from tunery.billing.currency import percent
from tunery.billing.invoice import Invoice, Status
from tunery.billing.lines import Line
from tunery.billing.sessions import SessionUse, session_words, sum_tokens
from tunery.billing.storage import storage_words
from tunery.plan.refunds import applied_rules

LineKind: TypeAlias = Literal[
    "usage",
    "credit",
    "session",
    "storage",
    "answers",
    "volume",
    "discount",
    "overage",
    "commitment",
    "adjustment",
    "rounding",
    "tax",
]
LINE_PREFIX = "line_"


class TaxResponse(Response):
    """A tax on an invoice. `rate_ppm`: millionths of the net amount."""

    name: str
    rate_ppm: int
    amount_micro: int


class CreditNoteResponse(Response):
    object: Literal["invoice.credit_note"] = "invoice.credit_note"
    number: str
    issued_at: Seconds
    reference: str
    reason: str
    net_micro: int
    taxes: list[TaxResponse]
    total_micro: int


class PrepaidUseResponse(Response):
    """Amount that a prepaid credit pays of an invoice, and its balance after that."""

    reference: str
    amount_micro: int
    left_micro: int


class RefundRuleResponse(Response):
    """Why lines with this `cause` are credited, and how much."""

    cause: str
    meaning: str
    given_back: str


@with_fields(**fields_of(SessionTokens))
class InvoiceResponse(ListItem):
    """One month in one currency; amounts in millionths of it.

    `status`: draft (the month runs), open (it is being closed), closed (it never changes) or
    corrected (it has credit notes). `number` and dates are null until it is closed.
    `amount_micro` is the exact sum of use, storage, answers, what volume tiers take off, what
    contract terms add, and adjustments; with `rounding_micro` it is `net_micro`; with the taxes,
    `total_micro`.
    `refund_rules` are those of its credited lines. `due_micro` is what is to be paid: the total
    less `prepaid`; a total below zero is carried forward as a prepaid credit, `carried_micro`. Both
    are known once it is closed.
    `train_tokens`, `prefill_tokens` and `sample_tokens` are those of all sessions; what is billed
    of a session is its time.
    """

    id: str
    object: Literal["invoice"] = "invoice"
    number: str | None
    period: str
    currency: str
    status: Status
    issued_at: Seconds | None
    due_at: Seconds | None
    seller: TextOrNone
    buyer: str
    gpu_ms: int
    used_gpu_ms: int
    credited_gpu_ms: int
    overage_gpu_ms: int
    amount_micro: int
    rounding_micro: int
    net_micro: int
    taxes: list[TaxResponse]
    total_micro: int
    prepaid: Items[PrepaidUseResponse]
    carried_micro: int
    due_micro: int
    credit_notes: list[CreditNoteResponse]
    refund_rules: Items[RefundRuleResponse]


@with_fields(**dict.fromkeys(TOKEN_KINDS, (int, 0)))
class InvoiceLineResponse(ListItem):
    """Use or a credit of one job in one hour, of GPU time or of trained tokens; tokens of one
    session in the month by kind, whose amount is 0, as its time is billed; what contract terms
    add to the whole month (discount, overage, commitment), what volume tiers take off it, what the
    tenant kept in storage, tokens that its models read or wrote, an adjustment, the rounding, or a
    tax.

    The amounts of all lines add up to the invoice's `total_micro`.
    """

    id: str
    object: Literal["invoice.line"] = "invoice.line"
    kind: LineKind
    description: str
    amount_micro: int
    currency: str
    job_id: str | None = None
    hour_start: int | None = None
    lane: str | None = None
    price_version: str | None = None
    gpu_hour_micro: int | None = None
    used_gpu_ms: int = 0
    gpu_ms: int = 0
    overage_gpu_ms: int = 0
    role: str | None = None
    device: str | None = None
    accelerator: TextOrNone = None
    spot: bool | None = None
    cause: TextOrNone = None
    tokens: int = 0
    token_micro_per_million: int | None = None


def invoice_id(period: str, currency: str) -> str:
    """Return the id of an invoice or draft; `number` is assigned when the month is closed."""
    return f"{period}-{currency}"


def invoice_response(invoice: Invoice, unseal: Unseal) -> InvoiceResponse:
    """An invoice without its lines. `buyer` is the tenant's id where nothing else is known."""
    return InvoiceResponse.of(
        invoice,
        sum_tokens(use.tokens for use in invoice.sessions),
        id=invoice_id(invoice.period, invoice.currency),
        buyer=unseal(invoice.buyer, "buyer") or invoice.tenant,
        taxes=_taxes(invoice.taxes),
        credit_notes=[
            CreditNoteResponse.of(note, note.adjustment, taxes=_taxes(note.taxes))
            for note in invoice.notes
        ],
        refund_rules=list(applied_rules(line.cause for line in invoice.lines)),
    )


def _taxes(taxes: Iterable[TaxAmount]) -> list[TaxResponse]:
    return [TaxResponse.of(tax, tax.rate) for tax in taxes]


def line_responses(invoice: Invoice) -> Iterator[InvoiceLineResponse]:
    """All lines in the order of the bill: use, sessions, what is of the whole month, adjustments,
    rounding, taxes.
    """
    yield from (_usage_line(invoice, line) for line in invoice.lines)
    yield from (_session_line(invoice, use) for use in invoice.sessions)
    for kept in invoice.storage:
        words = f"{storage_words(kept)}, {invoice.period}"
        yield _other_line(invoice, "storage", kept.price_version, words, kept.amount_micro)
    for charge in invoice.answers:
        for part in answer_parts(charge):
            words, name = answer_words(part), f"{charge.price_version}/{part.name}"
            words = f"{words}, {invoice.period}"
            yield _other_line(invoice, "answers", name, words, part.amount_micro)
    for added in (*invoice.volume, *invoice.contract):
        words, amount = added.description, added.amount_micro
        yield _other_line(invoice, added.kind, added.reference, words, amount)
    for entry in invoice.adjustments:
        words = f"{entry.reason}, {entry.reference}"
        yield _other_line(invoice, "adjustment", entry.reference, words, entry.amount_micro)
    if invoice.rounding_micro:
        words = "to what can be paid"
        yield _other_line(invoice, "rounding", "", words, invoice.rounding_micro)
    for number, tax in enumerate(invoice.taxes):
        words = f"{tax.rate.name} {percent(tax.rate.rate_ppm)}"
        yield _other_line(invoice, "tax", str(number), words, tax.amount_micro)


def _usage_line(invoice: Invoice, line: Line) -> InvoiceLineResponse:
    names = (line.job_id, str(line.hour_utc), line.kind, line.lane, line.price_version)
    is_time = line.meter == "time"
    return InvoiceLineResponse.of(
        line,
        id=LINE_PREFIX + derived_id(invoice.period, *names, line.description),
        hour_start=line.hour_utc * HOUR_MS // 1_000,
        gpu_hour_micro=line.gpu_hour_micro if is_time else None,
        token_micro_per_million=None if is_time else line.token_micro_per_million,
    )


def _session_line(invoice: Invoice, use: SessionUse) -> InvoiceLineResponse:
    return InvoiceLineResponse.of(
        use.tokens,
        id=LINE_PREFIX + derived_id(invoice.period, "session", use.session_id, use.price_version),
        kind="session",
        description=f"{session_words(use.tokens)}, {invoice.period}",
        amount_micro=0,
        currency=invoice.currency,
        job_id=use.session_id,
        price_version=use.price_version,
    )


def _other_line(
    invoice: Invoice, kind: LineKind, name: str, description: str, amount_micro: int
) -> InvoiceLineResponse:
    return InvoiceLineResponse(
        id=LINE_PREFIX + derived_id(invoice.period, invoice.currency, kind, name),
        kind=kind,
        description=description,
        amount_micro=amount_micro,
        currency=invoice.currency,
    )
