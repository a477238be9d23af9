"""Folds the changes of a batch so that each row is touched once. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias, assert_never

from tunery.runtime.verbs import Change, Delete, Done, Todo, Upsert

Columns: TypeAlias = tuple[str, ...]
Values: TypeAlias = tuple[Any, ...]
_KEY: Final = itemgetter(0)


@dataclass(slots=True)
class RowChange:
    """Change of one row."""

    key: Mapping[str, Any]
    clear: bool  # remove what is there first
    values: Mapping[str, Any] | None  # None: leave it removed


@dataclass(frozen=True)
class RowGroup:
    """Rows of one table that name the same key columns, and value columns unless they go."""

    table: str
    key: Columns
    columns: Columns
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class TableChanges:
    """To be done in this order; within each list the order does not matter."""

    deletes: tuple[RowGroup, ...]
    upserts: tuple[RowGroup, ...]
    done: tuple[Done, ...]
    todos: tuple[Todo, ...]


@dataclass
class _Folded:
    rows: dict[tuple[str, Columns], dict[Values, RowChange]] = field(default_factory=dict)
    todos: dict[tuple[str, str], Todo | None] = field(default_factory=dict)


def fold(changes: Iterable[Change]) -> TableChanges:
    """The net effect of a sequence of changes. Rows are sorted, so that writers never deadlock."""
    folded = _Folded()
    for change in changes:
        match change:
            case Upsert():
                _upsert(folded, change)
            case Delete():
                _drop_rows_of_wider_keys(folded, change)
                rows, values = _rows_of(folded, change)
                rows[values] = RowChange(change.key, True, None)
            case Todo():
                folded.todos[change.kind, change.id] = change
            case Done():
                folded.todos[change.kind, change.id] = None
            case _:
                assert_never(change)
    return _plan(folded)


def _rows_of(folded: _Folded, change: Upsert | Delete) -> tuple[dict[Values, RowChange], Values]:
    """Rows of the same table and key columns, and the values of those columns in the change."""
    names = _in_order(tuple(change.key))
    rows = folded.rows.setdefault((change.table, names), {})
    return rows, tuple([change.key[name] for name in names])


def _drop_rows_of_wider_keys(folded: _Folded, change: Delete) -> None:
    """A delete by some columns of the key takes along what earlier changes wrote."""
    wanted = change.key.items()
    for (table, names), rows in folded.rows.items():
        if table == change.table and set(names) > set(change.key):
            for values in [v for v, row in rows.items() if wanted <= row.key.items()]:
                del rows[values]


@lru_cache(maxsize=1_024)
def _in_order(names: Columns) -> Columns:
    return tuple(sorted(names))


def _upsert(folded: _Folded, change: Upsert) -> None:
    rows, values = _rows_of(folded, change)
    known = rows.get(values)
    if known is None:
        rows[values] = RowChange(change.key, False, change.values)
    else:
        known.values = {**(known.values or {}), **change.values}


def _plan(folded: _Folded) -> TableChanges:
    deletes: dict[tuple[str, Columns], list[dict[str, Any]]] = {}
    upserts: dict[tuple[str, Columns, Columns], list[dict[str, Any]]] = {}
    for (table, names), rows in sorted(folded.rows.items(), key=_KEY):
        for _, row in sorted(rows.items(), key=_KEY):
            if row.clear:
                deletes.setdefault((table, names), []).append(dict(row.key))
            if row.values is not None:
                columns = _in_order(tuple(row.values))
                upserts.setdefault((table, names, columns), []).append({**row.values, **row.key})
    todos = sorted(folded.todos.items())
    return TableChanges(
        deletes=tuple(RowGroup(t, k, (), tuple(rows)) for (t, k), rows in deletes.items()),
        upserts=tuple(RowGroup(t, k, c, tuple(rows)) for (t, k, c), rows in upserts.items()),
        done=tuple(Done(kind, id_) for (kind, id_), todo in todos if todo is None),
        todos=tuple(todo for _, todo in todos if todo is not None),
    )
