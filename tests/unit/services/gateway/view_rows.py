"""Read models folded from events, in memory."""

from typing import Any

from schemas.envelope import Header
from services.gateway.projection import project
from services.gateway.views.reading import Sparse
from tunery.runtime.verbs import Delete, Done, Todo

Tables = dict[str, dict[tuple[Any, ...], Sparse]]


def header(stream: str, at: int = 1_000_000, seq: int = 1, key: str = "acme") -> Header:
    return Header(
        stream=stream,
        partition=0,
        offset=seq,
        at=at,
        key=key,
        tenant=key,
        seq=seq,
        command_id=f"command-{seq}",
        incarnation=0,
    )


def folded(stream: str, *events: Any, key: str = "acme", tables: Tables | None = None) -> Tables:
    """One record for each event, a second apart."""
    found: Tables = {} if tables is None else tables
    for number, event in enumerate(events, 1):
        at = 1_000_000 + 1_000 * number
        for change in project(header(stream, at=at, seq=number, key=key), event):
            if isinstance(change, Todo | Done):
                continue
            table = found.setdefault(change.table, {})
            place = tuple(change.key.values())
            if isinstance(change, Delete):
                table.pop(place, None)
            else:
                table.setdefault(place, Sparse()).update({**change.key, **change.values})
    return found


def only(tables: Tables, name: str) -> Sparse:
    (row,) = tables[name].values()
    return row
