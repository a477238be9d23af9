"""Nouns of a tenant's bills: terms, adjustments, closed months, credit notes."""

from typing import Literal, TypeAlias

from schemas.envelope import Part
from schemas.sealed import Sealed
from schemas.session import SessionTokens
from schemas.units import GpuMs, Micro, Ms, Tokens

Lane: TypeAlias = Literal["premium", "standard", "free"]
AdjustmentReason: TypeAlias = Literal["goodwill", "correction", "contract"]


class InvoiceAdjustment(Part):
    """A credit or a charge by an operator."""

    reference: str  # the operator's own number for it; once for each tenant
    amount_micro: Micro  # below zero: a credit; above: a charge
    currency: str  # currency of the amount
    reason: AdjustmentReason


class TaxRate(Part):
    """A tax on a tenant's invoices."""

    name: str  # name on the invoice: "VAT"
    rate_ppm: int  # rate in millionths of the net amount


class TaxAmount(Part):
    """The tax of one rate on an invoice or a credit note."""

    rate: TaxRate  # the tax
    amount_micro: Micro  # amount in whole minor units of the currency, rounded once


class Months(Part):
    """Calendar months (UTC) in a row."""

    first: str | None = None  # the first of them: "2026-11"; None: no beginning
    last: str | None = None  # the last of them; None: no end


class Discount(Part):
    """Less than the list price of GPU time."""

    reference: str  # the contract's name for it; once in a tenant's terms
    rate_ppm: int  # discount in millionths of the list price
    lane: str | None = None  # lane of the use; None: any
    months: Months = Months()  # months of the use


class OveragePrice(Part):
    """Price of GPU time above the soft limit of its month."""

    surcharge_ppm: int = 0  # surcharge in millionths of the list price
    # price that replaces the list price; None: the surcharge is added to it
    gpu_hour_micro: Micro | None = None
    currency: str = ""  # currency of `gpu_hour_micro`


class Commitment(Part):
    """The least that is billed for a month's use, before taxes."""

    reference: str  # the contract's name for it
    amount_micro: Micro  # for each month
    currency: str  # currency of the amount
    months: Months = Months()  # months in which it is due


class BillingTerms(Part):
    """To whom a tenant's invoices are made out, and what is on them besides use."""

    # name and address as on the invoice, tax number included; None: the tenant's id
    buyer: Sealed | None = None
    taxes: tuple[TaxRate, ...] = ()  # on the net amount, each by itself
    due_days: int = 30  # days from the invoice to its payment
    seller: str = ""  # name and address as on the invoice; empty: that of the installation
    # on the list price of GPU time; those of the same use are added
    discounts: tuple[Discount, ...] = ()
    # what time above the soft limit costs; None: the list price
    overage: OveragePrice | None = None
    commitment: Commitment | None = None  # the least that a month costs; None: nothing


class PrepaidCredit(Part):
    """Money that was paid in advance for invoices to come."""

    reference: str  # reference of the payment; once for each tenant
    amount_micro: Micro  # amount in whole minor units of the currency
    currency: str  # currency of the amount
    last_month: str | None = None  # the last month whose invoice it may pay: "2027-10"; None: any


class PrepaidUse(Part):
    """Part of an invoice that a prepaid credit pays."""

    reference: str  # the credit
    amount_micro: Micro  # amount that it pays
    left_micro: Micro  # balance of the credit after that


class StorageCharge(Part):
    """Charge for what a tenant stores in a month under one price book."""

    price_version: str  # the tenant's price book while it was kept
    byte_hours: int  # bytes times the hours that they were kept
    micro_per_gb_month: Micro  # price of 10⁹ bytes that are kept all month
    amount_micro: Micro  # what they cost, rounded once


class AnswerPrices(Part):
    """Prices of a million tokens of answers."""

    prompt_micro_per_million: Micro  # prompt tokens that are not in memory
    cached_micro_per_million: Micro  # prompt tokens in memory from an earlier question
    completion_micro_per_million: Micro  # generated tokens


class AnswerCharge(Part):
    """Charge for the answers of a tenant's models in a month under one price book."""

    price_version: str  # the tenant's price book when the tokens were counted
    prices: AnswerPrices  # prices of that book
    prompt_tokens: Tokens  # prompt tokens, of which `cached_tokens` were in memory
    cached_tokens: Tokens
    completion_tokens: Tokens  # generated tokens
    amount_micro: Micro  # what they cost; tokens of each price are rounded once


class Bill(Part):
    """The invoice of a closed month in one currency."""

    currency: str  # currency of all amounts
    gpu_ms: GpuMs  # billed use less credits
    # sum of lines, adjustments, storage, answers, and what volume tiers and contract terms add,
    # exact
    amount_micro: Micro
    # the same in whole minor units of the currency; the difference is shown as rounding
    net_micro: Micro
    taxes: tuple[TaxAmount, ...]  # on the net amount
    total_micro: Micro  # what is to be paid: net amount and taxes
    seller: str = ""  # name and address as on the invoice
    number: str = ""  # counts the tenant's invoices without a gap; empty until the month is closed
    issued_at: Ms = 0  # when the month was closed
    due_at: Ms = 0  # latest time of payment
    prepaid: tuple[PrepaidUse, ...] = ()  # what of the total was paid in advance
    # a total below zero that became a prepaid credit, as a positive amount
    carried_micro: Micro = 0
    contract_micro: Micro = 0  # what of `amount_micro` contract terms add
    # what of that fills a minimum commitment; the rest is discounts and overage
    commitment_micro: Micro = 0
    volume_micro: Micro = 0  # what of `amount_micro` volume tiers take off, below zero
    # storage, answers: costs on a bill closed when all of a month was priced by one book
    storage: StorageCharge | None = None
    answers: AnswerCharge | None = None
    # what of `amount_micro` storage costs, one charge for each price book
    storage_charges: tuple[StorageCharge, ...] = ()
    # what of `amount_micro` answers cost, one charge for each price book
    answer_charges: tuple[AnswerCharge, ...] = ()


class CreditNote(Part):
    """Credit note that corrects a closed invoice."""

    number: str  # counts the tenant's credit notes without a gap
    invoice: str  # number of the invoice
    adjustment: InvoiceAdjustment  # the credit, and why
    net_micro: Micro  # its amount in whole minor units of the currency, below zero
    taxes: tuple[TaxAmount, ...]  # on the net amount, at the invoice's rates
    total_micro: Micro  # what is given back: net amount and taxes
    issued_at: Ms  # time of issue


class Statement(Part):
    """A calendar month as it was closed; it never changes."""

    period: str  # the month: "2026-11"
    # for each partition of the pool's journal, the first offset that is not in it; what comes after
    # it for this month is on the next bill
    cut: tuple[int, ...]
    currency: str  # currency of the tenant's prices at the month's end
    soft_gpu_ms: GpuMs  # the tenant's soft limit at the month's end
    gpu_ms: GpuMs  # billed use less credits, in that currency
    amount_micro: Micro  # sum of lines and adjustments in that currency
    # incarnation of each partition of the pool's journal at the cut; none: any
    incarnations: tuple[int, ...] = ()
    # its invoices, one for each currency; none: closed before they had numbers
    bills: tuple[Bill, ...] = ()
    # what the bills were made by, and what comes late for the month is billed by
    terms: BillingTerms | None = None


class Tier(Part):
    """Tier price of units (GPU-hours or millions of tokens) above a month's quantity."""

    above: int  # number of units in the month that cost the price before this one
    unit_micro: Micro  # one unit above them


class Rate(Part):
    """A price of some GPU time of a lane that differs from the lane's. What is None is any."""

    lane: str  # service class of the job
    gpu_hour_micro: Micro  # one GPU-hour
    role: str | None = None  # what it is used for: "train", "eval" or "serve"
    # what it runs on: "cpu", "cuda", or an accelerator as its nodes call it: "h200"
    device: str | None = None
    spot: bool | None = None  # whether its nodes may be taken away at short notice
    # lower prices of what a month has above a quantity, the smallest quantity first
    tiers: tuple[Tier, ...] = ()


class Price(Part):
    """One lane's prices out of one version of the price book, as shown with the estimate."""

    version: str  # version of the price book
    currency: str  # currency of the prices
    gpu_hour_micro: Micro  # one GPU-hour
    token_micro_per_million: Micro = 0  # a million tokens, as a comparison
    lane: Lane | None = None  # lane of the prices; None: not recorded
    rates: tuple[Rate, ...] = ()  # exceptions of the lane


class HourlyUse(Part):
    """GPU time of a job in one hour, as far as an export has it: an hour may be in several."""

    hour_utc: int  # hours since the epoch
    kind: Literal["usage", "credit"]  # use, or what is given back of it
    gpu_ms: GpuMs  # billable GPU time; below zero where it is given back
    tokens: Tokens = 0  # billable trained tokens; below zero where they are given back
    # tokens of a session that were counted in the hour; they cost nothing. None: it is of time
    session: SessionTokens | None = None


class PriceBook(Part):
    """Price book: prices per GPU-hour and lane, and per million trained tokens."""

    version: str  # its permanent name; jobs refer to the book by it
    currency: str  # currency of the prices: three capital letters of ISO 4217
    gpu_hour_micro: dict[str, Micro]  # lane → one GPU-hour
    token_micro_per_million: Micro
    # first day (UTC), "2026-11-01"; new tenants get the newest book that is in force
    effective_from: str = ""
    # exceptions, by what is done and where. The one that counts is found in `tunery.plan.price`.
    rates: tuple[Rate, ...] = ()
    # lower prices of the tokens that a lane has in a month above a quantity
    token_tiers: tuple[Tier, ...] = ()
    storage_micro_per_gb_month: Micro = 0  # 10⁹ bytes that are kept all month
    # prices of tokens that models read and write, None: answers cost nothing
    answers: AnswerPrices | None = None
