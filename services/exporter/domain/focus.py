"""Use and credits as charges of FOCUS (https://focus.finops.org), one for each event and unit.

Quantities and amounts are Decimals with twelve places. Tunery's own columns begin with x_.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final, NamedTuple

from msgspec import Struct

from schemas.envelope import Header
from schemas.pool import LeaseRef, UsageCredited, UsageSliced
from schemas.session import TOKEN_KINDS
from schemas.submission import Price
from schemas.topics import STREAMS
from schemas.training import LeaseHardware
from schemas.units import HOUR_MS, MICRO, PPM, Micro, Ms
from services.exporter.domain.accounts import AccountFacts
from tunery.billing.lines import CREDIT_OF_CAUSE, TRAINED_TOKENS, WORK_OF_ROLE, book_of, words_of
from tunery.billing.periods import Period
from tunery.plan.price import billed_lease, hourly_micro, lane_price

EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)
TWELFTH_DECIMAL: Final = Decimal("0.000000000001")
HOURS: Final = "GPU-Hours"
TOKENS: Final = "Tokens"
SERVICE: Final = "Fine-tuning"
CORRECTION: Final = "Correction"  # of a month whose invoice was issued before
#: kind of a session's tokens → its column, such as x_TrainTokens
KIND_COLUMNS: Final = {kind: f"x_{kind.title().replace('_', '')}" for kind in TOKEN_KINDS}
#: column → its type: text, time, decimal or whole number; in the order of the files of FOCUS 1.2
COLUMNS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), Decimal),
    **dict.fromkeys(("BillingAccountId", "BillingAccountName", "BillingAccountType"), str),
    "BillingCurrency": str,
    **dict.fromkeys(("BillingPeriodStart", "BillingPeriodEnd"), datetime),
    **dict.fromkeys(("ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency"), str),
    **dict.fromkeys(("ChargePeriodStart", "ChargePeriodEnd"), datetime),
    "ConsumedQuantity": Decimal,
    "ConsumedUnit": str,
    **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice", "PricingQuantity"), Decimal),
    **dict.fromkeys(("PricingCategory", "PricingUnit", "InvoiceId", "InvoiceIssuerName"), str),
    **dict.fromkeys(("ProviderName", "PublisherName", "RegionId", "RegionName"), str),
    **dict.fromkeys(("ResourceId", "ResourceName", "ResourceType"), str),
    **dict.fromkeys(("ServiceCategory", "ServiceName", "ServiceSubcategory"), str),
    **dict.fromkeys(("SkuId", "SkuMeter", "SkuPriceId", "SubAccountId", "SubAccountName"), str),
    "Tags": str,
    **dict.fromkeys(("x_ServiceProviderName", "x_HostProviderName"), str),
    **dict.fromkeys(("x_GpuMilliseconds", "x_UsedGpuMilliseconds", "x_GpuHourMicro"), int),
    **dict.fromkeys(("x_Attempt", "x_JournalPartition", "x_Incarnation", "x_JournalOffset"), int),
    **dict.fromkeys(("x_Role", "x_Lane", "x_Cause", "x_Topic"), str),
    **dict.fromkeys(("x_Device", "x_Accelerator", "x_Spot"), str),
    "x_Tokens": int,
    **dict.fromkeys(KIND_COLUMNS.values(), int),
}
#: FOCUS 1.4 has columns of its own for who provides and who hosts, instead of the older two.
REMOVED_IN_1_4: Final = ("ProviderName", "PublisherName")
COLUMNS_1_4: Final[Mapping[str, str]] = {  # column → that of 1.2 which has its value
    name.removeprefix("x_") if name.endswith("ProviderName") else name: name
    for name in COLUMNS
    if name not in REMOVED_IN_1_4
}


class ExportedCharge(Struct, frozen=True):
    """One row of the files: whose it is, of which month, its columns, and when it was written."""

    tenant: str
    month: str
    columns: Mapping[str, Any]
    at: Ms


class BillingContext(Struct, frozen=True, kw_only=True):
    """On whose invoice of which month a charge is, and who sends it."""

    tenant: str
    month: Period
    currency: str
    provider: str


class MeteredUse(NamedTuple):
    """Part of an event that one meter charges."""

    billed: int  # quantity in whole GPU-milliseconds or tokens; below zero for a credit
    micro: Micro  # price of `per` GPU-milliseconds or tokens, in millionths of the currency
    per: int
    unit: str
    unit_of: int  # number of GPU-milliseconds or tokens in one `unit`
    # work, sku, meter: texts of the descriptive columns
    work: str
    sku: str
    meter: str
    own: Mapping[str, Any]  # columns that only this meter has


def charges_of_use(
    header: Header, event: UsageSliced | UsageCredited, accounts: AccountFacts, provider: str
) -> Iterator[ExportedCharge]:
    """The charges of an event of the pool: of its time, and of its trained tokens if they have a
    price. Raises PriceMissing, MonthOpen.
    """
    lease = billed_lease(event)
    price = lane_price(book_of(accounts.books, lease.price_version, lease.lane), lease.lane)
    month = accounts.billed_month(header, lease.tenant, event.hour_utc)
    context = BillingContext(
        tenant=lease.tenant, month=month, currency=price.currency, provider=provider
    )
    for use in _metered(event, lease, price):
        yield make_charge(header, context, cost_of(use), _columns(event, lease, month, use))


def _metered(
    event: UsageSliced | UsageCredited, lease: LeaseRef, price: Price
) -> Iterator[MeteredUse]:
    if isinstance(event, UsageSliced):
        used, billed, tokens = event.used_gpu_ms, event.billable_gpu_ms, event.tokens
    else:
        used, billed, tokens = 0, -event.lost_gpu_ms, -event.lost_tokens
    hardware = lease.hardware or LeaseHardware()
    if used or billed or not tokens:
        hourly = hourly_micro(price, lease.role, hardware)
        sku = f"{lease.lane}/{lease.role}/{hardware.accelerator or hardware.device}"
        work = WORK_OF_ROLE[lease.role] + words_of(hardware.accelerator, spot=hardware.spot)
        sku += "/spot" if hardware.spot else ""
        own = {
            "x_GpuMilliseconds": billed,
            "x_UsedGpuMilliseconds": used,
            "x_GpuHourMicro": hourly,
        }
        yield MeteredUse(
            billed, hourly, HOUR_MS, HOURS, HOUR_MS, work, f"gpu-hour/{sku}", "GPU time", own
        )
    if tokens and price.token_micro_per_million:
        per_million = price.token_micro_per_million
        sku, own = f"token/{lease.lane}", {"x_Tokens": tokens}
        yield MeteredUse(
            tokens, per_million, PPM, TOKENS, 1, TRAINED_TOKENS, sku, "Trained tokens", own
        )


def _columns(
    event: UsageSliced | UsageCredited, lease: LeaseRef, month: Period, use: MeteredUse
) -> dict[str, Any]:
    hardware = lease.hardware or LeaseHardware()
    credit = event if isinstance(event, UsageCredited) else None
    quantity = EXACT.divide(Decimal(use.billed), use.unit_of)
    quantity = quantity.quantize(TWELFTH_DECIMAL, context=EXACT)
    unit_price = Decimal(use.micro * use.unit_of) / (use.per * MICRO)
    return {
        "ChargeCategory": "Usage" if credit is None else "Credit",
        "ChargeClass": CORRECTION if event.hour_utc < month.first_hour else None,
        "ChargeDescription": use.work
        if credit is None
        else f"credit for {use.work}: {CREDIT_OF_CAUSE.get(credit.cause, credit.cause)}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": time_of(event.hour_utc),
        "ChargePeriodEnd": time_of(event.hour_utc + 1),
        "ConsumedQuantity": quantity if credit is None else None,
        "ConsumedUnit": use.unit if credit is None else None,
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), unit_price),
        "PricingQuantity": quantity,
        "PricingCategory": "Standard",
        "PricingUnit": use.unit,
        "ResourceId": lease.job_id,
        "ResourceType": "Fine-tuning job",
        "SkuId": use.sku,
        "SkuMeter": use.meter,
        "SkuPriceId": f"{lease.price_version}/{use.sku.removeprefix('gpu-hour/')}",
        "x_Attempt": lease.attempt,
        "x_Role": lease.role,
        "x_Lane": lease.lane,
        "x_Cause": None if credit is None else credit.cause,
        "x_Device": hardware.device,
        "x_Accelerator": hardware.accelerator or None,
        "x_Spot": "true" if hardware.spot else "false",
        **use.own,
    }


def make_charge(
    header: Header, context: BillingContext, cost: Decimal, values: Mapping[str, Any]
) -> ExportedCharge:
    """A charge with the columns that all have, and `values`; other columns are empty."""
    month, provider = context.month, context.provider
    common: dict[str, Any] = {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
        **dict.fromkeys(("BillingAccountId", "BillingAccountName"), context.tenant),
        "BillingAccountType": "Tenant",
        "BillingCurrency": context.currency,
        "BillingPeriodStart": time_of(month.first_hour),
        "BillingPeriodEnd": time_of(month.end_hour),
        "InvoiceId": f"{month.name}-{context.currency}",
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), provider),
        **dict.fromkeys(("x_ServiceProviderName", "x_HostProviderName"), provider),
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": SERVICE,
        "ServiceSubcategory": "AI Platforms",
        "Tags": "{}",
        "x_JournalPartition": header.partition,
        "x_Incarnation": header.incarnation,
        "x_JournalOffset": header.offset,
        "x_Topic": STREAMS[header.stream].journal.name,
    }
    columns = common | dict(values)
    return ExportedCharge(
        context.tenant, month.name, {name: columns.get(name) for name in COLUMNS}, header.at
    )


def cost_of(use: MeteredUse) -> Decimal:
    """Exact but for the twelfth place: quantity times price, in units of the currency."""
    cost = EXACT.divide(Decimal(use.billed * use.micro), use.per * MICRO)
    return cost.quantize(TWELFTH_DECIMAL, context=EXACT)


def time_of(hour: int) -> datetime:
    """The beginning of an hour, by its number since the epoch."""
    return datetime.fromtimestamp(hour * HOUR_MS // 1_000, UTC)
