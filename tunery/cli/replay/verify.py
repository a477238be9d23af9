"""Verifies states of streams, rows of projections, and quota against ledger."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
from msgspec import Struct

from schemas.access import schema_of
from schemas.units import GpuMs, month_of
from tunery.cli._verification import VerifiedPart, open_servers
from tunery.cli.replay import rows
from tunery.cli.replay.catalogue import AGGREGATES, PROJECTIONS
from tunery.local.paths import DataDir
from tunery.runtime.bus.abstract import Log
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.codec import state_hash
from tunery.runtime.tools.verify import Replay, replay_stream
from tunery.runtime.verbs import Aggregate

# Folds every stream from offset 0 and compares the state with its owner's digest.

DIGESTS: Final = "SELECT partition, journal_offset, state_hash FROM {}.digests WHERE stream = $1"
LEDGER: Final = """
SELECT tenant, hour_utc, sum(gpu_ms)::bigint AS gpu_ms FROM billing.ledger GROUP BY 1, 2
"""


@dataclass(frozen=True)
class StreamComparison:
    stream: str
    replays: tuple[Replay[Any], ...]
    # partitions whose owner has not written a digest of the latest state yet
    behind: tuple[int, ...]
    difference: str | None  # the first difference; None when the states are equal

    @property
    def accepted(self) -> int:
        return sum(replay.accepted for replay in self.replays)

    @property
    def void(self) -> int:
        return sum(replay.void for replay in self.replays)


async def compare(
    log: Log, connection: "asyncpg.Connection[Any]", service: str, aggregate: Aggregate[Any]
) -> StreamComparison:
    """Compare every partition of a stream. Raises Divergence, Unreadable."""
    replays = await replay_stream(log, aggregate)
    digests = await connection.fetch(DIGESTS.format(service), aggregate.stream.name)
    live = {row["partition"]: (row["journal_offset"], row["state_hash"]) for row in digests}
    behind, difference = [], None
    for replay in replays:
        offset, hashed = live.get(replay.partition, (-1, ""))
        replayed = state_hash(replay.fold.state)
        if offset != replay.fold.position.offset:
            behind.append(replay.partition)
        elif hashed != replayed and difference is None:
            difference = (
                f"partition {replay.partition} at offset {offset}: the owner has {hashed[:16]}…, "
                f"the replay {replayed[:16]}…"
            )
    return StreamComparison(aggregate.stream.name, tuple(replays), tuple(behind), difference)


async def ledger_by_month(
    connection: "asyncpg.Connection[Any]",
) -> dict[tuple[str, str], GpuMs]:
    """Sums of the ledger by tenant and month, which begins and ends where the quota's does."""
    sums: dict[tuple[str, str], GpuMs] = {}
    for row in await connection.fetch(LEDGER):
        tenant_month = row["tenant"], month_of(row["hour_utc"])
        sums[tenant_month] = sums.get(tenant_month, 0) + row["gpu_ms"]
    return sums


def quota_by_month(replays: Sequence[Replay[Any]]) -> dict[tuple[str, str], GpuMs]:
    """Return used GPU-ms by tenant and month from replayed states of the `job` decider."""
    return {
        (name, month): gpu_ms
        for replay in replays
        for name, tenant in replay.fold.state.items()
        for month, gpu_ms in tenant.used_gpu_ms.items()
    }


def unequal(
    quota: Mapping[tuple[str, str], GpuMs], ledger: Mapping[tuple[str, str], GpuMs]
) -> str | None:
    """The first tenant and month where the quota and the bill differ."""
    for tenant, month in sorted(quota.keys() | ledger.keys()):
        counted, billed = quota.get((tenant, month), 0), ledger.get((tenant, month), 0)
        if counted != billed:
            return f"{tenant}, {month}: quota {counted} GPU-ms, ledger {billed} GPU-ms"
    return None


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


async def until_settled(log: Log, dsn: str, wait_s_max: float = SETTLE_S_MAX) -> Verification:
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


async def verify(log: Log, dsn: str) -> tuple[Verification, bool]:
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
    log: Log, connection: "asyncpg.Connection[Any]"
) -> tuple[list[VerifiedPart], int, bool]:
    parts, records, behind = [], 0, False
    quota: dict[tuple[str, str], int] = {}
    for service, aggregates in AGGREGATES.items():
        for aggregate in aggregates:
            name = f"{service}.{aggregate.stream.name}"
            try:
                state = await compare(log, connection, service, aggregate)
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
                quota = quota_by_month(state.replays)
    ledger = await ledger_by_month(connection)
    difference = unequal(quota, ledger)
    count = sum(quota.values())
    parts.append(
        VerifiedPart(name="quota = ledger", count=count, unit="GPU-ms", difference=difference)
    )
    return parts, records, behind
