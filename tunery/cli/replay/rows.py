"""Rebuilds projections in a scratch schema, with the production code, and compares them in SQL."""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from schemas.access import schema_of
from schemas.streams import Stream
from tunery.cli.replay.catalogue import UNRECORDED
from tunery.platform.store.postgres import PostgresStore, connect_store, open_store
from tunery.runtime.bus.abstract import Log
from tunery.runtime.hosts.projector import Projection
from tunery.runtime.journal.reader import START, Accepted, JournalReader, Position
from tunery.runtime.store.abstract import RowBatch, SavedPosition, StreamPartition
from tunery.runtime.verbs import Change

CONNECTIONS_MAX: Final = 4
READ_WAIT_MS: Final = 1_000
ENTRIES_MAX: Final = 500
TODO_COLUMNS: Final = "kind, id, key, tenant, body"
DIFFERENCE: Final = """
SELECT * FROM (
    (SELECT 'live' AS side, t::text AS entry FROM (SELECT {columns} FROM {live}.{table} {where}) t
     EXCEPT ALL
     SELECT 'live', t::text FROM (SELECT {columns} FROM {scratch}.{table} {where}) t)
    UNION ALL
    (SELECT 'replayed', t::text FROM (SELECT {columns} FROM {scratch}.{table} {where} {said}) t
     EXCEPT ALL
     SELECT 'replayed', t::text FROM (SELECT {columns} FROM {live}.{table} {where} {said}) t)
) AS difference ORDER BY entry, side LIMIT 2
"""


@dataclass(frozen=True)
class TableComparison:
    """One table: its name, number of rows, and the first rows that only one side has."""

    name: str
    rows: int
    difference: str | None


@asynccontextmanager
async def scratch_store(dsn: str, service: str) -> AsyncIterator[tuple[PostgresStore, str]]:
    """A temporary schema beside the service's; it is dropped at the end."""
    schema = f"replay_{service}_{secrets.token_hex(4)}"
    store = await open_store(dsn, schema, CONNECTIONS_MAX)
    try:
        yield store, schema
    finally:
        await store.pool.execute(f"DROP SCHEMA {schema} CASCADE")
        await store.close()


async def compare(
    log: Log, dsn: str, service: str, projection: Projection
) -> tuple[TableComparison, ...]:
    """Every table of a projection, and its to-do rows, at the positions that are live now."""
    live = await connect_store(dsn, schema_of(service), CONNECTIONS_MAX)
    try:
        async with scratch_store(dsn, service) as (scratch, schema):
            await scratch.ensure(projection.described())
            targets = await live.positions(projection.name)
            await _rebuild(log, scratch, projection, targets)
            compared = [
                await _compare(scratch, live.schema, schema, table) for table in projection.tables
            ]
            compared.append(await _compare_todos(scratch, live.schema, schema, projection.name))
            return tuple(compared)
    finally:
        await live.close()


async def _rebuild(
    log: Log,
    store: PostgresStore,
    projection: Projection,
    targets: Mapping[StreamPartition, SavedPosition],
) -> None:
    for stream in projection.streams:
        for (name, partition), saved in sorted(targets.items()):
            if name == stream.name:
                await _fold(log, store, projection, stream, partition, saved.position)


async def _fold(
    log: Log,
    store: PostgresStore,
    projection: Projection,
    stream: Stream,
    partition: int,
    target: Position,
) -> None:
    """Commit everything before `target`. Raises Divergence, Unreadable."""
    reader = JournalReader(log, stream, {partition: START})
    await reader.open()
    try:
        at = START
        while at.offset < target.offset:
            batches = await reader.read(READ_WAIT_MS, min(ENTRIES_MAX, target.offset - at.offset))
            batch = batches.get(partition)
            if batch is None:
                continue
            await store.commit(
                RowBatch(
                    projection=projection.name,
                    version=projection.version,
                    partition=(stream.name, partition),
                    expected=at.offset,
                    position=batch.position,
                    changes=_changes(projection, batch.accepted),
                )
            )
            at = batch.position
    finally:
        await reader.close()


def _changes(projection: Projection, accepted: tuple[Accepted, ...]) -> list[Change]:
    return [
        change
        for entry in accepted
        for event in entry.events
        for change in projection.project(entry.header, event)
    ]


async def _compare_todos(
    store: PostgresStore, live: str, scratch: str, projection: str
) -> TableComparison:
    """Compare to-do rows. Rows of a kind in UNRECORDED may be missing on the live side."""
    where = f"WHERE projection = '{projection}'"
    unrecorded = ", ".join(f"'{kind}'" for kind in UNRECORDED)
    said = f"AND kind NOT IN ({unrecorded})"
    return await _compare(store, live, scratch, "todos", TODO_COLUMNS, where, said)


async def _compare(
    store: PostgresStore,
    live: str,
    scratch: str,
    table: str,
    columns: str = "*",
    where: str = "",
    said: str = "",
) -> TableComparison:
    """`said`: what must be on the live side as well. All names are ours: tables from the code,
    schemas made above.
    """
    query = DIFFERENCE.format(
        columns=columns, live=live, scratch=scratch, table=table, where=where, said=said
    )
    count = f"SELECT count(*) FROM {scratch}.{table} {where}"  # noqa: S608  # names are ours
    rows: Any = await store.pool.fetchval(count)
    different = await store.pool.fetch(query)
    text = "; ".join(f"only {row['side']}: {row['entry']}" for row in different) or None
    return TableComparison(f"{live}.{table}", int(rows), text)
