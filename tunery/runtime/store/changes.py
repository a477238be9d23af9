"""Folds the changes of a batch so that each row is touched once. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias, assert_never

from tunery.runtime.verbs import Change, Delete, Done, Todo, Upsert

Columns: TypeAlias = tuple[str, ...]
Values: TypeAlias = tuple[Any, ...]
_PLACE: Final = itemgetter(0)


@dataclass(slots=True)
class RowPlan:
    """`clear`: remove what is there first. `values` None: and leave it removed."""

    key: Mapping[str, Any]
    clear: bool
    values: Mapping[str, Any] | None


@dataclass(frozen=True)
class Group:
    """Rows of one table that name the same key columns, and value columns unless they go."""

    table: str
    key: Columns
    columns: Columns
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Plan:
    """To be done in this order; within each list the order does not matter."""

    deletes: tuple[Group, ...]
    upserts: tuple[Group, ...]
    done: tuple[Done, ...]
    todos: tuple[Todo, ...]


@dataclass
class _Folded:
    rows: dict[tuple[str, Columns], dict[Values, RowPlan]] = field(default_factory=dict)
    todos: dict[tuple[str, str], Todo | None] = field(default_factory=dict)


def fold(changes: Iterable[Change]) -> Plan:
    """What a sequence of changes comes to. Rows are sorted, so that writers never deadlock."""
    folded = _Folded()
    for change in changes:
        match change:
            case Upsert():
                _upsert(folded, change)
            case Delete():
                rows, values = _place(folded, change)
                rows[values] = RowPlan(change.key, True, None)
            case Todo():
                folded.todos[change.kind, change.id] = change
            case Done():
                folded.todos[change.kind, change.id] = None
            case _:
                assert_never(change)
    return _plan(folded)


def _place(folded: _Folded, change: Upsert | Delete) -> tuple[dict[Values, RowPlan], Values]:
    """Rows of the same table and key columns, and what the change is found by among them."""
    names = _in_order(tuple(change.key))
    rows = folded.rows.setdefault((change.table, names), {})
    return rows, tuple([change.key[name] for name in names])


@lru_cache(maxsize=1_024)
def _in_order(names: Columns) -> Columns:
    return tuple(sorted(names))


def _upsert(folded: _Folded, change: Upsert) -> None:
    rows, values = _place(folded, change)
    known = rows.get(values)
    if known is None:
        rows[values] = RowPlan(change.key, False, change.values)
    else:
        known.values = {**(known.values or {}), **change.values}


def _plan(folded: _Folded) -> Plan:
    deletes: dict[tuple[str, Columns], list[dict[str, Any]]] = {}
    upserts: dict[tuple[str, Columns, Columns], list[dict[str, Any]]] = {}
    for (table, names), found in sorted(folded.rows.items(), key=_PLACE):
        for _, row in sorted(found.items(), key=_PLACE):
            if row.clear:
                deletes.setdefault((table, names), []).append(dict(row.key))
            if row.values is not None:
                columns = _in_order(tuple(row.values))
                upserts.setdefault((table, names, columns), []).append({**row.values, **row.key})
    todos = sorted(folded.todos.items())
    return Plan(
        deletes=tuple(Group(t, k, (), tuple(rows)) for (t, k), rows in deletes.items()),
        upserts=tuple(Group(t, k, c, tuple(rows)) for (t, k, c), rows in upserts.items()),
        done=tuple(Done(kind, id_) for (kind, id_), todo in todos if todo is None),
        todos=tuple(todo for _, todo in todos if todo is not None),
    )
