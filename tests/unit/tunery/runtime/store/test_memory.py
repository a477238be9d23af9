"""Behaviour of the in-memory store beyond the common contract, for tests to inspect."""

from typing import Any

import pytest

from schemas.envelope import Message
from tunery.runtime.journal.reader import START, Position
from tunery.runtime.store.abstract import (
    TODOS_CHANNEL,
    CommitResult,
    LeasedRow,
    RowBatch,
    StreamPartition,
    Superseded,
    Tables,
)
from tunery.runtime.store.memory import MemoryStore
from tunery.runtime.verbs import Todo, Upsert

PARTITION: StreamPartition = ("job", 0)
KIND = "erase"


class Erase(Message):
    path: str


class StillClock:
    """Time moves when a test says so."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    async def sleep(self, ms: int) -> None:
        self.ms += ms


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def store(clock: StillClock) -> MemoryStore:
    return MemoryStore(clock)


def tables(projection: str = "view", version: int = 1) -> Tables:
    return Tables(projection, version, (PARTITION,), "", ("things",))


async def write(store: MemoryStore, *changes: Any, expected: Position = START) -> CommitResult:
    position = Position(expected.offset + 1, expected.acceptance)
    batch = RowBatch("view", 1, PARTITION, expected.offset, position, changes)
    return await store.commit(batch)


async def lease(store: MemoryStore, count: int = 10, row_lease_ms: int = 100) -> list[LeasedRow]:
    return list(await store.lease_rows(KIND, count, row_lease_ms))


async def opened(store: MemoryStore, *todos: Todo) -> None:
    await store.ensure(tables())
    await write(store, *todos)
    await store.set_caught_up("view", PARTITION, True)


def erase(id_: str, tenant: str = "acme") -> Todo:
    return Todo(KIND, id_, tenant, tenant, Erase(path=id_))


async def test_values_are_kept_as_json_so_that_later_changes_do_not_reach_them(
    store: MemoryStore,
) -> None:
    tags = ["a"]
    await store.ensure(tables())
    await write(store, Upsert("things", {"id": "1"}, {"tags": tags, "body": Erase(path="p")}))
    tags.append("b")
    (row,) = await store.rows("things")
    assert row == {"id": "1", "tags": ["a"], "body": {"type": "Erase.v1", "path": "p"}}
    row["id"] = "2"
    assert [entry["id"] for entry in await store.rows("things", {"id": "1"})] == ["1"]


async def test_a_row_may_be_leased_again_at_the_moment_that_its_lease_ends(
    store: MemoryStore, clock: StillClock
) -> None:
    await opened(store, erase("1"))
    (first,) = await lease(store, row_lease_ms=100)
    clock.ms += 99
    assert await lease(store) == []
    clock.ms += 1
    (again,) = await lease(store)
    assert (again.try_number, again.token != first.token) == (2, True)
    assert not await store.renew(first, 100)
    await store.finish(first)
    assert await store.renew(again, 100)


async def test_a_try_that_does_not_count_is_not_counted(
    store: MemoryStore, clock: StillClock
) -> None:
    await opened(store, erase("1"))
    (row,) = await lease(store)
    await store.release(row, 50, "no answer", counts=False)
    assert await lease(store) == []
    clock.ms += 50
    (again,) = await lease(store)
    assert (again.try_number, again.failure) == (1, "no answer")


async def test_tenants_take_turns_counting_what_they_have_leased(store: MemoryStore) -> None:
    await opened(store, *(erase(f"a{n}") for n in range(3)), erase("b0", "globex"))
    assert [row.id for row in await lease(store, count=2)] == ["a0", "b0"]
    assert [row.id for row in await lease(store)] == ["a1", "a2"]


async def test_notices_come_once_for_each_kind_while_there_are_listeners(
    store: MemoryStore,
) -> None:
    kinds: list[str] = []
    await store.ensure(tables())
    async with store.listen(TODOS_CHANNEL, kinds.append):
        await write(store, erase("1"), erase("2"))
    assert kinds == [KIND]
    position = (await store.positions("view"))[PARTITION].position
    assert await write(store, erase("3"), expected=position) is CommitResult.DONE
    assert kinds == [KIND]


async def test_digests_and_versions_can_be_read_by_tests(store: MemoryStore) -> None:
    await store.put_digest(PARTITION, 7, "abc")
    assert store.digests == {PARTITION: (7, "abc")}
    assert await store.ensure(tables(version=2))
    with pytest.raises(Superseded):
        await store.ensure(tables(version=1))


async def test_a_rebuild_leaves_the_todo_rows_of_other_projections(store: MemoryStore) -> None:
    await opened(store, erase("1"))
    await store.ensure(tables("other"))
    await store.rebuild(tables("other"))
    await store.set_caught_up("other", PARTITION, True)
    assert [row.id for row in await lease(store)] == ["1"]
    await store.rebuild(tables())
    await store.set_caught_up("view", PARTITION, True)
    assert await lease(store) == []
