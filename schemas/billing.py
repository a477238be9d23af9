"""Nouns of a tenant's bills: terms, adjustments, closed months, credit notes."""

from typing import Literal, TypeAlias

from schemas.envelope import Part
from schemas.sealed import Sealed
from schemas.units import GpuMs, Micro, Ms, Tokens

AdjustmentReason: TypeAlias = Literal["goodwill", "correction", "contract"]


class InvoiceAdjustment(Part):
    """A credit or a charge by an operator.

    reference: the operator's own number for it; once for each tenant.
    amount_micro: below zero: a credit; above: a charge.
    currency: of the amount.
    reason: why.
    """

    reference: str
    amount_micro: Micro
    currency: str
    reason: AdjustmentReason


class TaxRate(Part):
    """A tax on a tenant's invoices.

    name: as on the invoice: "VAT".
    rate_ppm: in millionths of the net amount.
    """

    name: str
    rate_ppm: int


class TaxAmount(Part):
    """The tax of one rate on an invoice or a credit note.

    rate: the tax.
    amount_micro: in whole minor units of the currency, rounded once.
    """

    rate: TaxRate
    amount_micro: Micro


class Months(Part):
    """Calendar months (UTC) in a row.

    first: the first of them: "2026-11"; None: no beginning.
    last: the last of them; None: no end.
    """

    first: str | None = None
    last: str | None = None


class Discount(Part):
    """Less than the list price of GPU time.

    reference: the contract's name for it; once in a tenant's terms.
    rate_ppm: in millionths of the list price.
    lane: of the use; None: any.
    months: of the use.
    """

    reference: str
    rate_ppm: int
    lane: str | None = None
    months: Months = Months()


class OveragePrice(Part):
    """What GPU time above the soft limit of its month costs.

    surcharge_ppm: more than the list price, in millionths of it.
    gpu_hour_micro: instead of the list price; None: the surcharge counts.
    currency: of `gpu_hour_micro`.
    """

    surcharge_ppm: int = 0
    gpu_hour_micro: Micro | None = None
    currency: str = ""


class Commitment(Part):
    """The least that is billed for a month's use, before taxes.

    reference: the contract's name for it.
    amount_micro: for each month.
    currency: of the amount.
    months: in which it is due.
    """

    reference: str
    amount_micro: Micro
    currency: str
    months: Months = Months()


class BillingTerms(Part):
    """To whom a tenant's invoices are made out, and what is on them besides use.

    buyer: name and address as on the invoice, tax number included; None: the tenant's id.
    taxes: on the net amount, each by itself.
    due_days: from the invoice to its payment.
    seller: name and address as on the invoice; empty: that of the installation.
    discounts: on the list price of GPU time; those of the same use are added.
    overage: what time above the soft limit costs; None: the list price.
    commitment: the least that a month costs; None: nothing.
    """

    buyer: Sealed | None = None
    taxes: tuple[TaxRate, ...] = ()
    due_days: int = 30
    seller: str = ""
    discounts: tuple[Discount, ...] = ()
    overage: OveragePrice | None = None
    commitment: Commitment | None = None


class PrepaidCredit(Part):
    """Money that was paid in advance for invoices to come.

    reference: of the payment; once for each tenant.
    amount_micro: in whole minor units of the currency.
    currency: of the amount.
    last_month: the last month whose invoice it may pay: "2027-10"; None: any.
    """

    reference: str
    amount_micro: Micro
    currency: str
    last_month: str | None = None


class PrepaidUse(Part):
    """What a prepaid credit pays of an invoice.

    reference: the credit.
    amount_micro: that it pays.
    left_micro: of the credit after that.
    """

    reference: str
    amount_micro: Micro
    left_micro: Micro


class StorageCharge(Part):
    """What a tenant kept in storage in a month: its files and models.

    price_version: the tenant's price book at the month's end.
    byte_hours: bytes times the hours that they were kept.
    micro_per_gb_month: price of 10⁹ bytes that are kept all month.
    amount_micro: what they cost, rounded once.
    """

    price_version: str
    byte_hours: int
    micro_per_gb_month: Micro
    amount_micro: Micro


class AnswerPrices(Part):
    """What a million tokens of answers cost.

    prompt_micro_per_million: read.
    cached_micro_per_million: read, and in memory from an earlier question.
    completion_micro_per_million: written.
    """

    prompt_micro_per_million: Micro
    cached_micro_per_million: Micro
    completion_micro_per_million: Micro


class AnswerCharge(Part):
    """What a tenant's models answered in a month.

    price_version: the tenant's price book at the month's end.
    prices: of that book.
    prompt_tokens: read; cached_tokens: of these, what was in memory; completion_tokens: written.
    amount_micro: what they cost; tokens of each price are rounded once.
    """

    price_version: str
    prices: AnswerPrices
    prompt_tokens: Tokens
    cached_tokens: Tokens
    completion_tokens: Tokens
    amount_micro: Micro


class Bill(Part):
    """The invoice of a closed month in one currency.

    currency: of all amounts.
    gpu_ms: billed use less credits.
    amount_micro: sum of lines, adjustments, storage, answers, and what volume tiers and contract
      terms add, exact.
    net_micro: the same in whole minor units of the currency; the difference is shown as rounding.
    taxes: on the net amount.
    total_micro: what is to be paid: net amount and taxes.
    seller: name and address as on the invoice.
    number: counts the tenant's invoices without a gap; empty until the month is closed.
    issued_at: when the month was closed.
    due_at: until when it is to be paid.
    prepaid: what of the total was paid in advance.
    carried_micro: a total below zero that became a prepaid credit, as a positive amount.
    contract_micro: what of `amount_micro` contract terms add.
    volume_micro: what of `amount_micro` volume tiers take off, below zero.
    storage: what of `amount_micro` storage costs, None: nothing.
    answers: what of it tokens of answers cost, None: nothing.
    """

    currency: str
    gpu_ms: GpuMs
    amount_micro: Micro
    net_micro: Micro
    taxes: tuple[TaxAmount, ...]
    total_micro: Micro
    seller: str = ""
    number: str = ""
    issued_at: Ms = 0
    due_at: Ms = 0
    prepaid: tuple[PrepaidUse, ...] = ()
    carried_micro: Micro = 0
    contract_micro: Micro = 0
    volume_micro: Micro = 0
    storage: StorageCharge | None = None
    answers: AnswerCharge | None = None


class CreditNote(Part):
    """What corrects an invoice that is closed.

    number: counts the tenant's credit notes without a gap.
    invoice: number of the invoice.
    adjustment: the credit, and why.
    net_micro: its amount in whole minor units of the currency, below zero.
    taxes: on the net amount, at the invoice's rates.
    total_micro: what is given back: net amount and taxes.
    issued_at: when.
    """

    number: str
    invoice: str
    adjustment: InvoiceAdjustment
    net_micro: Micro
    taxes: tuple[TaxAmount, ...]
    total_micro: Micro
    issued_at: Ms


class Statement(Part):
    """A calendar month as it was closed; it never changes.

    period: the month: "2026-11".
    cut: for each partition of the pool's journal, the first offset that is not in it; what comes
      after it for this month is on the next bill.
    currency: of the tenant's prices.
    soft_gpu_ms: the tenant's soft limit at the month's end.
    gpu_ms: billed use less credits, in that currency.
    amount_micro: sum of lines and adjustments in that currency.
    incarnations: of the pool's journal at the cut, for each partition; none: any.
    bills: its invoices, one for each currency; none: closed before they had numbers.
    terms: what the bills were made by.
    """

    period: str
    cut: tuple[int, ...]
    currency: str
    soft_gpu_ms: GpuMs
    gpu_ms: GpuMs
    amount_micro: Micro
    incarnations: tuple[int, ...] = ()
    bills: tuple[Bill, ...] = ()
    terms: BillingTerms | None = None


class Tier(Part):
    """What each unit above a month's quantity costs instead: a GPU-hour, or a million tokens.

    above: so many units of the month cost the price before it.
    unit_micro: one unit above them.
    """

    above: int
    unit_micro: Micro


class Rate(Part):
    """A price of some GPU time of a lane that differs from the lane's. What is None is any.

    lane: service class of the job.
    gpu_hour_micro: one GPU-hour.
    role: what it is used for: "train", "eval" or "serve".
    device: what it runs on: "cpu", "cuda", or an accelerator as its nodes call it: "h200".
    spot: whether its nodes may be taken away at short notice.
    tiers: lower prices of what a month has above a quantity, the smallest quantity first.
    """

    lane: str
    gpu_hour_micro: Micro
    role: str | None = None
    device: str | None = None
    spot: bool | None = None
    tiers: tuple[Tier, ...] = ()


class HourlyUse(Part):
    """GPU time of a job in one hour, as far as an export has it: an hour may be in several.

    hour_utc: hours since the epoch.
    kind: use, or what is given back of it.
    gpu_ms: billable; below zero where it is given back.
    tokens: trained tokens that have a price, likewise.
    """

    hour_utc: int
    kind: Literal["usage", "credit"]
    gpu_ms: GpuMs
    tokens: Tokens = 0


class PriceBook(Part):
    """What a GPU-hour costs per lane, and a million trained tokens. Jobs refer to it by version.

    version: its name, for good.
    currency: of the prices: three capital letters of ISO 4217.
    gpu_hour_micro: lane → one GPU-hour.
    token_micro_per_million: a million tokens.
    effective_from: first day (UTC), "2026-11-01"; new tenants get the newest book that is in force.
    rates: exceptions, by what is done and where. The one that counts is found in
      `tunery.plan.price`.
    token_tiers: lower prices of the tokens that a lane has in a month above a quantity.
    storage_micro_per_gb_month: 10⁹ bytes of files and models that are kept all month.
    answers: prices of tokens that models read and write, None: answers cost nothing.
    """

    version: str
    currency: str
    gpu_hour_micro: dict[str, Micro]
    token_micro_per_million: Micro
    effective_from: str = ""
    rates: tuple[Rate, ...] = ()
    token_tiers: tuple[Tier, ...] = ()
    storage_micro_per_gb_month: Micro = 0
    answers: AnswerPrices | None = None
