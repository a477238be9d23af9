"""Bills over time: when a month is closed, and what operators add to one or give back."""

from typing import assert_never

from msgspec.structs import replace

from schemas import errors
from schemas.account import (
    AdjustInvoice,
    CloseInvoice,
    CreditNoteIssued,
    Event,
    InvoiceAdjusted,
    InvoiceClosed,
    PeriodEnded,
)
from schemas.billing import Bill, BillingTerms, CreditNote, InvoiceAdjustment
from schemas.envelope import Context, Rejected, Tick, reject
from schemas.reasons import refusing
from schemas.units import AMOUNT_MICRO_MAX, DAY_MS, Micro, Ms
from services.billing.domain import prepaid
from services.billing.domain.state import ADJUSTMENTS_MAX, AccountState, IssuedInvoice
from tunery.billing.currency import is_currency, round_to_minor
from tunery.billing.invoice import tax_amounts
from tunery.billing.periods import in_force, period, period_of


def deadline_of(tenant: AccountState) -> Ms | None:
    """The next moment at which a month of the tenant is to be closed, or its plan changes."""
    scheduled = None if tenant.scheduled is None else tenant.scheduled.effective_at
    moments = (moment for moment in (tenant.closes_at, scheduled) if moment is not None)
    return min(moments, default=None)


def decide(
    tenant: AccountState,
    command: AdjustInvoice | CloseInvoice | Tick,
    ctx: Context,
) -> tuple[Event, ...]:
    """Decide a command that concerns a month and its bill."""
    match command:
        case AdjustInvoice():
            return _adjust(tenant, command, ctx)
        case CloseInvoice():
            return _close(tenant, command, ctx)
        case Tick():
            return _tick(tenant, ctx)
        case _:
            assert_never(command)


def _tick(tenant: AccountState, ctx: Context) -> tuple[Event, ...]:
    if tenant.closes_at is None or ctx.at < tenant.closes_at:
        return ()
    month, terms = tenant.period, tenant.terms
    ended = PeriodEnded(
        period=month,
        soft_gpu_ms=in_force(tenant.soft_gpu_ms, month, terms.limits.soft_gpu_ms),
        before=tenant.closed,
        terms=in_force(tenant.billing, month, BillingTerms()),
        price_version=in_force(tenant.price_versions, month, terms.price_version),
    )
    return (ended,)


def _close(tenant: AccountState, command: CloseInvoice, ctx: Context) -> tuple[Event, ...]:
    """Close a month; the first outcome counts. Bills get numbers and prepaid amounts."""
    statement = command.statement
    if tenant.closes_at is not None or statement.period != tenant.period:
        return ()
    due_at = ctx.at + (statement.terms or BillingTerms()).due_days * DAY_MS
    bills = tuple(
        prepaid.pay_bill(
            _numbered(bill, f"{ctx.key}-{tenant.invoices + count:04}", ctx.at, due_at),
            tenant.prepaid,
            statement.period,
        )
        for count, bill in enumerate(statement.bills, 1)
    )
    following = prepaid.follow_closing(bills, tenant.prepaid, statement.period)
    return (InvoiceClosed(statement=replace(statement, bills=bills)), *following)


def _numbered(bill: Bill, number: str, issued_at: Ms, due_at: Ms) -> Bill:
    return replace(bill, number=number, issued_at=issued_at, due_at=due_at)


def _adjust(tenant: AccountState, command: AdjustInvoice, ctx: Context) -> tuple[Event, ...]:
    """Adjust a month: on its bill until that is being closed, by a credit note afterwards."""
    adjustment, current = command.adjustment, period_of(ctx.at).name
    if wrong := _wrong_adjustment(tenant, adjustment):
        return wrong
    month = current if command.period is None else command.period
    try:
        period(month)
    except ValueError:
        return reject(errors.MALFORMED, refusing("month_malformed"), "period")
    if month > current:
        return reject(errors.MALFORMED, refusing("month_not_begun", period=month), "period")
    counted = current if month < tenant.period else month
    if tenant.adjusted.get(counted, 0) >= ADJUSTMENTS_MAX:
        return reject(errors.ILLEGAL_STATE, refusing("adjustments_at_most", limit=ADJUSTMENTS_MAX))
    if month < tenant.period:
        return _credit(tenant, adjustment, month, ctx)
    if month == tenant.period and tenant.closes_at is None and month != current:
        return reject(errors.ILLEGAL_STATE, refusing("month_being_closed", period=month))
    return (InvoiceAdjusted(period=month, adjustment=adjustment),)


def _wrong_adjustment(tenant: AccountState, adjustment: InvoiceAdjustment) -> tuple[Rejected, ...]:
    if (known := tenant.adjustments.get(adjustment.reference)) is not None:
        exists = refusing("adjustment_exists", reference=adjustment.reference, period=known)
        return reject(errors.ALREADY_EXISTS, exists, "reference")
    if not 0 < abs(adjustment.amount_micro) <= AMOUNT_MICRO_MAX:
        wrong = refusing("amount_out_of_range", limit=AMOUNT_MICRO_MAX)
        return reject(errors.MALFORMED, wrong, "amount_micro")
    if not is_currency(adjustment.currency):
        return reject(errors.MALFORMED, refusing("currency_malformed"), "currency")
    return ()


def _credit(
    tenant: AccountState, adjustment: InvoiceAdjustment, month: str, ctx: Context
) -> tuple[Event, ...]:
    """A credit note: it never gives back more than the invoice has."""
    of_month = tenant.issued.get(month)
    invoice = None if of_month is None else of_month.get(adjustment.currency)
    if invoice is None:
        missing = refusing("invoice_missing", period=month, currency=adjustment.currency)
        return reject(errors.NOT_FOUND, missing, "period")
    net = round_to_minor(adjustment.amount_micro, adjustment.currency)
    left = invoice.net_micro - invoice.credited_micro
    if not 0 < -net <= left:
        wrong = refusing("credit_out_of_range", number=invoice.number, left_micro=max(left, 0))
        return reject(errors.MALFORMED, wrong, "amount_micro")
    return (
        CreditNoteIssued(period=month, note=_credit_note(tenant, adjustment, invoice, net, ctx)),
    )


def _credit_note(
    tenant: AccountState,
    adjustment: InvoiceAdjustment,
    invoice: IssuedInvoice,
    net: Micro,
    ctx: Context,
) -> CreditNote:
    # the taxes of all credit notes together are those of what they give back: rounded once
    before = -invoice.credited_micro
    earlier = tax_amounts(before, invoice.rates, adjustment.currency)
    together = tax_amounts(before + net, invoice.rates, adjustment.currency)
    taxes = tuple(
        replace(tax, amount_micro=tax.amount_micro - less.amount_micro)
        for tax, less in zip(together, earlier, strict=True)
    )
    return CreditNote(
        number=f"{ctx.key}-C{tenant.credit_notes + 1:04}",
        invoice=invoice.number,
        adjustment=adjustment,
        net_micro=net,
        taxes=taxes,
        total_micro=net + sum(tax.amount_micro for tax in taxes),
        issued_at=ctx.at,
    )
