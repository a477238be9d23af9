"""Values of columns: what JSON and PostgreSQL can hold."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from schemas.envelope import Header
from services.gateway.jobs.event_ids import history_id
from services.gateway.views.tables import JOB_HISTORY, Table
from tunery.runtime.verbs import Delete, Upsert

RESULTS: Final = "results"  # to-do: write an ended job's metrics as a file


def results_row(tenant: str, job_id: str) -> str:
    return f"{tenant}/{job_id}"


def plain(value: Any) -> Any:
    """Structs as dicts, bytes as base64: the same in memory and in PostgreSQL."""
    return msgspec.to_builtins(value)


def put(table: Table, key: Mapping[str, Any], **values: Any) -> Upsert:
    return Upsert(table.name, key, plain(values))


def remembered(header: Header, change: Upsert) -> Iterator[Upsert]:
    """What each column of a job became, by its time: all up to a moment are the job as it was."""
    for field, value in change.values.items():
        key = {
            "tenant": change.key["tenant"],
            "job_id": change.key["id"],
            "id": history_id(header.at, header.seq, field),
        }
        yield put(JOB_HISTORY, key, at=header.at, field=field, value=value)


def drop(table: Table, key: Mapping[str, Any]) -> Delete:
    return Delete(table.name, key)
