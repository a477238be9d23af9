"""The topic of audit records → rows."""

from typing import Final

import msgspec

from schemas.audit import AuditEntry, AuditRecorded
from schemas.topics import AUDIT
from services.gateway.views.tables.accounts import KEY_USES, KeyUseRow
from services.gateway.views.tables.audit import AUDIT_ENTRIES, AuditRow
from tunery.runtime.bus.abstract import Record
from tunery.runtime.hosts.topic_reader import TopicRows, decoded
from tunery.runtime.verbs import Upsert

ENTRIES_MAX: Final = 1_000  # of one record
VERSION: Final = 1
_DECODER: Final[msgspec.json.Decoder[AuditRecorded]] = msgspec.json.Decoder(AuditRecorded)


def changes_of(record: Record) -> tuple[Upsert, ...]:
    """Rows of one record. One that is on the log twice replaces its own rows."""
    recorded = decoded(record, _DECODER, "audit.record_skipped")
    if recorded is None:
        return ()
    rows = []
    for index, entry in enumerate(recorded.entries):
        name = f"audit_log-{recorded.writer}{recorded.number:08x}{index:03x}"
        sequence = record.offset * ENTRIES_MAX + index
        rows.append(AUDIT_ENTRIES.insert(_row(name, sequence, entry)))
        if entry.kind == "use":
            use = KeyUseRow(tenant=entry.actor_tenant, id=entry.key_id, last_used_at=entry.at)
            rows.append(KEY_USES.insert(use))
    return tuple(rows)


def _row(name: str, sequence: int, entry: AuditEntry) -> AuditRow:
    fields = msgspec.structs.asdict(entry)
    object_id = entry.object_ids[-1] if entry.object_ids else None
    return AuditRow(id=name, sequence=sequence, object_id=object_id, **fields)


AUDIT_ROWS: Final = TopicRows("audit", VERSION, AUDIT, (AUDIT_ENTRIES, KEY_USES), changes_of)
