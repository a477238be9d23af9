"""What the host exports of `account`, and what it learns from it."""

import asyncio
import csv
import io
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.account import (
    USAGE_RECORDED,
    EndpointCreated,
    EndpointTerms,
    InvoiceAdjusted,
    InvoiceClosed,
    Limits,
    PlanTerms,
    PricesImported,
    TenantCreated,
)
from schemas.sealed import Sealed
from schemas.topics import ACCOUNT
from services.exporter.domain.accounts import MonthOpen
from services.exporter.host import ExportHost
from services.exporter.settings import ExporterSettings
from tests.unit.services.exporter.domain.test_invoices import ADJUSTMENT, CLOSED
from tests.unit.services.exporter.journals import BOOKS, HOUR, JournalWriter, lease, sliced
from tunery.billing.lines import PriceMissing
from tunery.runtime.memory_servers import MemoryServers, memory_servers

SETTINGS = ExporterSettings(every_ms=100, rows_max=1)
SETTLE_S_MAX = 5
LIMITS = Limits(soft_gpu_ms=0, hard_gpu_ms=0, concurrency=1)
CREATED = TenantCreated(
    name=Sealed("k", b"", b""),
    terms=PlanTerms(lane="standard", limits=LIMITS, price_version="2026-11"),
)


def exported(servers: MemoryServers) -> list[dict[str, str]]:
    bodies: dict[str, bytes] = servers.blobs.bodies
    return [
        row
        for key, body in sorted(bodies.items())
        if "/exports/csv/" in key
        for row in csv.DictReader(io.StringIO(body.decode()))
    ]


async def run_until(servers: MemoryServers, complete: Callable[[], Any]) -> None:
    """Run a new process until the condition holds. Raises what ends it."""
    running = asyncio.create_task(ExportHost(servers.runtime("exporter"), SETTINGS).run())
    try:
        async with asyncio.timeout(SETTLE_S_MAX):
            while not complete() and not running.done():  # noqa: ASYNC110  # of files
                await asyncio.sleep(0.01)
        if running.done():
            running.result()
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, MonthOpen, PriceMissing):
            await running


async def test_prices_that_come_while_it_runs_are_known() -> None:
    servers = await memory_servers()
    account, pool = JournalWriter(servers.log, 1, ACCOUNT), JournalWriter(servers.log, 2)
    written = False

    def complete() -> bool:
        nonlocal written
        if not written:
            account.append(PricesImported(book=BOOKS["2026-11"], sha256="ab" * 32))
            pool.append(sliced(lease(1)))
            written = True
        return bool(exported(servers))

    with suppress(PriceMissing):  # the pool was read first
        await run_until(servers, complete)
    await run_until(servers, complete)
    assert [row["kind"] for row in exported(servers)] == ["Usage"]


async def test_adjustments_and_taxes_are_exported_with_their_place() -> None:
    servers = await memory_servers()
    account = JournalWriter(servers.log, 1, ACCOUNT, key="acme")
    account.append(InvoiceAdjusted(period="2026-11", adjustment=ADJUSTMENT))
    offset = account.append(CLOSED)
    await run_until(servers, lambda: len(exported(servers)) == 4)
    rows = exported(servers)
    assert [row["description"] for row in rows][:1] == ["goodwill, T-1"]
    assert {(row["tenant"], row["partition"]) for row in rows} == {("acme", "1")}
    assert [int(row["offset"]) for row in rows][1:] == [offset] * 3


async def test_use_is_announced_to_tenants_that_subscribe_with_ids_that_stay() -> None:
    servers = await memory_servers()
    account = JournalWriter(servers.log, 1, ACCOUNT, key="acme")
    terms = EndpointTerms(
        endpoint_id="we_1", name=CREATED.name, url=CREATED.name, event_types=(USAGE_RECORDED,)
    )
    account.append(
        PricesImported(book=BOOKS["2026-11"], sha256="ab" * 32), EndpointCreated(terms=terms)
    )
    pool = JournalWriter(servers.log, 2)
    pool.append(sliced(lease(1), 10), sliced(lease(1), 20), sliced(lease(2, "other"), 30))
    await run_until(servers, lambda: newest(servers))
    (first,) = announced(servers)
    assert first["body"]["event"]["usage"]["gpu_ms"] == 30
    await run_until(servers, lambda: True)
    assert len(announced(servers)) == 1  # a complete range is not announced again
    del servers.blobs.bodies[newest(servers)]
    await run_until(servers, lambda: newest(servers))
    assert announced(servers) == [first, first]  # one that was not complete is


def newest(servers: MemoryServers) -> str:
    """Name of the object that says that a range of the pool is complete; empty: there is none."""
    names = [name for name in servers.blobs.bodies if name.startswith("exports/pool/2/new")]
    return names[0] if names else ""


def announced(servers: MemoryServers) -> list[dict[str, Any]]:
    """The commands to `account`, without what differs from one sending to the next."""
    partitions = servers.log.topics[ACCOUNT.commands.name]
    commands = [
        json.loads(record.value or b"") for partition in partitions for record in partition.records
    ]
    return [{key: command[key] for key in ("id", "tenant", "body")} for command in commands]


async def test_a_late_row_waits_for_the_closing_of_its_month() -> None:
    servers = await memory_servers()
    account = JournalWriter(servers.log, 1, ACCOUNT, key="acme")
    account.append(PricesImported(book=BOOKS["2026-11"], sha256="ab" * 32), CREATED)
    pool = JournalWriter(servers.log, 2, hour=HOUR + 31 * 24)
    pool.append(sliced(lease(1)))
    with pytest.raises(MonthOpen):
        await run_until(servers, lambda: exported(servers))
    statement = replace(CLOSED.statement, cut=(0,) * 8, bills=())
    account.append(InvoiceClosed(statement=statement))
    await run_until(servers, lambda: exported(servers))
    (key,) = {key for key in servers.blobs.bodies if "/exports/csv/" in key}
    assert "/2026-12/pool-2-" in key
