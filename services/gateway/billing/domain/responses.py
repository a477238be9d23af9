"""Use of GPU time in buckets, and the lines of a job's statement."""

from typing import Literal

from schemas.account import Lane
from schemas.pool import Role
from schemas.topics import POOL
from schemas.units import HOUR_MS
from services.gateway.billing.domain.usage import SPOT, Group, UsageSum
from services.gateway.views.tables.jobs import UsageRow
from services.gateway.web.domain.responses import ListItem, Response, Seconds, TextOrNone


class UsageResultResponse(Response):
    """Use of one group in one bucket. A field is null unless the request groups by it.

    `net_gpu_ms`: `billable_gpu_ms` less `credited_gpu_ms`. `billed_tokens`: trained tokens that
    have a price, credits taken off. `suffix` is empty, and `metadata` has an empty value, where the
    job has none.
    """

    object: Literal["usage.result"] = "usage.result"
    used_gpu_ms: int
    billable_gpu_ms: int
    credited_gpu_ms: int
    net_gpu_ms: int
    billed_tokens: int
    api_key_id: str | None
    model: str | None
    job_id: str | None
    suffix: str | None
    metadata: dict[str, str] | None
    lane: str | None
    role: str | None
    device: str | None
    spot: bool | None


class JournalPlaceResponse(Response):
    """Position of an event in the log. `incarnation`: number of the journal, 0 unless it was
    restored.
    """

    topic: str
    partition: int
    incarnation: int
    offset: int


class StatementLineResponse(ListItem):
    """A slice of use, or a credit (`billable_gpu_ms` below zero), with the event it comes from."""

    id: str
    object: Literal["fine_tuning.job.statement.line"] = "fine_tuning.job.statement.line"
    created_at: Seconds
    kind: str
    cause: str | None
    attempt: int
    role: Role
    lane: Lane
    price_version: str
    hour_start: int
    used_gpu_ms: int
    billable_gpu_ms: int
    device: str
    accelerator: TextOrNone
    spot: bool
    tokens: int
    event: JournalPlaceResponse


def usage_result_response(group: Group, usage: UsageSum) -> UsageResultResponse:
    """The use of one group in one bucket."""
    return UsageResultResponse.of(
        usage,
        group,
        net_gpu_ms=usage.billable_gpu_ms - usage.credited_gpu_ms,
        billed_tokens=usage.tokens,
        api_key_id=group.key,
        job_id=group.job,
        metadata=None if group.metadata is None else dict([group.metadata]),
        spot=None if group.spot is None else group.spot == SPOT,
    )


def statement_line_response(row: UsageRow) -> StatementLineResponse:
    """A line of a job's cost with the place of its event."""
    event = JournalPlaceResponse.of(
        row,
        topic=POOL.journal.name,
        partition=row.journal_partition,
        offset=row.journal_offset,
    )
    return StatementLineResponse.of(
        row, created_at=row.at, hour_start=row.hour_utc * HOUR_MS // 1_000, event=event
    )
