"""Usage exported as webhook events: one for each job, hour and kind of a range.

A range's end is fixed before anything of it is written, so a repetition has the same events under
the same ids and numbers, and `account` drops what it has decided.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from schemas.account import NUMBERED_EXPORTS, USAGE_RECORDED, WebhookEvent
from schemas.billing import HourlyUse
from schemas.envelope import Source
from schemas.ids import EVENT, derived_id
from schemas.session import SessionTokens
from schemas.units import HOUR_MS
from services.exporter.domain.focus import KIND_COLUMNS, ExportedCharge
from services.exporter.domain.ranges import ExportRange


class UsageAnnouncement(NamedTuple):
    """An event for a tenant's endpoints, and the number of the command that announces it."""

    tenant: str
    source: Source
    event: WebhookEvent


class _Batch(NamedTuple):
    """Common key of the rows of one event."""

    tenant: str
    job_id: str
    hour_utc: int
    kind: str


def usage_events(
    stream: str, partition: int, written: ExportRange, charges: Iterable[ExportedCharge]
) -> Iterator[UsageAnnouncement]:
    """The events of a range of a stream's journal."""
    origin = f"{NUMBERED_EXPORTS}{stream}"
    range_id = (partition, written.end.acceptance.incarnation, written.first.offset)
    ordered = sorted(charges, key=_batch)
    for number, (batch, together) in enumerate(groupby(ordered, _batch)):
        rows = list(together)
        usage = HourlyUse(
            hour_utc=batch.hour_utc,
            kind="credit" if batch.kind == "credit" else "usage",
            gpu_ms=sum(row.columns["x_GpuMilliseconds"] or 0 for row in rows),
            tokens=sum(row.columns["x_Tokens"] or 0 for row in rows),
            session=_tokens_of_session(rows),
        )
        event = WebhookEvent(
            event_id=EVENT + derived_id(origin, *map(str, range_id), *map(str, batch)),
            event_type=USAGE_RECORDED,
            object_id=batch.job_id,
            created_at=max(row.at for row in rows),
            usage=usage,
        )
        source = Source(origin, *range_id, number)
        yield UsageAnnouncement(batch.tenant, source, event)


def _tokens_of_session(rows: list[ExportedCharge]) -> SessionTokens | None:
    """Tokens by kind; None: the rows are of time."""
    counts = {
        kind: [row.columns[column] for row in rows if row.columns[column] is not None]
        for kind, column in KIND_COLUMNS.items()
    }
    if not any(counts.values()):
        return None
    return SessionTokens(**{kind: sum(each) for kind, each in counts.items()})


def _batch(charge: ExportedCharge) -> _Batch:
    columns = charge.columns
    hour = int(columns["ChargePeriodStart"].timestamp()) * 1_000 // HOUR_MS
    return _Batch(charge.tenant, columns["ResourceId"], hour, columns["ChargeCategory"].lower())
