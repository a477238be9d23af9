"""Measures the ledger and invoices in a real PostgreSQL.

    python -m bench.billing [--json] [--rows 400000]

A tenant has ROWS ledger rows over a year, with credits and late rows, and DRAFT_ROWS in the month
after it. `slices_per_s`: events of `pool` that become ledger rows, by the projection's own commits.
`invoice_of_400k_rows_ms`: the running month's invoice with its lines, when all of that is there: it
reads its own month and not the history. `closing_ms`: closing a month with a twelfth of ROWS, as
the effect does it. Both are medians. `export_rows_per_s`: such events as charges in files of all
the formats that the exporter writes. `year_replay_equal`: whether all closed months, made anew with
their lines, are what they were.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any, Final

import msgspec

from bench.measures import data_folder
from schemas.account import Limits, PeriodEnded, PlanTerms, PricesImported, TenantCreated
from schemas.billing import BillingTerms, Statement, TaxRate
from schemas.envelope import Header
from schemas.pool import LeaseRef, Token, UsageCredited, UsageSliced
from schemas.sealed import Sealed
from schemas.streams import PARTITIONS
from schemas.units import HOUR_MS
from services.billing.adapters.ledger import PostgresBooks, read_invoices
from services.billing.adapters.prices import read_imports
from services.billing.app import LEDGER, STORAGE, TENANTS
from services.billing.project import project_ledger, project_tenants
from services.exporter.adapters.files import FORMATS
from services.exporter.domain.accounts import AccountFacts
from services.exporter.domain.focus import charges_of_use
from tunery.billing.invoice import Altered
from tunery.billing.periods import BillShare, Cut, Period, cut_of, period
from tunery.local.stack import stack
from tunery.platform.store.postgres import PostgresStore, open_store, pool_of
from tunery.runtime.hosts.projector import Projection
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import CommitResult, RowBatch
from tunery.runtime.verbs import Change

ROWS: Final = 400_000
DRAFT_ROWS: Final = 1_000
DRAFTS: Final = 20
EXPORTED_ROWS: Final = 20_000
MONTHS: Final = tuple(period(f"2026-{number:02}") for number in range(1, 13))
TENANT: Final = "acme"
BATCH: Final = 500
PARTITION: Final = 3
HOURS_OF_A_JOB: Final = 4
LATE_SHARE, CREDIT_SHARE = 0.01, 0.02
TERMS: Final = BillingTerms(taxes=(TaxRate(name="VAT", rate_ppm=190_000),))


async def measure(rows: int) -> dict[str, Any]:
    """Start PostgreSQL, fill a year, close it, and return figures by key."""
    with data_folder() as folder:
        async with stack(folder) as running:
            store = await open_store(running.postgres_dsn, "billing", 4)
            try:
                return await _measure(store, rows)
            finally:
                await store.close()


async def _measure(store: PostgresStore, rows: int) -> dict[str, Any]:
    for projection in (TENANTS, LEDGER, STORAGE):
        await store.ensure(projection.described())
    await _add_tenant(store)
    random, ends = Random(13), list[int]()  # noqa: S311  # the same year each time
    began = time.perf_counter()
    for month in MONTHS:
        at = ends[-1] if ends else 0
        ends.append(await _write(store, at, _month(random, month, rows // len(MONTHS), at)))
    seconds = time.perf_counter() - began
    await pool_of(store).execute("ANALYZE ledger")
    times = await _close_year(store, ends)
    january = MONTHS[-1].following()
    await _write(store, ends[-1], _month(random, january, DRAFT_ROWS, ends[-1]))
    drafts = [await _read(store, january) for _ in range(DRAFTS)]
    equal = await _replay(store)
    return {
        "rows": ends[-1],
        "slices_per_s": round(ends[-1] / seconds),
        "invoice_of_400k_rows_ms": round(statistics.median(drafts), 1),
        "closing_ms": round(statistics.median(times), 1),
        "export_rows_per_s": round(_export_rate()),
        "year_replay_equal": equal,
    }


async def _add_tenant(store: PostgresStore) -> None:
    limits = Limits(soft_gpu_ms=10**9, hard_gpu_ms=10**12, concurrency=100)
    terms = PlanTerms(lane="standard", limits=limits, price_version="2026-11")
    name = Sealed(key_id="k", nonce=b"", ciphertext=b"")
    (ours,) = read_imports()
    events = (
        TenantCreated(name=name, terms=terms),
        PricesImported(book=ours.book, sha256=ours.sha256),
    )
    changes = [
        change for event in events for change in project_tenants(_header("account", 0), event)
    ]
    await _commit(store, TENANTS, "account", 0, len(events), changes)


def _header(stream: str, offset: int) -> Header:
    return Header(
        stream=stream,
        partition=PARTITION,
        offset=offset,
        at=0,
        key=TENANT,
        tenant=TENANT,
        seq=offset,
        command_id="",
        incarnation=0,
    )


def _month(
    random: Random, month: Period, count: int, first_offset: int
) -> Iterator[UsageSliced | UsageCredited]:
    """Yield the records of a month: slices and credits of jobs, some late for the month before."""
    for number in range(count):
        job = first_offset + number // HOURS_OF_A_JOB * HOURS_OF_A_JOB
        hour = month.first_hour + number * (month.end_hour - month.first_hour) // count
        if random.random() < LATE_SHARE:
            hour -= month.end_hour - month.first_hour
        lease = LeaseRef(
            token=Token(pool="default", lease=job),
            tenant=TENANT,
            job_id=f"ftjob-{job}",
            attempt=1,
            role="train",
            lane="standard",
            price_version="2026-11",
        )
        gpu_ms = random.randrange(1, HOUR_MS)
        if random.random() < CREDIT_SHARE:
            yield UsageCredited(lease=lease, hour_utc=hour, lost_gpu_ms=gpu_ms, cause="lost")
        else:
            yield UsageSliced(
                lease=lease, hour_utc=hour, used_gpu_ms=gpu_ms, billable_gpu_ms=gpu_ms
            )


async def _write(
    store: PostgresStore, offset: int, events: Iterator[UsageSliced | UsageCredited]
) -> int:
    """Rows of the events, by the ledger's projection; returns the end of the journal."""
    while batch := list(islice(events, BATCH)):
        changes = [
            change
            for number, event in enumerate(batch, offset)
            for change in project_ledger(_header("pool", number), event)
        ]
        await _commit(store, LEDGER, "pool", offset, offset + len(batch), changes)
        offset += len(batch)
    return offset


async def _commit(
    store: PostgresStore,
    projection: Projection,
    stream: str,
    expected: int,
    end: int,
    changes: Sequence[Change],
) -> None:
    result = await store.commit(
        RowBatch(
            projection=projection.name,
            version=projection.version,
            partition=(stream, PARTITION),
            expected=expected,
            position=Position(offset=end),
            changes=changes,
        )
    )
    assert result is CommitResult.DONE, result


async def _close_year(store: PostgresStore, ends: Sequence[int]) -> list[float]:
    """Close all months in turn, and return the milliseconds that each bill took."""
    books, times = PostgresBooks(store, pool_of(store)), []
    before: Statement | None = None
    for month, end in zip(MONTHS, ends, strict=True):
        ended = PeriodEnded(
            period=month.name,
            soft_gpu_ms=10**9,
            before=before,
            terms=TERMS,
            price_version="2026-11",
        )
        late = cut_of(before) if before else _cut(0)
        share = BillShare(month=month, late=late, cut=_cut(end))
        began = time.perf_counter()
        before = await books.statement(TENANT, ended, share)
        times.append((time.perf_counter() - began) * 1_000)
        await pool_of(store).execute(
            "INSERT INTO statements VALUES ($1, $2, $3, $4, 0)",
            *(TENANT, month.name, msgspec.to_builtins(ended), msgspec.to_builtins(before)),
        )
    return times


def _cut(end: int) -> Cut:
    offsets = tuple(end if at == PARTITION else 0 for at in range(PARTITIONS))
    return Cut(offsets=offsets, incarnations=(0,) * PARTITIONS)


def _export_rate() -> float:
    """Events a second that become charges and then files of every format."""
    events = list(_month(Random(13), MONTHS[0], EXPORTED_ROWS, 0))  # noqa: S311  # always the same
    accounts = AccountFacts()
    for imported in read_imports():
        accounts.fold(TENANT, PricesImported(book=imported.book, sha256=imported.sha256))
    began = time.perf_counter()
    charges = [
        charge
        for number, event in enumerate(events)
        for charge in charges_of_use(_header("pool", number), event, accounts, "bench")
    ]
    sizes = [len(encode(charges)) for _, _, encode in FORMATS["1.2"]]
    seconds = time.perf_counter() - began
    assert all(sizes), sizes
    return len(events) / seconds


async def _replay(store: PostgresStore) -> bool:
    """Make each closed invoice anew with all its lines; one that differs raises `Altered`."""
    for month in MONTHS:
        try:
            await _read(store, month)
        except Altered as altered:
            print(altered, file=sys.stderr)
            return False
    return True


async def _read(store: PostgresStore, month: Period) -> float:
    """Milliseconds that the month's invoice takes, with all its lines. Raises Altered."""
    began = time.perf_counter()
    await read_invoices(pool_of(store), TENANT, month)
    return (time.perf_counter() - began) * 1_000


def main() -> int:
    """Measure and print. Exit code 1 when a closed month is not what it was."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"default: {ROWS}")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.rows))
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")
    return 0 if figures["year_replay_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
