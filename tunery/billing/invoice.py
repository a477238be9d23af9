"""Invoices of a month, one for each currency: pure functions of usage, prices and terms.

Lines, storage, answers, what volume tiers and contract terms add, and adjustments are exact to the
millionth, and their sum is right to the unit by construction. What is paid is rounded once to the
currency's minor unit, and each tax once.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final, Literal, TypeAlias

from msgspec import Struct

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
from schemas.units import MICRO, PPM, GpuMs, Micro, Ms, divide_half_even
from tunery.billing.answers import AnswersOfMonth, answer_charge
from tunery.billing.contract import UseOfMonth, contract_lines
from tunery.billing.currency import minor_unit_micro, round_to_minor
from tunery.billing.lines import BilledUsage, Line, bill_lines
from tunery.billing.periods import Period
from tunery.billing.storage import StorageUse, storage_charge
from tunery.billing.volume import MonthLine, volume_lines

# 28 digits are enough for any sum of GPU-milliseconds times any price; 60 leave no doubt
EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)
Status: TypeAlias = Literal["draft", "open", "closed", "corrected"]


class Altered(Exception):
    """The bill of a closed month is not what it was: the ledger or a price book was changed."""


class BilledMonth(Struct, frozen=True, kw_only=True):
    """What a month's invoices are made of besides usage and prices.

    soft_gpu_ms: GPU time above it is marked as overage, None: nothing is.
    currency: of the tenant's prices: of the invoice on which there is nothing.
    adjustments, notes: of the month.
    ended: whether the month is over, and is being closed.
    storage, answers: what the tenant kept in it, and what its models answered.
    statement: how it was closed, None: it is not; limit and terms are those of then.
    """

    tenant: str
    month: Period
    soft_gpu_ms: GpuMs | None
    currency: str
    terms: BillingTerms = BillingTerms()
    seller: str = ""
    adjustments: tuple[InvoiceAdjustment, ...] = ()
    notes: tuple[CreditNote, ...] = ()
    ended: bool = False
    storage: StorageUse = StorageUse()
    answers: AnswersOfMonth = AnswersOfMonth()
    statement: Statement | None = None


class Invoice(Struct, frozen=True, kw_only=True):
    """One month in one currency.

    status: `draft`: the month runs; `open`: it is over and being closed; `closed`: it never
      changes; `corrected`: it has credit notes.
    number, issued_at, due_at: None until it is closed.
    storage, answers: what the tenant kept, and what its models answered, on the invoice in the
      currency of their price.
    volume: what volume tiers take off the lines.
    amount_micro: exact sum of the amounts of lines, storage, answers, volume and contract lines,
      and adjustments; `gpu_ms`: that of times.
    rounding_micro: what makes it whole minor units.
    net_micro: `amount_micro` with the rounding.
    total_micro: `net_micro` with all taxes.
    prepaid: what of the total was paid in advance; decided when the month is closed.
    carried_micro: a total below zero that became a prepaid credit, as a positive amount.
    due_micro: what is to be paid: `total_micro` less `prepaid`, with `carried_micro`.
    """

    tenant: str
    period: str
    currency: str
    status: Status
    number: str | None
    issued_at: Ms | None
    due_at: Ms | None
    seller: str
    buyer: Sealed | None
    lines: tuple[Line, ...]
    storage: StorageCharge | None
    answers: AnswerCharge | None
    volume: tuple[MonthLine, ...]
    contract: tuple[MonthLine, ...]
    adjustments: tuple[InvoiceAdjustment, ...]
    taxes: tuple[TaxAmount, ...]
    notes: tuple[CreditNote, ...]
    used_gpu_ms: GpuMs
    gpu_ms: GpuMs
    credited_gpu_ms: GpuMs
    overage_gpu_ms: GpuMs
    credited_micro: Micro
    amount_micro: Micro
    rounding_micro: Micro
    net_micro: Micro
    total_micro: Micro
    prepaid: tuple[PrepaidUse, ...]
    carried_micro: Micro
    due_micro: Micro


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
    storage = storage_charge(billed.storage, billed.month, books)
    others = {line.currency for line in lines} | {entry.currency for entry in billed.adjustments}
    answers = answer_charge(billed.answers, books)
    for charge in (storage, answers):
        if charge is not None:
            others.add(books[charge.price_version].currency)
    if closed is not None:
        others |= {bill.currency for bill in closed.bills}
    by_currency = {
        code: _invoice(billed, usage, books, lines, code, is_own=code == own)
        for code in (own, *sorted(others - {own}))
    }
    if len(by_currency) > 1 and not is_billable(by_currency[own]):
        del by_currency[own]
    return tuple(by_currency.values())


def is_billable(invoice: Invoice) -> bool:
    """Whether anything is on it: an invoice without lines of any kind is not issued."""
    charges = (invoice.storage, invoice.answers)
    return bool(invoice.lines or any(charges) or invoice.contract or invoice.adjustments)


def close_invoice(invoice: Invoice) -> Bill:
    """What is kept of an invoice when its month is closed; it gets its number from billing."""
    return Bill(
        currency=invoice.currency,
        gpu_ms=invoice.gpu_ms,
        amount_micro=invoice.amount_micro,
        net_micro=invoice.net_micro,
        taxes=invoice.taxes,
        total_micro=invoice.total_micro,
        seller=invoice.seller,
        contract_micro=sum(line.amount_micro for line in invoice.contract),
        volume_micro=sum(line.amount_micro for line in invoice.volume),
        storage=invoice.storage,
        answers=invoice.answers,
    )


def _invoice(
    billed: BilledMonth,
    usage: BilledUsage,
    books: Mapping[str, PriceBook],
    all_lines: Iterable[Line],
    currency: str,
    *,
    is_own: bool,
) -> Invoice:
    closed = billed.statement
    bill = _closed_bill(closed, currency)
    terms = (billed.terms if closed is None else closed.terms) or BillingTerms()
    lines = tuple(line for line in all_lines if line.currency == currency)
    credited = [line for line in lines if line.kind == "credit"]
    added = [entry for entry in billed.adjustments if entry.currency == currency]
    notes = tuple(note for note in billed.notes if note.adjustment.currency == currency)
    volume = volume_lines(lines, usage, books)
    storage = storage_charge(billed.storage, billed.month, books)
    if storage is not None and books[storage.price_version].currency != currency:
        storage = None
    answers = answer_charge(billed.answers, books)
    if answers is not None and books[answers.price_version].currency != currency:
        answers = None
    charged_micro = sum(charge.amount_micro for charge in (storage, answers) if charge is not None)
    used = UseOfMonth(lines, volume, charged_micro)
    contract = contract_lines(terms, used, billed.month, currency, is_own=is_own)
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


def decimal_amount(micro: Micro) -> Decimal:
    """Currency units, six places: for people and for files."""
    return (Decimal(micro) / MICRO).quantize(Decimal("0.000001"), context=EXACT)
