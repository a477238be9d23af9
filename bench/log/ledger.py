"""Usage slices into the ledger, and the same statements written bare, batch by batch in turn.

Ours: billing's `project`, the plan of changes, the store's transaction. Bare: rows as dicts, the
same two statements in a transaction. Both wait for PostgreSQL's disk at each commit, which
services do not (the log is the truth), so neither is flattered by that.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import asyncpg
import msgspec

from bench.log.jobs import BEGIN_MS, PARTITION
from schemas.envelope import Header
from schemas.pool import LeaseRef, Token, UsageSliced
from schemas.topics import POOL
from schemas.units import HOUR_MS
from services.billing.app import LEDGER
from services.billing.project import project_ledger
from tunery.platform.store.postgres import PostgresStore, open_store
from tunery.platform.store.rows import upsert_sql
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import CommitResult, RowBatch
from tunery.runtime.store.changes import fold

BATCH: Final = 500
OURS: Final = "bench_ledger"
BARE: Final = "bench_bare"
STREAM_PARTITION: Final = (POOL.name, PARTITION)
ADVANCE: Final = """
UPDATE positions SET next_offset = $5, position = $6
WHERE projection = $1 AND stream = $2 AND partition = $3 AND next_offset = $4
"""
Slice = tuple[Header, UsageSliced]


async def measure(dsn: str, batches: int) -> dict[str, float]:
    """Slices per second, ours and bare."""
    pools = [await _prepare(dsn, schema) for schema in (OURS, BARE)]
    store = PostgresStore(pools[0], dsn, OURS)
    await store.ensure(LEDGER.described())
    statement = _statement()
    spent = [0.0, 0.0]
    try:
        for number in range(batches):
            slices = list(slices_from(number * BATCH))
            turns = [(0, _commit(store, number * BATCH, slices))]
            turns += [(1, _commit_bare(pools[1], statement, number * BATCH, slices))]
            for side, commit in turns if number % 2 else reversed(turns):
                began = time.perf_counter()
                await commit
                spent[side] += time.perf_counter() - began
    finally:
        for pool in pools:
            await pool.close()
    ours, bare = (batches * BATCH / seconds for seconds in spent)
    return {"ledger_events_per_s": ours, "bare_ledger_events_per_s": bare}


async def _prepare(dsn: str, schema: str) -> Any:
    """A pool of one connection that waits for the disk, on a schema with an empty ledger."""
    store = await open_store(dsn, schema, 1)
    await store.ensure(LEDGER.described())
    await store.close()
    settings = {"search_path": schema, "synchronous_commit": "on"}
    return await asyncpg.create_pool(dsn, min_size=1, max_size=1, server_settings=settings)


def slices_from(first: int) -> Iterator[Slice]:
    """A batch of usage slices of 200 tenants, with offsets from `first` on."""
    for offset in range(first, first + BATCH):
        event = UsageSliced(
            lease=LeaseRef(
                token=Token(pool="default", lease=offset),
                tenant=f"tenant-{offset % 200}",
                job_id=f"ftjob-{offset:08d}",
                attempt=1,
                role="train",
                lane="standard",
                price_version="2026-11",
            ),
            hour_utc=BEGIN_MS // HOUR_MS + offset % 24,
            used_gpu_ms=600_000,
            billable_gpu_ms=600_000,
        )
        header = Header(
            stream=POOL.name,
            partition=PARTITION,
            offset=offset,
            at=BEGIN_MS + offset,
            key="default",
            tenant="",
            seq=offset + 1,
            command_id="00000000-0000-4000-8000-000000000000",
            incarnation=0,
        )
        yield header, event


async def _commit(store: PostgresStore, first: int, slices: Sequence[Slice]) -> None:
    changes = [change for header, event in slices for change in project_ledger(header, event)]
    position = Position(first + BATCH)
    batch = RowBatch(LEDGER.name, LEDGER.version, STREAM_PARTITION, first, position, changes)
    if await store.commit(batch) is not CommitResult.DONE:
        raise RuntimeError("another process writes this ledger")


def _statement() -> str:
    """The store's own upsert of ledger rows."""
    header, event = next(slices_from(0))
    group = fold(project_ledger(header, event)).upserts[0]
    return upsert_sql(group.table, group.key, group.columns, insertable=True)


def bare_row(header: Header, event: UsageSliced) -> dict[str, object]:
    """A row of the ledger as a loop without projections would write it."""
    return {
        "journal_partition": header.partition,
        "incarnation": header.incarnation,
        "journal_offset": header.offset,
        "pool": event.lease.token.pool,
        "lease": event.lease.token.lease,
        "hour_utc": event.hour_utc,
        "kind": "usage",
        "cause": "",
        "tenant": event.lease.tenant,
        "job_id": event.lease.job_id,
        "attempt": event.lease.attempt,
        "role": event.lease.role,
        "lane": event.lease.lane,
        "price_version": event.lease.price_version,
        "at": header.at,
        "used_gpu_ms": event.used_gpu_ms,
        "gpu_ms": event.billable_gpu_ms,
        "device": "cpu",
        "accelerator": "",
        "spot": False,
        "tokens": 0,
    }


async def _commit_bare(pool: Any, statement: str, first: int, slices: Sequence[Slice]) -> None:
    rows = [bare_row(header, event) for header, event in slices]
    position = Position(first + BATCH)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            ADVANCE,
            LEDGER.name,
            *STREAM_PARTITION,
            first,
            position.offset,
            position.dump(),
        )
        await connection.execute(statement, msgspec.json.encode(rows).decode())
