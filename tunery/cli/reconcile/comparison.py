"""Log, ledger, answers, job costs and invoices, compared by the event that each amount comes from.

The rows that should be there are made of the log with the projections that billing and the gateway
run; invoices are made of the ledger, and closed ones compared with their facts on the log.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import asyncpg
from msgspec import Struct, to_builtins

from schemas.access import schema_of
from schemas.account import InvoiceClosed
from schemas.envelope import Header
from schemas.streams import Stream
from schemas.topics import ACCOUNT, POOL
from schemas.units import HOUR_MS
from services.billing.adapters.ledger import read_invoices, read_prices
from services.billing.app import LEDGER, TENANTS
from services.billing.project import project_ledger, project_tenants
from services.gateway.views.host import VIEWS_PROJECTION
from services.gateway.views.projections.pool import project_pool
from services.gateway.views.tables.jobs import USAGE
from tunery.billing.invoice import Altered, Invoice
from tunery.billing.lines import HourlyPrices, JobCosts, PricedJob, PricedUse, PriceMissing
from tunery.billing.periods import period, period_of
from tunery.cli._verification import VerifiedPart, open_servers
from tunery.local.paths import DataDir
from tunery.runtime.bus.abstract import Log
from tunery.runtime.journal.history import read_history
from tunery.runtime.verbs import Change, Upsert

POSITIONS: Final = """
SELECT partition, next_offset FROM {schema}.positions WHERE projection = $1 AND stream = $2
"""
Row = Mapping[str, Any]


class Reconciliation(Struct, frozen=True, kw_only=True):
    equal: bool
    parts: tuple[VerifiedPart, ...]


class LoggedEvent(Struct, frozen=True):
    """An accepted event and where it is."""

    header: Header
    event: Any


async def run(folders: DataDir) -> Reconciliation:
    """Compare the stack of `folders`, or the servers that the environment names.

    Raises LocalError when there are none, or they do not answer.
    """
    async with open_servers(folders) as (log, dsn):
        return await reconcile(log, dsn)


async def reconcile(log: Log, dsn: str) -> Reconciliation:
    """Compare everything as of one snapshot of the database."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "billing"})
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            pool = await _read(log, POOL)
            billed = await _until(connection, "billing", LEDGER.name, POOL, pool)
            viewed = await _until(
                connection, schema_of("gateway"), VIEWS_PROJECTION.name, POOL, pool
            )
            ledger = await _compare_rows(
                connection, "billing.ledger", "ledger", project_ledger, billed
            )
            costs = await _compare_rows(
                connection, f"{schema_of('gateway')}.usage", USAGE.name, project_pool, viewed
            )
            facts = await _read(log, ACCOUNT)
            counted = await _until(connection, "billing", TENANTS.name, ACCOUNT, facts)
            answers = await compare_answers(connection, counted)
            invoices = await _compare_invoices(connection, billed, facts)
    finally:
        await connection.close()
    parts = (ledger, costs, answers, *invoices)
    return Reconciliation(equal=all(part.difference is None for part in parts), parts=parts)


async def _read(log: Log, stream: Stream) -> list[LoggedEvent]:
    """All events of a stream up to where its journal ends now."""
    return [
        LoggedEvent(entry.header, event)
        async for entry in read_history(log, stream)
        for event in entry.events
    ]


async def _until(
    connection: Any, schema: str, projection: str, stream: Stream, events: Sequence[LoggedEvent]
) -> list[LoggedEvent]:
    """The events of a stream that a projection has read."""
    rows = await connection.fetch(POSITIONS.format(schema=schema), projection, stream.name)
    ends = {row["partition"]: row["next_offset"] for row in rows}
    return [
        logged for logged in events if logged.header.offset < ends.get(logged.header.partition, 0)
    ]


async def compare_answers(connection: Any, events: Sequence[LoggedEvent]) -> VerifiedPart:
    """Tokens of answers in billing with those on the log. events: of `account`."""
    return await _compare_rows(
        connection, "billing.answers", "answers", project_tenants, events, ACCOUNT
    )


async def _compare_rows(
    connection: Any,
    table: str,
    name: str,
    project: Callable[[Header, Any], Iterable[Change]],
    events: Sequence[LoggedEvent],
    stream: Stream = POOL,
) -> VerifiedPart:
    expected: dict[tuple[Any, ...], tuple[Row, str]] = {}
    columns: tuple[str, ...] = ()
    for logged in events:
        for change in project(logged.header, logged.event):
            if isinstance(change, Upsert) and change.table == name:
                row = to_builtins({**change.key, **change.values})
                columns = tuple(change.key)
                expected[tuple(change.key.values())] = row, event_name(logged.header, stream)
    rows = await connection.fetch(f"SELECT * FROM {table}")  # noqa: S608  # our tables
    actual = {tuple(row[column] for column in columns): dict(row) for row in rows}
    return VerifiedPart(
        name=f"log = {table}",
        count=len(rows),
        unit="rows",
        difference=first_difference(table, expected, actual, stream),
    )


def first_difference(
    table: str,
    expected: Mapping[Any, tuple[Row, str]],
    actual: Mapping[Any, Row],
    stream: Stream = POOL,
) -> str | None:
    """The first row, in the order of the log, that a table lacks or has otherwise; else one that
    no event leads to.
    """
    for key, (row, event) in expected.items():
        if key not in actual:
            return f"{event}: {table} has no row of it"
        for column, value in row.items():
            if actual[key][column] != value:
                return f"{event}: {column} is {value} in the log, {actual[key][column]} in {table}"
    for key in sorted(actual.keys() - expected.keys(), key=str):
        topic, row = stream.journal.name, actual[key]
        event = f"{topic}/{row['journal_partition']}@{row['journal_offset']}"
        return f"{event}: {table} has a row of it, the log no event"
    return None


def event_name(header: Header, stream: Stream = POOL) -> str:
    return f"{stream.journal.name}/{header.partition}@{header.offset}"


async def _compare_invoices(
    connection: Any, pool: Sequence[LoggedEvent], facts: Sequence[LoggedEvent]
) -> tuple[VerifiedPart, VerifiedPart]:
    """Each closed invoice with its fact; and what all invoices have of a job with its cost."""
    costs_of: dict[str, JobCosts] = {}
    prices = HourlyPrices(await read_prices(connection))
    first_events: dict[tuple[str, PricedJob], str] = {}
    hours: dict[str, list[int]] = {}
    for logged in pool:
        for change in project_ledger(logged.header, logged.event):
            if not isinstance(change, Upsert):
                continue
            row = change.values
            job = PricedJob(row["job_id"], row["lane"], row["price_version"])
            hardware = (row["device"], row["accelerator"], row["spot"])
            of_tenant = costs_of.setdefault(row["tenant"], JobCosts(prices))
            of_tenant.add_time(PricedUse(job, row["role"], *hardware), row["gpu_ms"])
            of_tenant.add_tokens(job, row["tokens"])
            first_events.setdefault((row["tenant"], job), event_name(logged.header))
            hours.setdefault(row["tenant"], []).append(change.key["hour_utc"])
    closed = {
        (logged.header.key, logged.event.statement.period): event_name(logged.header, ACCOUNT)
        for logged in facts
        if isinstance(logged.event, InvoiceClosed)
    }
    hours = compared_from(hours, closed)
    billed: Counter[tuple[str, PricedJob]] = Counter()
    count, difference = 0, None
    for tenant in sorted(hours):
        month, last = period_of(min(hours[tenant]) * HOUR_MS), max(hours[tenant])
        while month.first_hour <= last or (tenant, month.name) in closed:
            try:
                invoices = await read_invoices(connection, tenant, month)
            except (Altered, PriceMissing) as error:
                fact = closed.get((tenant, month.name), "not closed")
                difference = difference or f"{fact}: {error}"
                invoices = ()
            count += len(invoices)
            _add(billed, tenant, invoices)
            month = month.following()
        for invoice in await read_invoices(connection, tenant, month):
            _add(billed, tenant, (invoice,))  # what came late is on the first that is not closed
    costs = {
        (tenant, job): micro
        for tenant, of_tenant in costs_of.items()
        for job, micro in of_tenant.costs().items()
    }
    wrong = next((key for key in costs if costs[key] != billed[key]), None)
    text = None
    if wrong is not None and difference is None:
        text = (
            f"{first_events[wrong]}: {wrong[1].job_id} of {wrong[0]} costs {costs[wrong]} "
            f"millionths, invoices have {billed[wrong]}"
        )
    return (
        VerifiedPart(name="invoices = facts", count=count, unit="invoices", difference=difference),
        VerifiedPart(name="invoices = job costs", count=len(costs), unit="jobs", difference=text),
    )


def compared_from(
    hours: Mapping[str, Sequence[int]], closed: Iterable[tuple[str, str]]
) -> dict[str, list[int]]:
    """Hours of each tenant with those of its closed months, on which there may be answers alone."""
    all_hours = {tenant: [*known] for tenant, known in hours.items()}
    for tenant, month in closed:
        all_hours.setdefault(tenant, []).append(period(month).first_hour)
    return all_hours


def _add(billed: Counter[tuple[str, PricedJob]], tenant: str, invoices: Iterable[Invoice]) -> None:
    for invoice in invoices:
        for line in invoice.lines:
            job = PricedJob(line.job_id, line.lane, line.price_version)
            billed[tenant, job] += line.amount_micro
