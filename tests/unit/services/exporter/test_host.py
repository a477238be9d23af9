"""Export of `account`, and the facts that the host reads from it."""

import asyncio
import csv
import io
import json
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.account import (
    USAGE_RECORDED,
    DeliveryDue,
    DeliveryReport,
    EndDelivery,
    EndpointCreated,
    InvoiceAdjusted,
    InvoiceClosed,
    Limits,
    PlanTerms,
    PricesImported,
    TenantCreated,
)
from schemas.endpoints import EndpointTerms
from schemas.envelope import Repeated
from schemas.sealed import Sealed
from schemas.session import TOKEN_KINDS
from schemas.topics import ACCOUNT, POOL, SESSION
from services.billing.app import ACCOUNTS
from services.exporter.domain.accounts import AccountFacts
from services.exporter.domain.focus import ExportedCharge, charges_of_use
from services.exporter.host import ExportHost
from services.exporter.journal_export import JournalExport, OpenRange
from services.exporter.settings import ExporterSettings
from tests.unit.services.billing.domain.test_decide import after, create_endpoint, create_tenant
from tests.unit.services.exporter.domain.test_invoices import ADJUSTMENT, CLOSED
from tests.unit.services.exporter.domain.test_sessions import answered
from tests.unit.services.exporter.journals import BOOKS, HOUR, JournalWriter, lease, sliced
from tunery.billing.lines import PriceMissing
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.runtime.bus.abstract import Record
from tunery.runtime.journal.decision import decide_record
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.reader import Accepted

SETTINGS = ExporterSettings(every_ms=100, rows_max=1)
SETTLE_S_MAX = 180
WAIT_S = 0.5
LATER = HOUR + 31 * 24  # in the month after
LIMITS = Limits(soft_gpu_ms=0, hard_gpu_ms=0, concurrency=1)
CREATED = TenantCreated(
    name=Sealed("k", b"", b""),
    terms=PlanTerms(lane="standard", limits=LIMITS, price_version="2026-11"),
)

CLOSED_EARLIER = InvoiceClosed(statement=replace(CLOSED.statement, cut=(0,) * 8, bills=()))


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
        with suppress(asyncio.CancelledError, PriceMissing):
            await running


async def run_for(servers: MemoryServers, seconds: float) -> None:
    """Run a new process for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await ExportHost(servers.runtime("exporter"), SETTINGS).run()


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


async def test_review2_w2_a_range_of_another_process_is_no_failure_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two exporters overlap in every update: one of them failed, with an error in its log."""
    servers = await memory_servers()
    account = JournalWriter(servers.log, 1, ACCOUNT)
    account.append(PricesImported(book=BOOKS["2026-11"], sha256="ab" * 32))
    JournalWriter(servers.log, 2).append(sliced(lease(1)))
    close_range, ended = JournalExport._close_range, list[str]()

    async def close_after_another(
        export: JournalExport, partition: int, opened: OpenRange
    ) -> OpenRange:
        if not ended:
            ended.append("by another process")
            await close_range(export, partition, opened)
        return await close_range(export, partition, opened)

    monkeypatch.setattr(JournalExport, "_close_range", close_after_another)
    await run_until(servers, lambda: len(ended) == 1 and exported(servers))
    await run_for(servers, WAIT_S)
    assert [row["kind"] for row in exported(servers)] == ["Usage"]


async def test_adjustments_and_taxes_are_exported_with_their_place() -> None:
    servers = await memory_servers()
    account = JournalWriter(servers.log, 1, ACCOUNT, key="acme")
    account.append(InvoiceAdjusted(period="2026-11", adjustment=ADJUSTMENT))
    offset = account.append(CLOSED)
    await run_until(servers, lambda: len(exported(servers)) == 6)
    rows = exported(servers)
    assert [row["description"] for row in rows][:1] == ["goodwill, T-1"]
    assert {(row["tenant"], row["partition"]) for row in rows} == {("acme", "1")}
    assert [int(row["offset"]) for row in rows][1:] == [offset] * 5


async def test_use_is_announced_to_tenants_that_subscribe_with_ids_that_stay() -> None:
    servers, pool = await subscribed()
    pool.append(sliced(lease(1), 10), sliced(lease(1), 20), sliced(lease(2, "other"), 30))
    await run_until(servers, lambda: newest(servers))
    (first,) = announced(servers)
    assert first["body"]["event"]["usage"]["gpu_ms"] == 30
    await run_until(servers, lambda: True)
    assert len(announced(servers)) == 1  # a complete range is not announced again
    del servers.blobs.bodies[newest(servers)]
    await run_until(servers, lambda: newest(servers))
    assert announced(servers) == [first, first]  # one that was not complete is


async def test_tokens_of_a_session_are_exported_once_and_announced_by_kind() -> None:
    servers, _ = await subscribed()
    session = JournalWriter(servers.log, 4, SESSION, key="session-1", tenant="acme")
    offset = session.append(answered(trained=100))
    session.append(answered(prefilled=25, sampled=7))
    await run_until(servers, lambda: len(exported(servers)) == 2)
    await run_for(servers, WAIT_S)  # of a second process
    rows = exported(servers)
    kinds = [[int(row[kind]) for kind in TOKEN_KINDS] for row in rows]
    assert sorted(kinds) == [[0, 25, 7], [100, 0, 0]]
    assert {(row["job_id"], Decimal(row["amount"]), row["gpu_ms"]) for row in rows} == {
        ("session-1", Decimal(), "")
    }
    assert str(offset) in {row["offset"] for row in rows}
    uses = [command["body"]["event"]["usage"] for command in announced(servers)]
    assert {use["gpu_ms"] for use in uses} == {0}
    sums = [sum(use["session"][kind] for use in uses) for kind in TOKEN_KINDS]
    assert sums == [100, 25, 7]


async def test_use_that_is_announced_again_after_its_delivery_is_not_delivered_again() -> None:
    servers, pool = await subscribed()
    pool.append(sliced(lease(1), 10))
    await run_until(servers, lambda: newest(servers))
    del servers.blobs.bodies[newest(servers)]
    await run_until(servers, lambda: newest(servers))
    first, again = account_commands(servers)
    fold = Fold(after(create_tenant(), create_endpoint("we_1", USAGE_RECORDED)))
    decided = decide_record(ACCOUNTS, fold, first, 0)
    (due,) = decided.events
    assert isinstance(due, DeliveryDue)
    report = DeliveryReport(delivery_id=due.delivery_id, outcome="delivered", attempts=1)
    ended = after(EndDelivery(report=report), state=decided.fold.state)
    (repeated,) = decide_record(ACCOUNTS, replace(decided.fold, state=ended), again, 1).events
    assert isinstance(repeated, Repeated)


async def subscribed() -> tuple[MemoryServers, JournalWriter]:
    """Servers where a tenant has an endpoint for use, and the pool's journal."""
    servers = await memory_servers()
    account = JournalWriter(servers.log, 1, ACCOUNT, key="acme")
    terms = EndpointTerms(
        endpoint_id="we_1", name=CREATED.name, url=CREATED.name, event_types=(USAGE_RECORDED,)
    )
    account.append(
        PricesImported(book=BOOKS["2026-11"], sha256="ab" * 32), EndpointCreated(terms=terms)
    )
    return servers, JournalWriter(servers.log, 2)


def newest(servers: MemoryServers) -> str:
    """Name of the object that says that a range of the pool is complete; empty: there is none."""
    names = [name for name in servers.blobs.bodies if name.startswith("exports/pool/2/new")]
    return names[0] if names else ""


def announced(servers: MemoryServers) -> list[dict[str, Any]]:
    """The commands to `account`, without what differs from one sending to the next."""
    commands = [json.loads(record.value) for record in account_commands(servers)]
    return [{key: command[key] for key in ("id", "tenant", "body")} for command in commands]


def account_commands(servers: MemoryServers) -> list[Record]:
    partitions = servers.log.topics[ACCOUNT.commands.name]
    return [record for partition in partitions for record in partition.records]


def late_world(servers: MemoryServers) -> tuple[JournalWriter, JournalWriter]:
    """The journals of a tenant's account, and of a pool's partition a month later."""
    account = JournalWriter(servers.log, 1, ACCOUNT, key="acme")
    account.append(PricesImported(book=BOOKS["2026-11"], sha256="ab" * 32), CREATED)
    return account, JournalWriter(servers.log, 2, hour=LATER)


def exported_jobs(servers: MemoryServers) -> list[str]:
    return sorted(row["job_id"] for row in exported(servers))


async def test_a_late_row_waits_for_the_closing_of_its_month() -> None:
    servers = await memory_servers()
    account, pool = late_world(servers)
    pool.append(sliced(lease(1, "unknown")))  # of tenants without closed months
    pool.append(sliced(lease(2)))
    pool.append(sliced(lease(3), hour=LATER))
    other = JournalWriter(servers.log, 3, hour=LATER)
    other.append(sliced(lease(4), hour=LATER))
    for _ in range(2):  # a new process waits at the same row
        await run_until(servers, lambda: len(exported(servers)) == 2)
        await run_for(servers, WAIT_S)
        assert exported_jobs(servers) == ["ftjob-1", "ftjob-4"]
    account.append(CLOSED_EARLIER)
    await run_until(servers, lambda: len(exported(servers)) == 4)
    assert exported_jobs(servers) == ["ftjob-1", "ftjob-2", "ftjob-3", "ftjob-4"]
    keys = [key for key in servers.blobs.bodies if key.startswith("t/acme/exports/csv/")]
    assert all("/2026-12/pool-" in key for key in keys)


async def test_a_process_that_waits_for_a_month_goes_on_by_itself_when_it_is_closed() -> None:
    servers = await memory_servers()
    account, pool = late_world(servers)
    pool.append(sliced(lease(1)))
    other = JournalWriter(servers.log, 3, hour=LATER)
    closed = False

    def complete() -> bool:
        nonlocal closed
        if exported(servers) and not closed:  # the other partition's, so this one waits
            assert exported_jobs(servers) == ["ftjob-2"]
            account.append(CLOSED_EARLIER)
            pool.append(sliced(lease(3), hour=LATER))
            closed = True
        return len(exported(servers)) == 3

    other.append(sliced(lease(2), hour=LATER))
    await run_until(servers, complete)
    assert exported_jobs(servers) == ["ftjob-1", "ftjob-2", "ftjob-3"]


async def test_a_partition_that_waits_is_not_read_on() -> None:
    servers = await memory_servers()
    _, pool = late_world(servers)
    first = pool.append(sliced(lease(1)))
    for number in range(2_000):
        pool.append(sliced(lease(number), hour=LATER))
    known = AccountFacts()
    known.fold("acme", CREATED)
    known.fold("", PricesImported(book=BOOKS["2026-11"], sha256="ab" * 32))
    asked: list[int] = []

    def charges(entry: Accepted) -> list[ExportedCharge]:
        asked.append(entry.header.offset)
        (event,) = entry.events
        return list(charges_of_use(entry.header, event, known, "Tunery"))

    export = JournalExport(servers.runtime("exporter"), SETTINGS, POOL, charges)
    await export.open()
    for _ in range(10):
        await export.step(1)
    assert set(asked) == {first}
    known.fold("acme", CLOSED_EARLIER)
    while len(set(asked)) <= 2_000:
        await export.step(1)
    assert list(dict.fromkeys(asked)) == list(range(first, first + 2_001))
    await export.close()
