"""Reads the ledger in PostgreSQL."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from schemas.units import GpuMs
from services.billing.domain.invoice import LedgerRow, Period

ROWS = """
SELECT kind, job_id, role, lane, price_version, hour, used_gpu_ms, gpu_ms, cause
FROM ledger WHERE tenant = $1 AND hour >= $2 AND hour < $3
ORDER BY hour, job_id, journal_partition, incarnation, journal_offset, lease, kind, cause
"""


class Connection(Protocol):
    """What is used of an asyncpg connection or pool; its search path names billing's schema."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]: ...


async def read_rows(connection: Connection, tenant: str, month: Period) -> tuple[LedgerRow, ...]:
    found = await connection.fetch(ROWS, tenant, month.first_hour, month.end_hour)
    return tuple(msgspec.convert(dict(row), LedgerRow) for row in found)


async def soft_limit(connection: Connection, tenant: str) -> GpuMs | None:
    """None when there is no such tenant."""
    query = "SELECT soft_gpu_ms FROM tenants WHERE tenant = $1"
    found = await connection.fetch(query, tenant)
    return int(found[0]["soft_gpu_ms"]) if found else None
