"""Use of GPU time in buckets, and the lines of a job's statement."""

from typing import Literal

from schemas.account import Lane
from schemas.pool import Role
from schemas.topics import POOL
from schemas.units import HOUR_MS
from services.gateway.billing.usage import SPOT, Group, UsageSum
from services.gateway.jobs.tables import UsageRow
from services.gateway.web.responses import ListItem, Response, seconds


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
    """Where an event is in the log. `incarnation`: of the journal, 0 unless it was restored."""

    topic: str
    partition: int
    incarnation: int
    offset: int


class StatementLineResponse(ListItem):
    """A slice of use, or a credit (`billable_gpu_ms` below zero), with the event it comes from."""

    id: str
    object: Literal["fine_tuning.job.statement.line"] = "fine_tuning.job.statement.line"
    created_at: int
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
    accelerator: str | None
    spot: bool
    tokens: int
    event: JournalPlaceResponse


def usage_result_response(group: Group, usage: UsageSum) -> UsageResultResponse:
    """The use of one group in one bucket."""
    return UsageResultResponse(
        used_gpu_ms=usage.used_gpu_ms,
        billable_gpu_ms=usage.billable_gpu_ms,
        credited_gpu_ms=usage.credited_gpu_ms,
        net_gpu_ms=usage.billable_gpu_ms - usage.credited_gpu_ms,
        billed_tokens=usage.tokens,
        api_key_id=group.key,
        model=group.model,
        job_id=group.job,
        suffix=group.suffix,
        metadata=None if group.metadata is None else dict([group.metadata]),
        lane=group.lane,
        role=group.role,
        device=group.device,
        spot=None if group.spot is None else group.spot == SPOT,
    )


def statement_line_response(row: UsageRow) -> StatementLineResponse:
    """A line of a job's cost with the place of its event."""
    event = JournalPlaceResponse(
        topic=POOL.journal.name,
        partition=row.journal_partition,
        incarnation=row.incarnation,
        offset=row.journal_offset,
    )
    return StatementLineResponse(
        id=row.id,
        created_at=seconds(row.at),
        kind=row.kind,
        cause=row.cause,
        attempt=row.attempt,
        role=row.role,
        lane=row.lane,
        price_version=row.price_version,
        hour_start=row.hour_utc * HOUR_MS // 1_000,
        used_gpu_ms=row.used_gpu_ms,
        billable_gpu_ms=row.billable_gpu_ms,
        device=row.device,
        accelerator=row.accelerator or None,
        spot=row.spot,
        tokens=row.tokens,
        event=event,
    )
