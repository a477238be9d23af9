"""Charges on invoices besides usage: adjustments, contract terms, rounding, taxes, credit notes.

With the charges of use they add up to an invoice's total, once rounded to what can be paid: a
charge of use has twelve places, and each job's line on the invoice six.

Use is exported at its list price when it is on the log, before a month's tiers and discounts are
known. What these take off, and what overage adds, is a charge without a list cost: so a month's
list costs are list prices times quantities, and its contracted costs are what the contract makes of
them. A minimum commitment, rounding and adjustments cost the same in both. Each tax is computed on
the sum that its column has.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from schemas.account import CreditNoteIssued, InvoiceAdjusted, InvoiceClosed
from schemas.billing import AnswerCharge, Bill, CreditNote, StorageCharge, TaxAmount
from schemas.envelope import Header
from schemas.units import MICRO, Micro
from services.exporter.domain.focus import (
    CORRECTION,
    TOKENS,
    TWELFTH_DECIMAL,
    BillingContext,
    ExportedCharge,
    make_charge,
    time_of,
)
from tunery.billing.answers import answer_parts
from tunery.billing.periods import Period, period, period_of
from tunery.billing.storage import gb_months

PPM_OF_PERCENT: Final = 10_000
GB_MONTHS: Final = "GB-Months"
MILLION: Final = 1_000_000


def charges_of_account(header: Header, event: Any, provider: str) -> Iterator[ExportedCharge]:
    """The charges of an event of `account`; most have none."""
    match event:
        case InvoiceAdjusted(adjustment=adjustment):
            month = period(event.period)
            context = _context(header, month, adjustment.currency, provider)
            words = f"{adjustment.reason}, {adjustment.reference}"
            yield _charge(header, context, "Adjustment", words, adjustment.amount_micro)
        case InvoiceClosed(statement=statement):
            month = period(statement.period)
            for bill in statement.bills:
                context = _context(header, month, bill.currency, provider)
                yield from _charges_of_bill(header, context, bill)
        case CreditNoteIssued():
            yield from _charges_of_note(header, event.note, period(event.period), provider)
        case _:
            pass


def _charges_of_bill(
    header: Header, context: BillingContext, bill: Bill
) -> Iterator[ExportedCharge]:
    """Yield the charges that are known when the month is closed. `InvoiceId` stays the invoice's id
    in the API.
    """
    for kept in (*bill.storage_charges, bill.storage):
        if kept is not None:
            yield _charge_of_storage(header, context, kept)
    for answered in (*bill.answer_charges, bill.answers):
        if answered is not None:
            yield from _charges_of_answers(header, context, answered)
    agreed_micro = bill.contract_micro - bill.commitment_micro
    for words, amount in (("volume tiers", bill.volume_micro), ("contract terms", agreed_micro)):
        if amount:
            yield _charge(header, context, "Adjustment", words, amount, {"ListCost": Decimal()})
    if bill.commitment_micro:
        words = "up to the month's minimum"
        yield _charge(header, context, "Adjustment", words, bill.commitment_micro)
    if rounding := bill.net_micro - bill.amount_micro:
        yield _charge(header, context, "Adjustment", "rounding to what can be paid", rounding)
    for tax in bill.taxes:
        list_micro = bill.net_micro - bill.volume_micro - agreed_micro
        list_tax = Decimal(list_micro * tax.rate.rate_ppm) / (MICRO * MILLION)
        if list_micro == bill.net_micro:  # rounded as it is billed
            list_tax = Decimal(tax.amount_micro) / MICRO
        own = {"ListCost": list_tax.quantize(TWELFTH_DECIMAL)}
        yield _charge(header, context, "Tax", _tax_words(tax), tax.amount_micro, own)


def _charge_of_storage(
    header: Header, context: BillingContext, charge: StorageCharge
) -> ExportedCharge:
    """A month of files, models and what sessions saved, by the gigabyte."""
    quantity = gb_months(charge, context.month)
    own = {
        "ChargeFrequency": "Usage-Based",
        "ConsumedQuantity": quantity,
        "ConsumedUnit": GB_MONTHS,
        **dict.fromkeys(
            ("ContractedUnitPrice", "ListUnitPrice"), Decimal(charge.micro_per_gb_month) / MICRO
        ),
        "PricingQuantity": quantity,
        "PricingCategory": "Standard",
        "PricingUnit": GB_MONTHS,
        "ResourceId": context.tenant,
        "ResourceType": "Files and models",
        "SkuId": "storage",
        "SkuMeter": "Storage",
        "SkuPriceId": f"{charge.price_version}/storage",
    }
    return _charge(header, context, "Usage", "files, models and sessions", charge.amount_micro, own)


def _charges_of_answers(
    header: Header, context: BillingContext, charge: AnswerCharge
) -> Iterator[ExportedCharge]:
    """A month of answers: tokens that were read, read from memory, and written."""
    for part in answer_parts(charge):
        own = {
            "ChargeFrequency": "Usage-Based",
            "ConsumedQuantity": Decimal(part.tokens),
            "ConsumedUnit": TOKENS,
            **dict.fromkeys(
                ("ContractedUnitPrice", "ListUnitPrice"),
                Decimal(part.micro_per_million) / MICRO / MILLION,
            ),
            "PricingQuantity": Decimal(part.tokens),
            "PricingCategory": "Standard",
            "PricingUnit": TOKENS,
            "ResourceId": context.tenant,
            "ResourceType": "Models",
            "SkuId": f"answers/{part.name}",
            "SkuMeter": "Tokens",
            "SkuPriceId": f"{charge.price_version}/answers/{part.name}",
        }
        yield _charge(header, context, "Usage", f"answers: {part.name}", part.amount_micro, own)


def _charges_of_note(
    header: Header, note: CreditNote, of: Period, provider: str
) -> Iterator[ExportedCharge]:
    """In the month in which it was issued, under its own number; the use was in another."""
    context = _context(header, period_of(note.issued_at), note.adjustment.currency, provider)
    own = {"ChargeClass": CORRECTION, "InvoiceId": note.number, **_charge_period(of)}
    words = f"credit note for {note.invoice}: {note.adjustment.reason}, {note.adjustment.reference}"
    yield _charge(header, context, "Credit", words, note.net_micro, own)
    for tax in note.taxes:
        text = f"{_tax_words(tax)} of a credit note for {note.invoice}"
        yield _charge(header, context, "Tax", text, tax.amount_micro, own)


def _context(header: Header, month: Period, currency: str, provider: str) -> BillingContext:
    return BillingContext(tenant=header.key, month=month, currency=currency, provider=provider)


def _charge(
    header: Header,
    context: BillingContext,
    category: str,
    description: str,
    amount_micro: Micro,
    other: dict[str, Any] | None = None,
) -> ExportedCharge:
    values = {
        "ChargeCategory": category,
        "ChargeDescription": description,
        "ChargeFrequency": "One-Time",
        **_charge_period(context.month),
        **(other or {}),
    }
    cost = (Decimal(amount_micro) / MICRO).quantize(TWELFTH_DECIMAL)
    return make_charge(header, context, cost, values)


def _charge_period(month: Period) -> dict[str, Any]:
    return {
        "ChargePeriodStart": time_of(month.first_hour),
        "ChargePeriodEnd": time_of(month.end_hour),
    }


def _tax_words(tax: TaxAmount) -> str:
    return f"{tax.rate.name} {Decimal(tax.rate.rate_ppm) / PPM_OF_PERCENT:f} %"
