"""Invoices of a month, one for each currency: pure functions of usage, prices and terms.

Lines, storage, answers, what volume tiers and contract terms add, and adjustments are exact to the
millionth, and their sum is right to the unit by construction. What is paid is rounded once to the
currency's minor unit, and each tax once.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from schemas.account import PeriodEnded
from schemas.billing import (
    AnswerCharge,
    Bill,
    BillingTerms,
    CreditNote,
    InvoiceAdjustment,
    PrepaidUse,
    PriceBook,
    Statement,
    StorageCharge,
    TaxAmount,
    TaxRate,
)
from schemas.sealed import Sealed
from schemas.units import PPM, GpuMs, Micro, Ms, divide_half_even
from tunery.billing.answers import AnswersOfMonth, answer_charges
from tunery.billing.contract import UseOfMonth, committed_currency, contract_lines
from tunery.billing.currency import minor_unit_micro, round_to_minor
from tunery.billing.lines import BilledUsage, Line, bill_lines
from tunery.billing.overage import Limit, limit_of, overage_lines
from tunery.billing.periods import BillShare, Period
from tunery.billing.sessions import SessionUse
from tunery.billing.storage import StorageUse, storage_charges
from tunery.billing.volume import MonthLine, volume_lines

# 28 digits are enough for any sum of GPU-milliseconds times any price; 60 leave no doubt
Status: TypeAlias = Literal["draft", "open", "closed", "corrected"]


class Altered(Exception):
    """The bill of a closed month has changed, because the ledger or a price book did."""


class BilledMonth(Struct, frozen=True, kw_only=True):
    """Inputs of a month's invoices other than usage and prices."""

    tenant: str
    month: Period
    soft_gpu_ms: GpuMs | None  # GPU time above it is marked as overage; None: no limit
    currency: str  # the currency of the tenant's prices, used for an invoice without charges
    terms: BillingTerms = BillingTerms()
    seller: str = ""
    # adjustments, notes: adjustments and credit notes of the month
    adjustments: tuple[InvoiceAdjustment, ...] = ()
    notes: tuple[CreditNote, ...] = ()
    ended: bool = False  # whether the month is over and is being closed
    # storage, answers: stored bytes and model answers of the month, by the price book in force
    storage: tuple[StorageUse, ...] = ()
    answers: tuple[AnswersOfMonth, ...] = ()
    # tokens of sessions in the month. They cost nothing, so a bill is closed without them.
    sessions: tuple[SessionUse, ...] = ()
    # statements of earlier months, by name; late usage is billed by their terms
    closed: Mapping[str, Statement] = {}
    # the month's own statement, whose limit and terms then apply; None: not closed
    statement: Statement | None = None

    @property
    def own_terms(self) -> BillingTerms:
        """The month's terms: those that it was closed by, or will be."""
        return (self.terms if self.statement is None else self.statement.terms) or BillingTerms()

    @property
    def terms_of(self) -> Mapping[str, BillingTerms]:
        earlier = {name: entry.terms or BillingTerms() for name, entry in self.closed.items()}
        return {**earlier, self.month.name: self.own_terms}

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Soft limit and price of overage, of the same months."""
        own = self if self.statement is None else self.statement
        months = {**self.closed, self.month.name: own}
        return {name: limit_of(entry.soft_gpu_ms, entry.terms) for name, entry in months.items()}


class Invoice(Struct, frozen=True, kw_only=True):
    """One month in one currency."""

    tenant: str
    period: str
    currency: str
    # `draft`: the month runs; `open`: it is over and being closed; `closed`: it never changes;
    # `corrected`: it has credit notes
    status: Status
    # number, issued_at, due_at: None until it is closed
    number: str | None
    issued_at: Ms | None
    due_at: Ms | None
    seller: str
    buyer: Sealed | None
    lines: tuple[Line, ...]
    # storage, answers: what the tenant kept, and what its models answered, one charge for each
    # price book of this currency
    storage: tuple[StorageCharge, ...]
    answers: tuple[AnswerCharge, ...]
    sessions: tuple[SessionUse, ...]  # tokens of sessions whose price book is of this currency
    volume: tuple[MonthLine, ...]  # what volume tiers take off the lines
    contract: tuple[MonthLine, ...]
    adjustments: tuple[InvoiceAdjustment, ...]
    taxes: tuple[TaxAmount, ...]
    notes: tuple[CreditNote, ...]
    used_gpu_ms: GpuMs
    gpu_ms: GpuMs  # exact sum of the times of lines
    credited_gpu_ms: GpuMs
    overage_gpu_ms: GpuMs
    credited_micro: Micro
    # exact sum of the amounts of lines, storage, answers, volume and contract lines, and
    # adjustments
    amount_micro: Micro
    rounding_micro: Micro  # what makes it whole minor units
    net_micro: Micro  # `amount_micro` with the rounding
    total_micro: Micro  # `net_micro` with all taxes
    # what of the total was paid in advance; decided when the month is closed
    prepaid: tuple[PrepaidUse, ...]
    carried_micro: Micro  # a total below zero that became a prepaid credit, as a positive amount
    due_micro: Micro  # what is to be paid: `total_micro` less `prepaid`, with `carried_micro`


def make_invoices(
    billed: BilledMonth, usage: BilledUsage, books: Mapping[str, PriceBook]
) -> tuple[Invoice, ...]:
    """The invoices of a month, the one in the tenant's currency first.

    There is one for each currency that something is in, and at least one.
    Raises PriceMissing, Altered.
    """
    closed = billed.statement
    soft = billed.soft_gpu_ms if closed is None else closed.soft_gpu_ms
    own = billed.currency if closed is None else closed.currency
    lines = bill_lines(usage, books, soft, billed.month)
    others = {line.currency for line in lines} | {entry.currency for entry in billed.adjustments}
    for charges in _charges(billed, books):
        others |= {books[charge.price_version].currency for charge in charges}
    if closed is not None:
        others |= {bill.currency for bill in closed.bills}
    # late use may move other use of its month above the limit, at a price in another currency
    others |= {books[earlier.use.job.price_version].currency for earlier in usage.months_before}
    committed = committed_currency(billed.own_terms.commitment, billed.month)
    others |= set() if committed is None else {committed}
    by_currency = {
        code: _invoice(billed, usage, books, lines, code) for code in (own, *sorted(others - {own}))
    }
    billable = tuple(invoice for invoice in by_currency.values() if is_billable(invoice))
    return billable or (by_currency[own],)


def is_billable(invoice: Invoice) -> bool:
    """True if an invoice has any line, charge or adjustment; empty invoices are not issued."""
    charges = (*invoice.storage, *invoice.answers)
    return bool(invoice.lines or charges or invoice.contract or invoice.adjustments)


def close_invoice(invoice: Invoice) -> Bill:
    """Return the bill to record when the month is closed; billing assigns its number."""
    return Bill(
        currency=invoice.currency,
        gpu_ms=invoice.gpu_ms,
        amount_micro=invoice.amount_micro,
        net_micro=invoice.net_micro,
        taxes=invoice.taxes,
        total_micro=invoice.total_micro,
        seller=invoice.seller,
        contract_micro=sum(line.amount_micro for line in invoice.contract),
        commitment_micro=sum(
            line.amount_micro for line in invoice.contract if line.kind == "commitment"
        ),
        volume_micro=sum(line.amount_micro for line in invoice.volume),
        storage_charges=invoice.storage,
        answer_charges=invoice.answers,
    )


def statement_of(
    ended: PeriodEnded, share: BillShare, invoices: Iterable[Invoice], currency: str
) -> Statement:
    """Return what is recorded when a month is closed. currency: that of its prices."""
    invoices, cut = tuple(invoices), share.cut
    own = next((invoice for invoice in invoices if invoice.currency == currency), None)
    return Statement(
        period=share.month.name,
        cut=() if cut is None else cut.offsets,
        currency=currency,
        soft_gpu_ms=ended.soft_gpu_ms,
        gpu_ms=0 if own is None else own.gpu_ms,
        amount_micro=0 if own is None else own.amount_micro,
        incarnations=() if cut is None else cut.incarnations,
        bills=tuple(close_invoice(invoice) for invoice in invoices if is_billable(invoice)),
        terms=ended.terms,
    )


def _charges(
    billed: BilledMonth, books: Mapping[str, PriceBook]
) -> tuple[tuple[StorageCharge, ...], tuple[AnswerCharge, ...]]:
    """Return the month's charges for storage and for answers, in all currencies.

    Charges of a closed month are those on its statement.
    """
    bills = () if billed.statement is None else billed.statement.bills
    storage = tuple(bill.storage for bill in bills if bill.storage is not None)
    answers = tuple(bill.answers for bill in bills if bill.answers is not None)
    if storage or answers:  # closed by the book of the month's end, and stays as it was closed
        return storage, answers
    return (
        storage_charges(billed.storage, billed.month, books),
        answer_charges(billed.answers, books),
    )


def _invoice(
    billed: BilledMonth,
    usage: BilledUsage,
    books: Mapping[str, PriceBook],
    all_lines: Iterable[Line],
    currency: str,
) -> Invoice:
    closed = billed.statement
    bill = _closed_bill(closed, currency)
    terms = billed.own_terms
    lines = tuple(line for line in all_lines if line.currency == currency)
    credited = [line for line in lines if line.kind == "credit"]
    added = [entry for entry in billed.adjustments if entry.currency == currency]
    notes = tuple(note for note in billed.notes if note.adjustment.currency == currency)
    volume = volume_lines(lines, usage, books)
    kept, answered = _charges(billed, books)
    storage = tuple(each for each in kept if books[each.price_version].currency == currency)
    answers = tuple(each for each in answered if books[each.price_version].currency == currency)
    sessions = tuple(
        each for each in billed.sessions if books[each.price_version].currency == currency
    )
    charged_micro = sum(charge.amount_micro for charge in storage)
    charged_micro += sum(charge.amount_micro for charge in answers)
    overage = overage_lines(usage, billed.limits, books, billed.month, currency)
    used = UseOfMonth(lines, volume, overage, charged_micro)
    contract = contract_lines(billed.terms_of, used, billed.month, currency)
    amount = sum(line.amount_micro for line in lines) + sum(entry.amount_micro for entry in added)
    amount += charged_micro + sum(line.amount_micro for line in (*volume, *contract))
    net = round_to_minor(amount, currency)
    taxes = tax_amounts(net, terms.taxes, currency)
    total = net + sum(tax.amount_micro for tax in taxes)
    numbered = bill is not None and bill.number != ""
    prepaid = () if bill is None else bill.prepaid
    carried = 0 if bill is None else bill.carried_micro
    invoice = Invoice(
        tenant=billed.tenant,
        period=billed.month.name,
        currency=currency,
        status=_status(billed, notes),
        number=bill.number if bill is not None and numbered else None,
        issued_at=bill.issued_at if bill is not None and numbered else None,
        due_at=bill.due_at if bill is not None and numbered else None,
        seller=(terms.seller or billed.seller) if bill is None else bill.seller,
        buyer=terms.buyer,
        lines=lines,
        storage=storage,
        answers=answers,
        sessions=sessions,
        volume=volume,
        contract=contract,
        adjustments=tuple(sorted(added, key=lambda entry: entry.reference)),
        taxes=taxes,
        notes=notes,
        used_gpu_ms=sum(line.used_gpu_ms for line in lines),
        gpu_ms=sum(line.gpu_ms for line in lines),
        credited_gpu_ms=-sum(line.gpu_ms for line in credited),
        overage_gpu_ms=sum(line.overage_gpu_ms for line in lines),
        credited_micro=-sum(line.amount_micro for line in credited),
        amount_micro=amount,
        rounding_micro=net - amount,
        net_micro=net,
        total_micro=total,
        prepaid=prepaid,
        carried_micro=carried,
        due_micro=total - sum(use.amount_micro for use in prepaid) + carried,
    )
    if closed is not None:
        _compare(invoice, bill)
    return invoice


def _status(billed: BilledMonth, notes: tuple[CreditNote, ...]) -> Status:
    if billed.statement is None:
        return "open" if billed.ended else "draft"
    return "corrected" if notes else "closed"


def tax_amounts(net_micro: Micro, rates: Iterable[TaxRate], currency: str) -> tuple[TaxAmount, ...]:
    """Each tax on a net amount, rounded once to the minor unit."""
    unit = minor_unit_micro(currency)
    return tuple(
        TaxAmount(
            rate=rate, amount_micro=divide_half_even(net_micro * rate.rate_ppm, PPM * unit) * unit
        )
        for rate in rates
    )


def _closed_bill(closed: Statement | None, currency: str) -> Bill | None:
    """The bill in a currency as it was closed; months closed before bills were kept have one."""
    if closed is None:
        return None
    bills = {bill.currency: bill for bill in closed.bills}
    if closed.bills or closed.currency != currency:
        return bills.get(currency)
    net = round_to_minor(closed.amount_micro, currency)
    return Bill(
        currency=currency,
        gpu_ms=closed.gpu_ms,
        amount_micro=closed.amount_micro,
        net_micro=net,
        taxes=(),
        total_micro=net,
    )


def _compare(invoice: Invoice, bill: Bill | None) -> None:
    now = (invoice.gpu_ms, invoice.amount_micro, invoice.total_micro)
    then = (0, 0, 0) if bill is None else (bill.gpu_ms, bill.amount_micro, bill.total_micro)
    if now != then:
        raise Altered(
            f"{invoice.tenant}, {invoice.period} was closed with {then} (GPU-milliseconds, "
            f"millionths of {invoice.currency}, to pay) and is {now} now; "
            "look for a changed price book or ledger"
        )
