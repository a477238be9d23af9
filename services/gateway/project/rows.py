"""Values of columns: what JSON and PostgreSQL can hold."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from services.gateway.domain.tables import Table
from tunery.runtime.verbs import Delete, Upsert

RESULTS: Final = "results"  # to-do: write an ended job's metrics as a file


def results_row(tenant: str, job_id: str) -> str:
    return f"{tenant}/{job_id}"


def plain(value: Any) -> Any:
    """Structs as dicts, bytes as base64: the same in memory and in PostgreSQL."""
    return msgspec.to_builtins(value)


def put(table: Table, key: Mapping[str, Any], **values: Any) -> Upsert:
    return Upsert(table.name, key, plain(values))


def drop(table: Table, key: Mapping[str, Any]) -> Delete:
    return Delete(table.name, key)
