"""Reads what is on one bill from the ledger: its own month and what came late, not the history."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from schemas.billing import PriceBook, Statement
from schemas.units import GpuMs
from tunery.billing.lines import BilledUsage, EarlierUse, LedgerRow, PricedJob, PricedUse
from tunery.billing.periods import BillShare, Cut
from tunery.billing.volume import LateMonth, late_months

# Rows of the month, and rows of earlier months that came after those were closed. Each part is
# bound by an index: `{in_cut}` and `{late}` compare the row's position in the journal.
BILLED = """
SELECT hour_utc, kind, role, cause, job_id, lane, price_version, device, accelerator, spot,
    sum(used_gpu_ms)::bigint AS used_gpu_ms, sum(gpu_ms)::bigint AS gpu_ms,
    sum(tokens)::bigint AS tokens
FROM (
    SELECT * FROM ledger WHERE tenant = $1 AND hour_utc >= $2 AND hour_utc < $3 AND {in_cut}
    {late}
) AS billed
GROUP BY hour_utc, kind, role, cause, job_id, lane, price_version, device, accelerator, spot
"""
LATE = """
UNION ALL
SELECT * FROM ledger
WHERE tenant = $1 AND journal_partition = {partition} AND hour_utc < $2 AND {late} AND {in_cut}
"""
BEFORE = """
SELECT job_id, lane, price_version, role, device, accelerator, spot,
    sum(gpu_ms)::bigint AS gpu_ms, sum(tokens)::bigint AS tokens
FROM ledger WHERE tenant = $1 AND job_id = ANY($2) AND hour_utc < $3 AND {earlier}
GROUP BY job_id, lane, price_version, role, device, accelerator, spot
"""
# What earlier bills have of a month that late rows are of: tiers and overage depend on all of it.
MONTH_BEFORE = """
SELECT hour_utc, job_id, lane, price_version, role, device, accelerator, spot,
    sum(gpu_ms)::bigint AS gpu_ms, sum(tokens)::bigint AS tokens
FROM ledger
WHERE tenant = $1 AND hour_utc >= $2 AND hour_utc < $3 AND {earlier}
    AND ($4::text[] IS NULL OR price_version = ANY($4))
GROUP BY hour_utc, job_id, lane, price_version, role, device, accelerator, spot
"""


class QueryConnection(Protocol):
    """The used part of an asyncpg connection or pool; its search path is billing's schema."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        """All rows of the query."""


async def read_usage(
    connection: QueryConnection,
    tenant: str,
    share: BillShare,
    books: Mapping[str, PriceBook],
    closed: Mapping[str, Statement],
) -> BilledUsage:
    """Return the usage in the ledger that a bill charges, summed by line.

    A month is closed by its lines too, not by sums of jobs: overage and discounts depend on hours.
    """
    month, arguments = share.month, _Arguments()
    for value in (tenant, share.month.first_hour, share.month.end_hour):
        arguments.add(value)
    in_cut, late, earlier = "TRUE", "", "TRUE"
    if share.cut is not None:
        in_cut = _compare(share.cut, "<", arguments)
    if share.late is not None:
        late = _late_parts(share.late, share.cut, arguments)
    query = BILLED.format(in_cut=in_cut, late=late)
    rows = [LedgerRow(**row) for row in await connection.fetch(query, *arguments.values)]
    arguments = _Arguments()
    arguments.add(tenant)
    arguments.add(sorted({row.job_id for row in rows}))
    arguments.add(month.first_hour)
    earlier = "TRUE"
    if share.late is not None:
        earlier = _compare(share.late, "<", arguments)
    before = await connection.fetch(BEFORE.format(earlier=earlier), *arguments.values)
    times, trained = dict[PricedUse, GpuMs](), Counter[PricedJob]()
    for *use, gpu_ms, tokens in (row.values() for row in before):
        job = PricedJob(*use[:3])
        times[PricedUse(job, *use[3:])] = gpu_ms
        trained[job] += tokens
    months = [
        use
        for late in late_months(rows, month, books, closed)
        async for use in _month_before(connection, tenant, share, late)
    ]
    return BilledUsage(
        rows=tuple(rows), before=times, tokens_before=trained, months_before=tuple(months)
    )


async def _month_before(
    connection: QueryConnection, tenant: str, share: BillShare, late: LateMonth
) -> AsyncIterator[EarlierUse]:
    arguments = _Arguments()
    for value in (tenant, late.month.first_hour, late.month.end_hour, late.price_versions):
        arguments.add(value)
    earlier = "TRUE" if share.late is None else _compare(share.late, "<", arguments)
    query = MONTH_BEFORE.format(earlier=earlier)
    rows = await connection.fetch(query, *arguments.values)
    for hour_utc, *use, gpu_ms, tokens in (row.values() for row in rows):
        priced = PricedUse(PricedJob(*use[:3]), *use[3:])
        yield EarlierUse(hour_utc, priced, gpu_ms, tokens)


class _Arguments:
    """Arguments of a query, in the order of their numbers."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any) -> str:
        """The value's place in the text of the query."""
        self.values.append(value)
        return f"${len(self.values)}"


def _late_parts(late: Cut, cut: Cut | None, arguments: _Arguments) -> str:
    """A query for each partition: the planner uses the index of positions only for constants."""
    parts = []
    for partition in range(len(late.offsets)):
        after = _compare(late, ">=", arguments, partition)
        before = "TRUE" if cut is None else _compare(cut, "<", arguments, partition)
        parts.append(LATE.format(partition=partition, late=after, in_cut=before))
    return "".join(parts)


def _compare(cut: Cut, operator: str, arguments: _Arguments, partition: int | None = None) -> str:
    """A row's position in the journal beside the cut of its partition, or of this one."""
    if partition is not None:
        offset = f"{arguments.add(cut.offsets[partition])}::bigint"
        if not cut.incarnations:
            return f"journal_offset {operator} {offset}"
        incarnation = f"{arguments.add(cut.incarnations[partition])}::bigint"
        if operator == ">=":  # the planner takes a comparison of pairs for one of their first parts
            same = f"(incarnation = {incarnation} AND journal_offset >= {offset})"
            return f"({same} OR incarnation > {incarnation})"
        return f"(incarnation, journal_offset) {operator} ({incarnation}, {offset})"
    own = "[journal_partition + 1]"  # arrays count from 1
    offset = f"({arguments.add(list(cut.offsets))}::bigint[]){own}"
    if not cut.incarnations:
        return f"journal_offset {operator} {offset}"
    incarnation = f"({arguments.add(list(cut.incarnations))}::bigint[]){own}"
    return f"(incarnation, journal_offset) {operator} ({incarnation}, {offset})"
