"""Exports of random years: the rows of an invoice add up to its total, late rows and all."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import pytest

from schemas.account import (
    InvoiceAdjusted,
    InvoiceClosed,
    Limits,
    PlanTerms,
    PricesImported,
    TenantCreated,
)
from schemas.envelope import Header
from schemas.pool import LeaseRef, Token, UsageCredited, UsageSliced
from schemas.sealed import Sealed
from schemas.training import LeaseHardware
from schemas.units import HOUR_MS, MICRO, Ms
from services.exporter.domain.accounts import AccountFacts, MonthOpen
from services.exporter.domain.focus import ExportedCharge, charges_of_use
from services.exporter.domain.invoices import charges_of_account
from tests.searches import YEARS
from tests.simulation.test_years_of_bills import PRICES, Year, random_year
from tunery.billing.currency import minor_unit_micro
from tunery.billing.lines import LedgerRow

TENANT = "acme"
WRITTEN_AFTER_HOURS = 3  # from the month's beginning: the month before may be closed


def header(stream: str, at: Ms, partition: int = 0, offset: int = 0) -> Header:
    return Header(
        stream=stream,
        partition=partition,
        offset=offset,
        at=at,
        key=TENANT,
        tenant=TENANT,
        seq=0,
        command_id="c",
        incarnation=0,
    )


def event_of(row: LedgerRow) -> UsageSliced | UsageCredited:
    """The event that billing made this row of."""
    lease = LeaseRef(
        token=Token(pool="default", lease=1),
        tenant=TENANT,
        job_id=row.job_id,
        attempt=1,
        role=row.role,
        lane=row.lane,
        price_version=row.price_version,
        hardware=LeaseHardware(accelerator=row.accelerator, spot=row.spot),
    )
    if row.kind == "credit":
        return UsageCredited(
            lease=lease,
            hour_utc=row.hour_utc,
            lost_gpu_ms=-row.gpu_ms,
            cause="lost",
            lost_tokens=-row.tokens,
        )
    return UsageSliced(
        lease=lease,
        hour_utc=row.hour_utc,
        used_gpu_ms=row.used_gpu_ms,
        billable_gpu_ms=row.gpu_ms,
        tokens=row.tokens,
    )


def accounts_of(year: Year) -> AccountFacts:
    accounts = AccountFacts()
    for book in PRICES.values():
        accounts.fold(TENANT, PricesImported(book=book, sha256="ab" * 32))
    limits = Limits(soft_gpu_ms=0, hard_gpu_ms=0, concurrency=1)
    terms = PlanTerms(lane="standard", limits=limits, price_version="2026-11")
    accounts.fold(TENANT, TenantCreated(name=Sealed("k", b"", b""), terms=terms))
    for statement in year.closed:
        accounts.fold(TENANT, InvoiceClosed(statement=statement))
    return accounts


def exported(year: Year) -> Iterator[ExportedCharge]:
    """All rows; those wait whose month is not closed although it is over."""
    accounts = accounts_of(year)
    for (partition, offset), row in year.rows.items():
        month = year.written_in[partition, offset]
        at = (month.first_hour + WRITTEN_AFTER_HOURS) * HOUR_MS
        try:
            written = header("pool", at, partition, offset)
            yield from charges_of_use(written, event_of(row), accounts, "Tunery")
        except MonthOpen:
            assert row.hour_utc < month.first_hour
    for name, adjustments in year.adjustments.items():
        for adjustment in adjustments:
            adjusted = InvoiceAdjusted(period=name, adjustment=adjustment)
            yield from charges_of_account(header("account", 0), adjusted, "Tunery")
    for statement in year.closed:
        closed = InvoiceClosed(statement=statement)
        yield from charges_of_account(header("account", 0), closed, "Tunery")


@pytest.mark.parametrize("first", YEARS.beginnings(step=20))
def test_money_exported_rows_of_an_invoice_are_its_total(first: int) -> None:
    late = 0
    for seed in range(first, first + 40):
        year = random_year(seed)
        sums = Counter[str]()
        rounded: dict[str, set[tuple[str, str]]] = {}
        for charge in exported(year):
            columns = charge.columns
            sums[columns["InvoiceId"]] += columns["BilledCost"]
            sums_of_job = rounded.setdefault(columns["InvoiceId"], set())
            sums_of_job.add((columns["ResourceId"], columns["PricingUnit"]))
            late += columns["ChargeClass"] == "Correction"
        for statement in year.closed:
            for bill in statement.bills:
                name = f"{statement.period}-{bill.currency}"
                difference = Decimal(sums[name]) * MICRO - bill.total_micro
                assert abs(difference) <= len(rounded.get(name, ())), (seed, name)
                unit = minor_unit_micro(bill.currency)
                assert round(Decimal(sums[name]) * MICRO / unit) * unit == bill.total_micro
    assert late > 0
