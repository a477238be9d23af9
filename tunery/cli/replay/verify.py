"""Verifies states of streams, rows of projections, and quota against ledger."""

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any, Final

import asyncpg
from msgspec import Struct

from tunery.cli.replay import rows, states
from tunery.cli.replay.catalogue import AGGREGATES, PROJECTIONS
from tunery.local import settings
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.runtime.bus.abstract import BusError
from tunery.runtime.bus.kafka import KafkaLog, KafkaSettings
from tunery.runtime.journal.acceptance import PartitionStopped

SETTLE_S_MAX: Final = 20  # a live system changes while we read: try again
SETTLE_PAUSE_S: Final = 1.0


class VerifiedPart(Struct, frozen=True, kw_only=True):
    """A stream or table that was rebuilt; `difference` is the first one, null when equal."""

    name: str
    count: int
    unit: str
    difference: str | None = None


class Verification(Struct, frozen=True, kw_only=True):
    equal: bool
    records: int
    parts: tuple[VerifiedPart, ...]


async def run(folders: DataDir) -> Verification:
    """Verify the stack of `folders`, or the servers that the environment names.

    Raises LocalError when there are none, or they do not answer.
    """
    bootstrap, dsn = servers(folders, os.environ)
    log = KafkaLog(KafkaSettings(bootstrap))
    try:
        return await until_settled(log, dsn)
    except asyncpg.UndefinedTableError as error:
        raise LocalError(
            f"the database has no tables of the services ({error})", "start them with `tunery up`"
        ) from error
    except (BusError, OSError, asyncpg.PostgresError) as error:
        raise LocalError(
            f"Kafka at {bootstrap} or its PostgreSQL does not answer: {error}",
            "see `tunery status`; start the stack with `tunery up`",
        ) from error
    finally:
        await log.close()


def servers(folders: DataDir, environ: Mapping[str, str]) -> tuple[str, str]:
    """Kafka's address and PostgreSQL's, as the environment or the stack says. Raises LocalError."""
    bootstrap, dsn = environ.get("TUNERY_KAFKA_BOOTSTRAP"), environ.get("TUNERY_POSTGRES_DSN")
    if bootstrap and dsn:
        return bootstrap, dsn
    stack_settings = settings.of_stack(folders, environ)
    return stack_settings.kafka_bootstrap, stack_settings.postgres_dsn


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
    """How far every projection has read: equal lists mean that nothing moved in between."""
    connection = await asyncpg.connect(dsn)
    try:
        saved: list[Any] = []
        for service in sorted(PROJECTIONS):
            query = f"SELECT * FROM {service}.positions ORDER BY 1, 2, 3"  # noqa: S608  # our names
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
