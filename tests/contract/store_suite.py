"""The contract of every store. Subclasses define a fixture `store`, empty for each test."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from schemas.envelope import Message, Reason
from schemas.sealed import Sealed
from tunery.runtime.journal.acceptance import Acceptance
from tunery.runtime.journal.reader import START, Position
from tunery.runtime.store.abstract import (
    COMMAND_RESULTS_CHANNEL,
    TODOS_CHANNEL,
    CommandResult,
    CommitResult,
    RowBatch,
    SavedPosition,
    Store,
    StreamPartition,
    Superseded,
    Tables,
)
from tunery.runtime.telemetry.trail import NO_TRAIL, Trail
from tunery.runtime.verbs import Change, Delete, Done, Todo, Upsert

DDL = """
CREATE TABLE IF NOT EXISTS things (
    tenant text NOT NULL,
    id text NOT NULL,
    name text NOT NULL,
    size bigint,
    flag boolean,
    body jsonb,
    raw bytea,
    tags text[],
    PRIMARY KEY (tenant, id)
);
CREATE TABLE IF NOT EXISTS seen (id text PRIMARY KEY)
"""
STREAM_PARTITIONS: tuple[StreamPartition, ...] = (("job", 0), ("job", 1), ("pool", 0))
TABLES = Tables("view", 1, STREAM_PARTITIONS, DDL, ("things", "seen"))


class Scan(Message):
    path: str


def at(offset: int) -> Position:
    return Position(offset, Acceptance(epoch=3, cause=offset - 1, prev=bytes([offset % 256]) * 32))


def upsert(id_: str, **values: object) -> Upsert:
    return Upsert("things", {"tenant": "a", "id": id_}, values)


def todo(id_: str, kind: str = "scan", path: str = "p", tenant: str = "a") -> Todo:
    return Todo(kind, id_, tenant, tenant, Scan(path=path))


def command_result(command_id: str, **rejection: Any) -> CommandResult:
    return CommandResult(command_id, "job", 1, 7, 1_700_000_000_000, "a", "a", 4, **rejection)


async def commit(
    store: Store,
    expected: int,
    end: int,
    *changes: Change,
    partition: StreamPartition = ("job", 0),
    command_results: tuple[CommandResult, ...] = (),
    notices: tuple[str, ...] = (),
    version: int = 1,
) -> CommitResult:
    return await store.commit(
        RowBatch("view", version, partition, expected, at(end), changes, command_results, notices)
    )


async def catch_up(store: Store) -> None:
    for partition in STREAM_PARTITIONS:
        await store.set_caught_up("view", partition, True)


class StoreSuite:
    async def test_a_new_projection_starts_from_zero_everywhere(self, store: Store) -> None:
        assert await store.ensure(TABLES)
        assert await store.positions("view") == dict.fromkeys(
            STREAM_PARTITIONS, SavedPosition(START, False)
        )
        assert not await store.ensure(TABLES)

    async def test_rows_and_position_change_together(self, store: Store) -> None:
        await store.ensure(TABLES)
        assert await commit(store, 0, 2, upsert("1", name="one", size=1)) is CommitResult.DONE
        rows = await store.rows("things")
        assert [(row["id"], row["name"], row["size"]) for row in rows] == [("1", "one", 1)]
        saved = await store.positions("view")
        assert saved["job", 0] == SavedPosition(at(2), False)
        assert saved["job", 1] == SavedPosition(START, False)

    async def test_why_a_partition_stopped_is_there_until_it_is_read_again(
        self, store: Store
    ) -> None:
        await store.ensure(TABLES)
        await store.set_caught_up("view", ("job", 0), False, "entry 7 is no JSON")
        saved = await store.positions("view")
        assert saved["job", 0] == SavedPosition(START, False, "entry 7 is no JSON")
        assert saved["job", 1].stopped is None
        await store.set_caught_up("view", ("job", 0), True)
        assert (await store.positions("view"))["job", 0] == SavedPosition(START, True)

    async def test_a_row_to_do_carries_the_request_that_it_follows_from(self, store: Store) -> None:
        await store.ensure(TABLES)
        asked = structs.replace(todo("a"), correlation="req_1", traceparent="00-trace")
        await commit(store, 0, 2, asked, todo("b"))
        await catch_up(store)
        rows = {row.id: row.trail for row in await store.lease_rows("scan", 2, 60_000)}
        assert rows == {"a": Trail("req_1", "00-trace"), "b": NO_TRAIL}
        again = structs.replace(todo("a"), correlation="req_2")
        await commit(store, 2, 3, again)
        (row,) = await store.lease_rows("scan", 2, 60_000)
        assert row.trail == Trail("req_2")

    async def test_a_stale_writer_writes_nothing(self, store: Store) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 2, upsert("1", name="one"))
        stale = await commit(
            store, 0, 3, upsert("2", name="two"), todo("t"), command_results=(command_result("c"),)
        )
        assert stale is CommitResult.STALE
        assert [row["id"] for row in await store.rows("things")] == ["1"]
        assert (await store.positions("view"))["job", 0].position == at(2)
        assert await store.command_result("c") is None
        await catch_up(store)
        assert await store.lease_rows("scan", 5, 1_000) == []

    async def test_of_two_writers_at_once_one_wins(self, store: Store) -> None:
        await store.ensure(TABLES)
        for offset in range(20):
            results = await asyncio.gather(
                *(
                    commit(store, offset, offset + 1, upsert("1", name=f"{offset}.{writer}"))
                    for writer in range(4)
                )
            )
            assert sorted(r.value for r in results) == ["done", "stale", "stale", "stale"]

    async def test_an_upsert_sets_only_its_own_columns(self, store: Store) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 1, upsert("1", name="one", size=1))
        await commit(store, 1, 2, upsert("1", size=2))
        await commit(store, 2, 3, upsert("1", name="uno"))
        (row,) = await store.rows("things")
        assert (row["name"], row["size"]) == ("uno", 2)

    async def test_changes_of_one_batch_count_in_their_order(self, store: Store) -> None:
        await store.ensure(TABLES)
        key = {"tenant": "a", "id": "1"}
        await commit(store, 0, 1, upsert("1", name="one", size=1))
        await commit(
            store,
            1,
            2,
            upsert("1", size=5),
            Delete("things", key),
            upsert("1", name="again"),
            upsert("2", name="two"),
            Delete("things", {"tenant": "a", "id": "2"}),
            Upsert("seen", {"id": "x"}),
            Upsert("seen", {"id": "x"}),
        )
        (row,) = await store.rows("things")
        assert row["name"] == "again"
        assert row.get("size") is None
        assert await store.rows("seen") == [{"id": "x"}]

    async def test_security_h4_a_delete_by_a_part_of_the_key_removes_all_such_rows(
        self, store: Store
    ) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 1, upsert("1", name="one"), upsert("2", name="two"))
        other = Upsert("things", {"tenant": "b", "id": "1"}, {"name": "stays"})
        all_of_a = Delete("things", {"tenant": "a"})
        await commit(store, 1, 2, upsert("3", name="of this batch"), other, all_of_a)
        assert [row["tenant"] for row in await store.rows("things")] == ["b"]
        await commit(store, 2, 3, all_of_a, upsert("4", name="later"))
        names = sorted(row["name"] for row in await store.rows("things"))
        assert names == ["later", "stays"]

    async def test_values_come_back_as_they_are(self, store: Store) -> None:
        await store.ensure(TABLES)
        sealed = Sealed(key_id="a.1", nonce=b"\0\1", ciphertext=b"\xff")
        body = {"sealed": sealed, "list": [1, 2.5, None, "ü"], "empty": {}}
        await commit(
            store,
            0,
            1,
            upsert("1", name="", size=2**60, flag=True, body=body, raw=b"\0\xff", tags=["x", "y"]),
            upsert("2", name="null", size=None, flag=False, body=None, raw=None),
        )
        first, second = sorted(await store.rows("things"), key=lambda row: str(row["id"]))
        assert (first["size"], first["flag"], first["raw"]) == (2**60, True, b"\0\xff")
        assert first["body"]["list"] == [1, 2.5, None, "ü"]
        assert first["body"]["sealed"] == {"key_id": "a.1", "nonce": "AAE=", "ciphertext": "/w=="}
        assert list(first["tags"]) == ["x", "y"]
        assert (second["size"], second["flag"], second["body"]) == (None, False, None)
        assert await store.rows("things", {"id": "2", "name": "null"}) == [second]

    async def test_a_batch_of_hundreds_of_entries(self, store: Store) -> None:
        await store.ensure(TABLES)
        changes = [upsert(str(n % 700), name=f"n{n}", size=n) for n in range(2_000)]
        assert await commit(store, 0, 2_000, *changes) is CommitResult.DONE
        rows = {row["id"]: row["size"] for row in await store.rows("things")}
        assert rows == {str(n % 700): n for n in range(2_000)}

    async def test_a_newer_version_drops_the_rows_and_stops_the_older(self, store: Store) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 2, upsert("1", name="one"), todo("t"))
        await catch_up(store)
        newer = Tables(
            "view", 2, STREAM_PARTITIONS, DDL.replace("size bigint", "bytes bigint"), ("things",)
        )
        assert await store.ensure(newer)
        assert await store.rows("things") == []
        assert (await store.positions("view"))["job", 0] == SavedPosition(START, False)
        await catch_up(store)
        assert await store.lease_rows("scan", 5, 1_000) == []
        with pytest.raises(Superseded, match="version 2"):
            await commit(store, 0, 1, upsert("1", name="old"))
        with pytest.raises(Superseded, match="newer release"):
            await store.ensure(TABLES)
        assert await commit(store, 0, 1, upsert("1", name="n"), version=2) is CommitResult.DONE

    async def test_a_rebuild_empties_all(self, store: Store) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 2, upsert("1", name="one"), todo("t"))
        await catch_up(store)
        await store.rebuild(TABLES)
        assert await store.rows("things") == []
        assert set((await store.positions("view")).values()) == {SavedPosition(START, False)}
        assert await store.lease_rows("scan", 5, 1_000) == []

    async def test_no_row_is_leased_before_all_is_caught_up(self, store: Store) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 1, todo("t", path="where"))
        for partition in STREAM_PARTITIONS[:-1]:
            await store.set_caught_up("view", partition, True)
        assert await store.lease_rows("scan", 5, 1_000) == []
        await store.set_caught_up("view", STREAM_PARTITIONS[-1], True)
        (leased,) = await store.lease_rows("scan", 5, 1_000)
        assert (leased.kind, leased.id, leased.key, leased.tenant) == ("scan", "t", "a", "a")
        assert leased.try_number == 1
        assert leased.body == b'{"type":"Scan.v1","path":"where"}'

    async def test_a_leased_row_is_free_again_when_the_lease_ends(self, store: Store) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 1, todo("t"))
        await catch_up(store)
        (first,) = await store.lease_rows("scan", 5, 300)
        assert await store.renew(first, 60_000)
        await asyncio.sleep(0.4)
        assert await store.lease_rows("scan", 5, 300) == []
        assert await store.renew(first, 50)
        await asyncio.sleep(0.1)
        (second,) = await store.lease_rows("scan", 5, 10_000)
        assert second.try_number == 2
        assert not await store.renew(first, 10_000)
        await store.release(first, 0)
        await store.finish(first)
        assert await store.renew(second, 10_000)

    async def test_rows_go_to_one_worker_each_oldest_first(self, store: Store) -> None:
        await store.ensure(TABLES)
        for number in range(6):
            await commit(store, number, number + 1, todo(f"t{number}"), todo("x", kind="other"))
        await catch_up(store)
        (oldest,) = await store.lease_rows("scan", 1, 10_000)
        assert oldest.id == "t0"
        batches = await asyncio.gather(*(store.lease_rows("scan", 2, 10_000) for _ in range(4)))
        ids = [leased.id for batch in batches for leased in batch]
        assert sorted(ids) == ["t1", "t2", "t3", "t4", "t5"]

    async def test_a_long_queue_of_one_tenant_does_not_delay_another(self, store: Store) -> None:
        """Given 100 rows of a, two leased, when b and c come with theirs, then they are next."""
        await store.ensure(TABLES)
        await commit(store, 0, 1, *(todo(f"a{n:03}") for n in range(100)))
        await catch_up(store)
        first, _ = await store.lease_rows("scan", 2, 10_000)
        await commit(store, 1, 2, *(todo(f"{t}{n}", tenant=t) for t in "bc" for n in range(3)))
        assert [row.id for row in await store.lease_rows("scan", 5, 10_000)] == [
            *("b0", "c0", "b1", "c1"),  # b and c catch up with the two that a has
            "a002",
        ]
        await store.release(first, 0, counts=False)
        assert [row.id for row in await store.lease_rows("scan", 4, 10_000)] == [
            *("a003", "b2", "c2"),
            "a004",
        ]

    async def test_turns_are_taken_by_kind_and_by_what_is_leased_now(self, store: Store) -> None:
        await store.ensure(TABLES)
        others = [todo(f"a{n}", kind="other") for n in range(3)]
        await commit(store, 0, 1, todo("a0"), todo("a1"), todo("b0", tenant="b"), *others)
        await catch_up(store)
        assert len(await store.lease_rows("other", 3, 10_000)) == 3
        (ended,) = await store.lease_rows("scan", 1, 50)
        assert ended.id == "a0"
        await asyncio.sleep(0.1)  # the lease has ended: a has nothing leased of this kind
        assert [row.id for row in await store.lease_rows("scan", 2, 10_000)] == ["a1", "b0"]

    async def test_security_m2_a_tenant_leaves_workers_for_others(self, store: Store) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 1, *(todo(f"a{n}") for n in range(5)), todo("b0", tenant="b"))
        await catch_up(store)
        leased = await store.lease_rows("scan", 5, 10_000, of_tenant_max=2)
        assert sorted(row.id for row in leased) == ["a0", "a1", "b0"]
        assert await store.lease_rows("scan", 5, 10_000, of_tenant_max=2) == []
        await store.finish(leased[0])
        assert len(await store.lease_rows("scan", 5, 10_000, of_tenant_max=2)) == 1

    async def test_a_released_row_waits_and_keeps_its_tries_and_failure(self, store: Store) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 1, todo("t"))
        await catch_up(store)
        (first,) = await store.lease_rows("scan", 1, 10_000)
        await store.release(first, 1_000, "it \0 broke")
        assert await store.lease_rows("scan", 1, 10_000) == []
        await asyncio.sleep(1.1)
        (second,) = await store.lease_rows("scan", 1, 10_000)
        assert second.try_number == 2
        assert second.failure is not None
        assert "broke" in second.failure
        await store.release(second, 0, counts=False)
        (third,) = await store.lease_rows("scan", 1, 10_000)
        assert third.try_number == 2

    async def test_review2_e3_rows_released_at_one_moment_keep_what_each_was_given(
        self, store: Store
    ) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 1, *(todo(name) for name in "abc"))
        await catch_up(store)
        first, second, third = await store.lease_rows("scan", 3, 10_000)
        await asyncio.gather(
            store.release(first, 0, "it broke"),
            store.release(second, 60_000),
            store.release(third, 0, counts=False),
        )
        rows = await store.lease_rows("scan", 3, 10_000)
        tries = {row.id: (row.try_number, row.failure) for row in rows}
        assert tries == {first.id: (2, "it broke"), third.id: (1, None)}

    async def test_done_and_finish_remove_the_row(self, store: Store) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 1, todo("t"), todo("u"), todo("v"), Done("scan", "v"))
        await catch_up(store)
        first, second = await store.lease_rows("scan", 5, 10_000)
        await commit(store, 1, 2, Done("scan", "t"))
        assert not await store.renew(first, 10_000)
        await store.finish(second)
        assert not await store.renew(second, 10_000)
        await commit(store, 2, 3, todo("t", path="new"))
        (again,) = await store.lease_rows("scan", 5, 10_000)
        assert (again.id, again.try_number) == ("t", 1)

    async def test_command_results_are_written_once_and_pruned(self, store: Store) -> None:
        await store.ensure(TABLES)
        refused = command_result(
            "c2",
            code="illegal_state",
            reason=Reason(code="stage_free", params={"stage": "dev", "number": 1}),
            param="stage",
        )
        await commit(store, 0, 1, command_results=(command_result("c1"), refused))
        await commit(store, 1, 2, command_results=(command_result("c1", code="internal_error"),))
        assert await store.command_result("c1") == command_result("c1")
        assert await store.command_result("c2") == refused
        assert await store.command_result("unknown") is None
        assert await store.prune_command_results(60_000) == 0
        await asyncio.sleep(0.02)
        assert await store.prune_command_results(5) == 2
        assert await store.command_result("c1") is None

    async def test_listeners_are_notified_of_commits(self, store: Store) -> None:
        await store.ensure(TABLES)
        notices: list[tuple[str, str]] = []
        done = asyncio.Event()

        def hear(channel: str, notice: str) -> None:
            if notice:
                notices.append((channel, notice))
            if len(notices) == 4:
                done.set()

        async with (
            store.listen(COMMAND_RESULTS_CHANNEL, lambda notice: hear("command_results", notice)),
            store.listen(TODOS_CHANNEL, lambda notice: hear("todos", notice)),
            store.listen("view", lambda notice: hear("view", notice)),
        ):
            command_results = (command_result("c1"), command_result("c2"))
            await commit(
                store, 0, 1, todo("t"), todo("u"), command_results=command_results, notices=("n",)
            )
            async with asyncio.timeout(60):
                await done.wait()
        assert sorted(notices) == [
            ("command_results", "c1"),
            ("command_results", "c2"),
            ("todos", "scan"),
            ("view", "n"),
        ]
