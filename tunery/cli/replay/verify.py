"""Verifies states of streams, rows of projections, and quota against ledger."""

import asyncio
import time
from typing import Any, Final

import asyncpg
from msgspec import Struct

from schemas.access import schema_of
from tunery.cli._verification import VerifiedPart, open_servers
from tunery.cli.replay import rows, states
from tunery.cli.replay.catalogue import AGGREGATES, PROJECTIONS
from tunery.local.paths import DataDir
from tunery.platform.bus.kafka import KafkaLog
from tunery.runtime.journal.acceptance import PartitionStopped

SETTLE_S_MAX: Final = 20  # a live system changes while we read: try again
SETTLE_PAUSE_S: Final = 1.0


class Verification(Struct, frozen=True, kw_only=True):
    equal: bool
    records: int
    parts: tuple[VerifiedPart, ...]


async def run(folders: DataDir) -> Verification:
    """Verify the stack of `folders`, or the servers that the environment names.

    Raises LocalError when there are none, or they do not answer.
    """
    async with open_servers(folders) as (log, dsn):
        return await until_settled(log, dsn)


async def until_settled(log: KafkaLog, dsn: str, wait_s_max: float = SETTLE_S_MAX) -> Verification:
    """Verify until the result is equal, or a difference lasts while nothing else changes."""
    deadline = time.monotonic() + wait_s_max
    while True:
        before = await positions(dsn)
        verification, behind = await verify(log, dsn)
        still = before == await positions(dsn)
        if (verification.equal and not behind) or time.monotonic() > deadline:
            return verification
        if still and not behind:
            return verification
        await asyncio.sleep(SETTLE_PAUSE_S)


async def positions(dsn: str) -> list[Any]:
    """Positions of all projections: equal lists mean that nothing moved in between."""
    connection = await asyncpg.connect(dsn)
    try:
        saved: list[Any] = []
        for service in sorted(PROJECTIONS):
            query = f"SELECT * FROM {schema_of(service)}.positions ORDER BY 1, 2, 3"  # noqa: S608  # our names
            saved += [tuple(row) for row in await connection.fetch(query)]
        return saved
    finally:
        await connection.close()


async def verify(log: KafkaLog, dsn: str) -> tuple[Verification, bool]:
    """Verify once; also return whether an owner's digest is older than its journal."""
    connection = await asyncpg.connect(dsn)
    try:
        parts, records, behind = await _states(log, connection)
    finally:
        await connection.close()
    for service, projections in PROJECTIONS.items():
        for projection in projections:
            for table in await rows.compare(log, dsn, service, projection):
                part = VerifiedPart(
                    name=table.name, count=table.rows, unit="rows", difference=table.difference
                )
                parts.append(part)
    equal = not behind and all(part.difference is None for part in parts)
    return Verification(equal=equal, records=records, parts=tuple(parts)), behind


async def _states(
    log: KafkaLog, connection: "asyncpg.Connection[Any]"
) -> tuple[list[VerifiedPart], int, bool]:
    parts, records, behind = [], 0, False
    quota: dict[tuple[str, str], int] = {}
    for service, aggregates in AGGREGATES.items():
        for aggregate in aggregates:
            name = f"{service}.{aggregate.stream.name}"
            try:
                state = await states.compare(log, connection, service, aggregate)
            except PartitionStopped as stopped:
                parts.append(
                    VerifiedPart(name=name, count=0, unit="records", difference=str(stopped))
                )
                continue
            late = f"partitions {state.behind} not written by their owner yet"
            difference = late if state.behind else state.difference
            part = VerifiedPart(
                name=name, count=state.accepted, unit="records", difference=difference
            )
            parts.append(part)
            records += state.accepted
            behind = behind or bool(state.behind)
            if aggregate.stream.name == "job":
                quota = states.quota_by_month(state.replays)
    ledger = await states.ledger_by_month(connection)
    difference = states.unequal(quota, ledger)
    count = sum(quota.values())
    parts.append(
        VerifiedPart(name="quota = ledger", count=count, unit="GPU-ms", difference=difference)
    )
    return parts, records, behind
