import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Message
from tunery.platform.store import rows
from tunery.runtime.store.changes import fold
from tunery.runtime.verbs import Change, Delete, Done, Todo, Upsert


class Job(Message):
    number: int


Table = dict[str, dict[str, Any]]
keys = st.sampled_from("abc")
upserts = st.builds(
    lambda key, values: Upsert("t", {"id": key}, values),
    keys,
    st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)),
)
deletes = keys.map(lambda key: Delete("t", {"id": key}))
todos = st.builds(lambda key, n: Todo("k", key, key, key, Job(number=n)), keys, st.integers(0, 9))
dones = keys.map(lambda key: Done("k", key))


def one_by_one(table: Table, changes: list[Change]) -> Table:
    """The meaning of the changes, as verbs.py tells it."""
    rows = {key: dict(row) for key, row in table.items()}
    for change in changes:
        match change:
            case Upsert():
                rows.setdefault(change.key["id"], {}).update(change.values)
            case Delete():
                rows.pop(change.key["id"], None)
            case _:
                pass
    return rows


def folded(table: Table, changes: list[Change]) -> Table:
    table_after = {key: dict(row) for key, row in table.items()}
    plan = fold(changes)
    for group in plan.deletes:
        for row in group.rows:
            table_after.pop(row["id"], None)
    for group in plan.upserts:
        for row in group.rows:
            values = {column: row[column] for column in group.columns}
            table_after.setdefault(row["id"], {}).update(values)
    return table_after


@given(
    st.dictionaries(keys, st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9))),
    st.lists(upserts | deletes),
)
def test_a_folded_batch_means_the_same(table: Table, changes: list[Change]) -> None:
    assert folded(table, changes) == one_by_one(table, changes)


@given(st.lists(upserts | deletes))
def test_each_row_is_touched_once(changes: list[Change]) -> None:
    plan = fold(changes)
    upserted = [row["id"] for group in plan.upserts for row in group.rows]
    deleted = [row["id"] for group in plan.deletes for row in group.rows]
    assert len(upserted) == len(set(upserted))
    assert len(deleted) == len(set(deleted))


@given(st.lists(todos | dones))
def test_the_last_change_of_a_todo_row_counts(changes: list[Change]) -> None:
    last: dict[str, Change] = {}
    for change in changes:
        match change:
            case Todo() | Done():
                last[change.id] = change
            case _:
                pass
    plan = fold(changes)
    assert {todo.id: todo for todo in plan.todos} == {
        key: change for key, change in last.items() if isinstance(change, Todo)
    }
    assert {done.id for done in plan.done} == {
        key for key, change in last.items() if isinstance(change, Done)
    }


@pytest.mark.parametrize("bad", ['x"; DROP TABLE y', "Upper", "", "1st", "a" * 64, "a-b"])
def test_names_are_plain(bad: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        rows.name(bad)
    with pytest.raises(ValueError, match="not a name"):
        rows.upsert_sql(bad, ("id",), ("x",))
    with pytest.raises(ValueError, match="not a name"):
        rows.delete_sql("t", (bad,))


@given(st.text(st.sampled_from("\0\\u0a"), max_size=12))
def test_nul_is_replaced_and_nothing_else(text: str) -> None:
    encoded = rows.encode([{"x": text}])
    assert encoded.replace("\\\\", "").find("\\u0000") == -1
    assert json.loads(encoded) == [{"x": text.replace("\0", "\ufffd")}]
