import asyncio
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest

from examples.first_stream import SEATS, HoldSeats, ReleaseSeats
from schemas.envelope import Header, Reason
from schemas.streams import PARTITIONS
from tests.hosts import running
from tests.unit.tunery.runtime.hosts.toy_service import HELD, Toy, await_result, project, toy, until
from tests.virtual_time import on_virtual_time
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts import projector
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.journal.acceptance import Divergence
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import CommitResult, RowBatch, Superseded
from tunery.runtime.store.memory import MemoryStore
from tunery.runtime.verbs import Change


async def settled(toy: Toy) -> None:
    """Until the projection has taken in what was decided on every command sent."""

    async def all_in() -> bool:
        command_results = [
            await toy.runtime.store.command_result(command_id) for command_id in toy.sent
        ]
        return None not in command_results

    await until(all_in)


async def held(toy: Toy) -> dict[str, int]:
    return {row["key"]: row["seats"] for row in await toy.runtime.store.rows("held")}


@on_virtual_time
async def test_events_become_rows_and_command_results() -> None:
    async with toy() as service, running(Projector(service.runtime, HELD)):
        store = service.runtime.store
        accepted = await await_result(store, await service.send("a", HoldSeats(seats=2)))
        assert (accepted.code, accepted.key, accepted.stream, accepted.seq) == (
            None,
            "a",
            "seats",
            1,
        )
        refused = await await_result(store, await service.send("a", HoldSeats(seats=9)))
        expected = Reason(code="seats_at_most", params={"held": 2, "limit": 5})
        assert (refused.code, refused.reason) == ("full", expected)
        assert await held(service) == {"a": 2}
        await await_result(store, await service.send("a", ReleaseSeats(seats=2)))
        assert await held(service) == {}


@on_virtual_time
async def test_a_new_process_goes_on_where_the_old_one_stopped() -> None:
    async with toy() as service:
        async with running(Projector(service.runtime, HELD)):
            await service.send("a", HoldSeats(seats=1))
            await settled(service)
        await service.send("b", HoldSeats(seats=2))
        seen: list[str] = []

        def watched(header: Header, event: Any) -> tuple[Change, ...]:
            seen.append(header.key)
            return project(header, event)

        again = service.again()
        async with running(Projector(again.runtime, replace(HELD, project=watched))):
            await settled(again)
        assert seen == ["b"]
        assert await held(again) == {"a": 1, "b": 2}


@on_virtual_time
async def test_two_processes_write_each_row_once() -> None:
    async with toy() as service:
        other = service.again()
        async with running(Projector(service.runtime, HELD), Projector(other.runtime, HELD)):
            for number in range(30):
                await service.send(f"key-{number}", HoldSeats(seats=1 + number % 5))
                await asyncio.sleep(0)
            await settled(service)
        assert await held(service) == {f"key-{n}": 1 + n % 5 for n in range(30)}


@on_virtual_time
async def test_a_newer_version_starts_from_zero_and_ends_the_older() -> None:
    async with toy() as service:
        async with running(Projector(service.runtime, HELD)):
            await service.send("a", HoldSeats(seats=1))
            await settled(service)
        newer = Projector(service.again().runtime, replace(HELD, version=2))
        async with running(newer):
            await settled(service)
            assert await held(service) == {"a": 1}
            with pytest.raises(Superseded):
                await Projector(service.again().runtime, HELD).run()


@pytest.mark.parametrize("keys", [("c",), ("a", "a")], ids=["shorter", "another hash chain"])
@on_virtual_time
async def test_another_log_is_a_divergence_and_rebuilds_the_view(keys: tuple[str, ...]) -> None:
    assert partition_of(b"a") != partition_of(b"c")
    async with toy() as first:
        async with running(Projector(first.runtime, HELD)):
            await first.send("a", HoldSeats(seats=1))
            await settled(first)
        store = first.runtime.store
    assert isinstance(store, MemoryStore)
    async with toy() as second:
        for key in keys:
            await second.send(key, HoldSeats(seats=2))
        moved = second.again(store)
        async with running(Projector(moved.runtime, HELD)):
            await settled(moved)
            assert await held(moved) == {keys[0]: 2}


@on_virtual_time
async def test_a_projection_that_may_not_rebuild_stops_that_partition_only() -> None:
    async with toy() as service:
        await service.runtime.store.ensure(HELD.described())
        broken = partition_of(b"a")
        far = RowBatch("held", 1, ("seats", broken), 0, Position(1_000))
        await service.runtime.store.commit(far)
        await service.send("a", HoldSeats(seats=1))
        other = next(k for k in ("b", "c", "d", "e") if partition_of(k.encode()) != broken)
        await service.send(other, HoldSeats(seats=2))
        async with running(Projector(service.runtime, replace(HELD, rebuilds=False))):

            async def arrived() -> bool:
                return await held(service) == {other: 2}

            await until(arrived)
            saved = await service.runtime.store.positions("held")
            flags = [saved["seats", p].caught_up for p in range(PARTITIONS)]
            assert flags == [p != broken for p in range(PARTITIONS)]
            stopped = [saved["seats", p].stopped is not None for p in range(PARTITIONS)]
            assert stopped == [p == broken for p in range(PARTITIONS)]


@on_virtual_time
async def test_a_divergence_that_a_rebuild_does_not_cure_is_not_cured_twice() -> None:
    async with toy() as service:
        await service.send("a", HoldSeats(seats=1))
        projector = Projector(service.runtime, HELD)
        async with running(projector):
            await settled(service)
        log, topic, partition = service.world.log, SEATS.journal.name, partition_of(b"a")
        await log.trim(topic, partition, 1)  # the journal has lost its first record
        again = service.again(MemoryStore())
        async with running(Projector(again.runtime, HELD)):
            saved = await again.runtime.store.positions("held")
            assert not saved["seats", partition].caught_up
            assert saved["seats", (partition + 1) % PARTITIONS].caught_up
        assert await held(again) == {}


@on_virtual_time
async def test_reports_show_rows_once_all_are_there_and_again_after_a_rebuild() -> None:
    reported = replace(HELD, once_built="CREATE VIEW")
    async with toy() as service:
        await service.send("a", HoldSeats(seats=1))
        store, shown = service.runtime.store, list[dict[str, int]]()

        async def run_ddl(statements: str) -> None:
            assert statements == "CREATE VIEW"
            shown.append(await held(service))

        with mock.patch.object(store, "run_ddl", run_ddl):
            async with running(Projector(service.runtime, reported)):
                await service.send("a", HoldSeats(seats=2))
                await settled(service)
            assert shown == [{"a": 1}]
            partition = ("seats", partition_of(b"a"))
            offset = (await store.positions("held"))[partition].position.offset
            await store.commit(RowBatch("held", 1, partition, offset, Position(1_000)))
            async with running(Projector(service.runtime, reported)):
                assert shown[1:] == [await held(service)]


@on_virtual_time
async def test_a_caught_up_flag_lowered_by_another_process_is_raised_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by the simulator (mutant `a lowered flag stays down`): effects waited for ever."""
    monkeypatch.setattr(projector, "RAISE_EVERY_MS", 10)
    async with toy() as service, running(Projector(service.runtime, HELD)):
        store = service.runtime.store
        await store.set_caught_up("held", ("seats", 3), False)

        async def raised() -> bool:
            return (await store.positions("held"))["seats", 3].caught_up

        await until(raised)


@on_virtual_time
async def test_entries_that_lead_to_nothing_are_committed_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every one of them was a commit: nine of thirteen commits for each submitted job."""
    monkeypatch.setattr(projector, "HELD_MS_MAX", 100)
    unmoved = replace(HELD, project=lambda header, event: (), command_results=False, notify=None)
    partition = partition_of(b"a")
    async with toy() as service:
        store = service.runtime.store
        assert isinstance(store, MemoryStore)
        committed: list[int] = []
        commit = store.commit

        async def counted(batch: RowBatch) -> CommitResult:
            committed.append(batch.position.offset)
            return await commit(batch)

        monkeypatch.setattr(store, "commit", counted)
        async with running(Projector(service.runtime, unmoved)):

            async def reached(end: int) -> bool:
                saved = await store.positions("held")
                return saved["seats", partition].position.offset == end

            await until(partial(reached, 1))  # the claim of the owner
            before = len(committed)
            for _ in range(20):
                await service.send("a", HoldSeats(seats=9))
                await asyncio.sleep(0)
            await until(partial(reached, 21))
        assert len(committed) - before <= 5


@on_virtual_time
async def test_listeners_receive_the_notices_of_the_projection() -> None:
    async with toy() as service:
        notices: list[str] = []
        async with (
            service.runtime.store.listen("held", notices.append),
            running(Projector(service.runtime, HELD)),
        ):
            await service.send("a", HoldSeats(seats=1))
            await service.send("a", HoldSeats(seats=9))
            await settled(service)
        assert notices == ["a"]


@on_virtual_time
async def test_a_project_that_raises_names_the_place() -> None:
    def broken(header: Header, event: Any) -> tuple[Change, ...]:
        raise KeyError("no such field")

    async with toy() as service:
        await service.send("a", HoldSeats(seats=1))
        projector = Projector(service.runtime, replace(HELD, project=broken))
        with pytest.raises(KeyError) as caught:
            async with asyncio.timeout(180):
                await projector.run()
        assert any("projecting seats/" in note for note in caught.value.__notes__)


def test_divergence_is_what_a_partition_stops_with() -> None:
    assert str(Divergence("job", 3, 7, "gap")) == "job/3 at offset 7: gap"
