"""Folds every stream from offset 0 and compares the state with its owner's digest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from schemas.units import GpuMs, month_of
from tunery.runtime.bus.abstract import Log
from tunery.runtime.journal.codec import state_hash
from tunery.runtime.tools.verify import Replay, replay_stream
from tunery.runtime.verbs import Aggregate

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
