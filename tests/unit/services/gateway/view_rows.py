"""Read models folded from events, in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.envelope import Header
from services.gateway.views.projections.journals import project
from services.gateway.views.reading import StoreViews
from services.gateway.views.table import R, Table
from tunery.runtime.store.memory import MemoryStore
from tunery.runtime.verbs import Delete, Done, Todo

Records = dict[str, dict[tuple[Any, ...], dict[str, Any]]]  # table → key → columns


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


def folded(stream: str, *events: Any, key: str = "acme", records: Records | None = None) -> Records:
    """One journal record for each event, a second apart."""
    after: Records = {} if records is None else records
    for number, event in enumerate(events, 1):
        fold(after, header(stream, at=1_000_000 + 1_000 * number, seq=number, key=key), event)
    return after


def fold(records: Records, at: Header, event: Any) -> None:
    """Change the rows as one event does."""
    for change in project(at, event):
        if isinstance(change, Todo | Done):
            continue
        table = records.setdefault(change.table, {})
        row_key = tuple(change.key.values())
        if isinstance(change, Delete):
            table.pop(row_key, None)
        else:
            table.setdefault(row_key, {}).update({**change.key, **change.values})


def rows(records: Records, table: Table[R]) -> Sequence[R]:
    """By their key."""
    read = (table.read(record) for _, record in sorted(records.get(table.name, {}).items()))
    return [row for row in read if row is not None]


def only(records: Records, table: Table[R]) -> R:
    (row,) = rows(records, table)
    return row


class FoldedStore(MemoryStore):
    """The rows of a read model that was folded already."""

    def __init__(self, records: Records) -> None:
        super().__init__()
        self.records = records

    async def rows(
        self, table: str, where: Mapping[str, Any] | None = None
    ) -> Sequence[dict[str, Any]]:
        return [
            record
            for record in self.records.get(table, {}).values()
            if all(record.get(column) == value for column, value in (where or {}).items())
        ]


def views_over(records: Records) -> StoreViews:
    return StoreViews(FoldedStore(records))
