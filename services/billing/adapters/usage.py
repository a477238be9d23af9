"""Reads what is on one bill from the ledger: its own month and what came late, not the history."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from tunery.billing.lines import BilledUsage, LedgerRow, PricedJob
from tunery.billing.periods import BillShare, Cut

# Rows of the month, and rows of earlier months that came after those were closed. Each part is
# bound by an index; `{cut}` and `{late}` compare the row's position in the journal.
BILLED = """
WITH billed AS (
    SELECT * FROM ledger WHERE tenant = $1 AND hour_utc >= $2 AND hour_utc < $3 AND {in_cut}
    UNION ALL
    SELECT row.* FROM generate_series(0, $4::integer - 1) AS part CROSS JOIN LATERAL (
        SELECT * FROM ledger
        WHERE tenant = $1 AND journal_partition = part AND hour_utc < $2 AND {late} AND {in_cut}
    ) AS row
)
SELECT kind, job_id, role, lane, price_version, cause, {hour} AS hour_utc,
    sum(used_gpu_ms)::bigint AS used_gpu_ms, sum(gpu_ms)::bigint AS gpu_ms
FROM billed
GROUP BY kind, job_id, role, lane, price_version, cause, {group}
"""
HOURS = ("hour_utc", "hour_utc")
JOBS = ("min(hour_utc)", "hour_utc < $2")
BEFORE = """
SELECT job_id, lane, price_version, sum(gpu_ms)::bigint
FROM ledger WHERE tenant = $1 AND job_id = ANY($2) AND hour_utc < $3 AND {earlier}
GROUP BY job_id, lane, price_version
"""


class QueryConnection(Protocol):
    """What is used of an asyncpg connection or pool; its search path names billing's schema."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        """All rows of the query."""


async def read_usage(
    connection: QueryConnection, tenant: str, share: BillShare, *, by_hour: bool
) -> BilledUsage:
    """What of the ledger is on a bill, summed by line.

    by_hour: as on the invoice; else the hours of a job are one line: sums stay the same, because
    the lines of a job add up to its cost.
    """
    month, arguments = share.month, _Arguments()
    for value in (tenant, share.month.first_hour, share.month.end_hour):
        arguments.add(value)
    arguments.add(0 if share.late is None else len(share.late.offsets))
    in_cut = (
        "TRUE" if share.cut is None else _compare(share.cut, "<", "journal_partition", arguments)
    )
    late = "FALSE" if share.late is None else _compare(share.late, ">=", "part", arguments)
    hour, group = HOURS if by_hour else JOBS
    query = BILLED.format(in_cut=in_cut, late=late, hour=hour, group=group)
    rows = [
        msgspec.convert(dict(row), LedgerRow)
        for row in await connection.fetch(query, *arguments.values)
    ]
    arguments = _Arguments()
    arguments.add(tenant)
    arguments.add(sorted({row.job_id for row in rows}))
    arguments.add(month.first_hour)
    earlier = "TRUE"
    if share.late is not None:
        earlier = _compare(share.late, "<", "journal_partition", arguments)
    before = await connection.fetch(BEFORE.format(earlier=earlier), *arguments.values)
    return BilledUsage(
        rows=tuple(rows),
        before={
            PricedJob(job_id, lane, version): gpu_ms for job_id, lane, version, gpu_ms in before
        },
    )


class _Arguments:
    """Arguments of a query, in the order of their numbers."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any) -> str:
        """The value's place in the text of the query."""
        self.values.append(value)
        return f"${len(self.values)}"


def _compare(cut: Cut, operator: str, partition: str, arguments: _Arguments) -> str:
    """A row's position in the journal beside the cut of the partition. Arrays count from 1."""
    offset = f"({arguments.add(list(cut.offsets))}::bigint[])[{partition} + 1]"
    if not cut.incarnations:
        return f"journal_offset {operator} {offset}"
    incarnation = f"({arguments.add(list(cut.incarnations))}::bigint[])[{partition} + 1]"
    return f"(incarnation, journal_offset) {operator} ({incarnation}, {offset})"
