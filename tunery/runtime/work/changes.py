"""Folds the changes of a batch so that each row is touched once. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, assert_never

from tunery.runtime.verbs import Change, Delete, Done, Todo, Upsert

Columns: TypeAlias = tuple[str, ...]
Values: TypeAlias = tuple[Any, ...]


@dataclass
class RowPlan:
    """`clear`: remove what is there first. `values` None: and leave it removed."""

    clear: bool
    values: dict[str, Any] | None


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
    rows: dict[tuple[str, Columns, Values], RowPlan] = field(default_factory=dict)
    todos: dict[tuple[str, str], Todo | None] = field(default_factory=dict)


def fold(changes: Iterable[Change]) -> Plan:
    """What a sequence of changes comes to. Rows are sorted, so that writers never deadlock."""
    folded = _Folded()
    for change in changes:
        match change:
            case Upsert():
                _upsert(folded, change)
            case Delete():
                folded.rows[_place(change.table, change.key)] = RowPlan(True, None)
            case Todo():
                folded.todos[change.kind, change.id] = change
            case Done():
                folded.todos[change.kind, change.id] = None
            case _:
                assert_never(change)
    return _plan(folded)


def _place(table: str, key: Mapping[str, Any]) -> tuple[str, Columns, Values]:
    names = tuple(sorted(key))
    return table, names, tuple(key[name] for name in names)


def _upsert(folded: _Folded, change: Upsert) -> None:
    place = _place(change.table, change.key)
    known = folded.rows.get(place)
    if known is None:
        folded.rows[place] = RowPlan(False, dict(change.values))
    else:
        known.values = {**(known.values or {}), **change.values}


def _plan(folded: _Folded) -> Plan:
    deletes: dict[tuple[str, Columns], list[dict[str, Any]]] = {}
    upserts: dict[tuple[str, Columns, Columns], list[dict[str, Any]]] = {}
    for (table, names, values), row in sorted(folded.rows.items(), key=_order):
        key = dict(zip(names, values, strict=True))
        if row.clear:
            deletes.setdefault((table, names), []).append(key)
        if row.values is not None:
            columns = tuple(sorted(row.values))
            upserts.setdefault((table, names, columns), []).append({**row.values, **key})
    todos = sorted(folded.todos.items())
    return Plan(
        deletes=tuple(Group(t, k, (), tuple(rows)) for (t, k), rows in deletes.items()),
        upserts=tuple(Group(t, k, c, tuple(rows)) for (t, k, c), rows in upserts.items()),
        done=tuple(Done(kind, id_) for (kind, id_), todo in todos if todo is None),
        todos=tuple(todo for _, todo in todos if todo is not None),
    )


def _order(item: tuple[tuple[str, Columns, Values], RowPlan]) -> tuple[str, Columns, str]:
    (table, names, values), _ = item
    return table, names, repr(values)
