"""Use and credits as charges of FOCUS 1.2 (https://focus.finops.org), one for each event.

Quantities and amounts are Decimals with twelve places. Tunery's own columns begin with x_.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from msgspec import Struct

from schemas.envelope import Header
from schemas.pool import UsageCredited, UsageSliced
from schemas.topics import STREAMS
from schemas.training import LeaseHardware
from schemas.units import HOUR_MS, GpuMs, Micro, Ms
from services.exporter.domain.accounts import AccountFacts
from tunery.billing.lines import CREDIT_OF_CAUSE, WORK_OF_ROLE, book_of, words_of
from tunery.billing.periods import Period
from tunery.plan.price import billed_lease, hourly_micro, lane_price

EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)
TWELFTH_DECIMAL: Final = Decimal("0.000000000001")
MICRO: Final = 1_000_000
UNIT: Final = "GPU-Hours"
SERVICE: Final = "Fine-tuning"
CORRECTION: Final = "Correction"  # of a month whose invoice was issued before
#: column → its type: text, time, decimal or whole number; in the order of the files
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


def charge_of(
    header: Header, event: UsageSliced | UsageCredited, accounts: AccountFacts, provider: str
) -> ExportedCharge:
    """The charge of an event of the pool. Raises PriceMissing, MonthOpen."""
    lease = billed_lease(event)
    hardware = lease.hardware or LeaseHardware()
    credit = event if isinstance(event, UsageCredited) else None
    gpu_ms = event.billable_gpu_ms if isinstance(event, UsageSliced) else -event.lost_gpu_ms
    book = book_of(accounts.books, lease.price_version, lease.lane)
    hourly = hourly_micro(lane_price(book, lease.lane), lease.role, hardware)
    month = accounts.billed_month(header, lease.tenant, event.hour_utc)
    is_late = event.hour_utc < month.first_hour
    cost, unit_price = cost_of(gpu_ms, hourly), Decimal(hourly) / MICRO
    hours = EXACT.divide(Decimal(gpu_ms), HOUR_MS).quantize(TWELFTH_DECIMAL, context=EXACT)
    work = WORK_OF_ROLE[lease.role] + words_of(hardware.accelerator, spot=hardware.spot)
    sku = f"{lease.lane}/{lease.role}/{hardware.accelerator or hardware.device}"
    sku += "/spot" if hardware.spot else ""
    context = BillingContext(
        tenant=lease.tenant, month=month, currency=book.currency, provider=provider
    )
    values: dict[str, Any] = {
        "ChargeCategory": "Usage" if credit is None else "Credit",
        "ChargeClass": CORRECTION if is_late else None,
        "ChargeDescription": work
        if credit is None
        else f"credit for {work}: {CREDIT_OF_CAUSE.get(credit.cause, credit.cause)}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": time_of(event.hour_utc),
        "ChargePeriodEnd": time_of(event.hour_utc + 1),
        "ConsumedQuantity": hours if credit is None else None,
        "ConsumedUnit": UNIT if credit is None else None,
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), unit_price),
        "PricingQuantity": hours,
        "PricingCategory": "Standard",
        "PricingUnit": UNIT,
        "ResourceId": lease.job_id,
        "ResourceType": "Fine-tuning job",
        "SkuId": f"gpu-hour/{sku}",
        "SkuMeter": "GPU time",
        "SkuPriceId": f"{lease.price_version}/{sku}",
        "x_GpuMilliseconds": gpu_ms,
        "x_UsedGpuMilliseconds": event.used_gpu_ms if isinstance(event, UsageSliced) else 0,
        "x_GpuHourMicro": hourly,
        "x_Attempt": lease.attempt,
        "x_Role": lease.role,
        "x_Lane": lease.lane,
        "x_Cause": None if credit is None else credit.cause,
        "x_Device": hardware.device,
        "x_Accelerator": hardware.accelerator or None,
        "x_Spot": "true" if hardware.spot else "false",
    }
    return make_charge(header, context, cost, values)


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


def cost_of(gpu_ms: GpuMs, gpu_hour_micro: Micro) -> Decimal:
    """Exact but for the twelfth place: quantity times price, in units of the currency."""
    cost = EXACT.divide(Decimal(gpu_ms * gpu_hour_micro), HOUR_MS * MICRO)
    return cost.quantize(TWELFTH_DECIMAL, context=EXACT)


def time_of(hour: int) -> datetime:
    """The beginning of an hour, by its number since the epoch."""
    return datetime.fromtimestamp(hour * HOUR_MS // 1_000, UTC)
