"""Charges: their columns, and sums that are the job's cost."""

from decimal import Decimal
from random import Random

import pytest
from msgspec.structs import replace

from schemas.account import PricesImported
from schemas.envelope import Header
from schemas.pool import UsageCredited, UsageSliced
from schemas.training import LeaseHardware
from schemas.units import HOUR_MS, MICRO
from services.exporter.domain.accounts import AccountFacts
from services.exporter.domain.focus import COLUMNS, ExportedCharge, charges_of_use
from tests.unit.services.exporter.journals import BOOKS, HOUR, credited, lease, sliced
from tunery.billing.lines import PriceMissing
from tunery.plan.price import usage_micro

ACCOUNTS = AccountFacts()
for book in BOOKS.values():
    ACCOUNTS.fold("", PricesImported(book=book, sha256="ab" * 32))
HOURLY = BOOKS["2026-11"].gpu_hour_micro["standard"]


def charge(event: UsageSliced | UsageCredited) -> ExportedCharge:
    header = Header(
        stream="pool",
        partition=3,
        offset=8,
        at=1,
        key="default",
        tenant="",
        seq=1,
        command_id="c",
        incarnation=0,
    )
    (only,) = charges_of_use(header, event, ACCOUNTS, "Tunery")
    return only


def test_use_is_a_charge_of_its_hour_and_month_with_its_place() -> None:
    columns = charge(sliced(lease(1))).columns
    assert list(columns) == list(COLUMNS)
    assert columns["BilledCost"] == Decimal(HOURLY) / MICRO
    assert columns["ConsumedQuantity"] == columns["PricingQuantity"] == 1
    assert (columns["ChargeCategory"], columns["ChargeClass"]) == ("Usage", None)
    assert f"{columns['BillingPeriodEnd']:%Y-%m-%d}" == "2026-12-01"
    assert (columns["x_JournalPartition"], columns["x_JournalOffset"]) == (3, 8)


def test_a_credit_is_below_zero_and_nothing_was_consumed() -> None:
    columns = charge(credited(lease(1), HOUR_MS // 2)).columns
    assert columns["BilledCost"] == -Decimal(HOURLY) / MICRO / 2
    assert (columns["ChargeCategory"], columns["ConsumedQuantity"]) == ("Credit", None)


def test_hardware_has_columns_and_a_sku_of_its_own() -> None:
    spot = LeaseHardware(device="cuda", accelerator="h200", spot=True)
    columns = charge(sliced(replace(lease(1), hardware=spot))).columns
    assert [columns[name] for name in ("x_Device", "x_Accelerator", "x_Spot")] == [
        "cuda",
        "h200",
        "true",
    ]
    assert columns["SkuId"] == "gpu-hour/standard/train/h200/spot"
    assert columns["ChargeDescription"] == "training on h200, spot"
    plain = charge(sliced(lease(1))).columns
    assert [plain[name] for name in ("x_Device", "x_Accelerator", "x_Spot")] == [
        "cpu",
        None,
        "false",
    ]
    assert plain["SkuId"] == "gpu-hour/standard/train/cpu"


def test_money_sums_of_exported_charges_are_the_jobs_cost_and_time() -> None:
    random = Random(5)
    for _ in range(10):
        events: list[UsageSliced | UsageCredited] = []
        for hour in range(200):
            gpu_ms = random.randrange(1, HOUR_MS)
            events.append(sliced(lease(1), gpu_ms, HOUR + hour))
            if random.random() < 0.2:
                events.append(credited(lease(1), random.randrange(1, gpu_ms + 1), HOUR + hour))
        charges = [charge(event).columns for event in events]
        gpu_ms = sum(columns["x_GpuMilliseconds"] for columns in charges)
        cost = sum(columns["BilledCost"] for columns in charges)
        assert round(cost * MICRO) == usage_micro(gpu_ms * HOURLY)


def test_a_price_that_is_missing_is_named() -> None:
    event = sliced(replace(lease(1), price_version="2030-01"))
    with pytest.raises(PriceMissing, match="2030-01"):
        charge(event)
