"""One process's access to the log: sleep, death and mistaken cancellation at any await."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from schemas.streams import Topic
from schemas.units import HOUR_MS
from simulator.engine.broker import EPOCH_MS, Broker
from simulator.engine.faults import Faults, FaultTally
from simulator.engine.faulty_port import FETCHED_MAX, SLOW_MS, FaultyPort
from simulator.engine.virtual_loop import run_virtual
from tunery.runtime.bus.abstract import AppendUnknown, Commit, TooLarge, Unavailable

TOPIC = Topic("log", "key", HOUR_MS, ("writer",), ("reader",))


async def begun(**faults: Any) -> FaultyPort:
    broker = Broker(Random(1), Faults(**faults), FaultTally(), {TOPIC.name: frozenset({0, 1})})
    port = FaultyPort(broker, "p1", Random(1))
    await port.create((TOPIC,), 2)
    return port


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(scene())


def test_what_a_port_writes_can_be_read_through_it() -> None:
    async def scene() -> None:
        port = await begun()
        writer = await port.writer(TOPIC.name, 1)
        assert (await writer.append(b"k", b"a")).offset == 0
        assert (await port.send(TOPIC.name, b"k", b"b", 1)).offset == 1
        reader = await port.reader(TOPIC.name, {1: 0})
        records = [*await reader.poll(100, 500)]
        while len(records) < 2:
            records += await reader.poll(100, 500)
        assert [record.value for record in records] == [b"a", b"b"]
        assert await port.bounds(TOPIC.name, 1) == (0, 2)
        await reader.close()
        await writer.close()

    play(scene)


def test_a_fetch_ends_anywhere_and_a_slow_reader_gets_one_record_late() -> None:
    async def scene() -> None:
        port = await begun()
        for number in range(60):
            await port.send(TOPIC.name, b"k", b"%d" % number, 0)
        reader = await port.reader(TOPIC.name, {0: 0})
        fetched = [len(await reader.poll(100, 500)) for _ in range(5)]
        assert max(fetched) <= FETCHED_MAX
        assert len(set(fetched)) > 1
        port.slow = True
        before = port.monotonic_ms()
        assert len(await reader.poll(100, 500)) == 1
        assert port.monotonic_ms() - before >= SLOW_MS

    play(scene)


def test_a_machine_that_sleeps_has_a_clock_that_stands_and_does_not_go_on() -> None:
    async def scene() -> None:
        port, went_on = await begun(), list[int]()

        async def work() -> None:
            await port.pass_through()
            went_on.append(port.broker.clock.monotonic_ms())

        assert port.fall_asleep()
        assert not port.fall_asleep()  # it sleeps already
        asleep_since = port.monotonic_ms()
        working = asyncio.create_task(work())
        await asyncio.sleep(60)
        assert port.monotonic_ms() == asleep_since
        assert port.now_ms() == EPOCH_MS + port.broker.clock.monotonic_ms()
        port.resume()  # of a pause: it does not wake a machine
        await asyncio.sleep(1)
        assert went_on == []
        port.wake_up()
        port.wake_up()
        await working
        assert went_on[0] >= 61_000
        assert port.monotonic_ms() < asleep_since + 1_000

    play(scene)


def test_a_process_dies_at_the_await_that_was_drawn_and_never_goes_on() -> None:
    async def scene() -> None:
        port, deaths, awaits = await begun(), list[bool](), list[int]()
        port.on_crash = lambda: deaths.append(port.alive)
        port.crash_after = 3

        async def work() -> None:
            for number in range(10):
                await port.pass_through()
                awaits.append(number)

        working = asyncio.create_task(work())
        await asyncio.sleep(10)
        assert awaits == [0, 1]
        assert deaths == [False]
        assert not working.done()
        working.cancel()

    play(scene)


def test_only_a_task_of_a_watched_host_is_cancelled_by_mistake() -> None:
    async def scene() -> None:
        port = await begun()
        port.cancel_after = 1
        await port.pass_through()  # this task belongs to no host
        assert port.cancel_after is not None
        assert port.broker.tally.counts == {}

    play(scene)


def test_a_broker_that_is_away_answers_no_request() -> None:
    async def scene() -> None:
        port = await begun()
        reader = await port.reader(TOPIC.name, {0: 0})
        port.broker.away = True
        asked: list[Coroutine[Any, Any, Any]] = [
            port.writer(TOPIC.name, 0),
            port.bounds(TOPIC.name, 0),
            port.trim(TOPIC.name, 0, 0),
            port.committed("g", TOPIC.name),
            port.commit("g", TOPIC.name, {0: Commit(1, "")}),
            reader.poll(10, 10),
        ]
        for question in asked:
            with pytest.raises(Unavailable):
                await question
        with pytest.raises(Unavailable):
            await port.send(TOPIC.name, b"k", b"v")

    play(scene)


def test_commits_and_trims_reach_the_log_and_trims_are_noted() -> None:
    async def scene() -> None:
        port, trims = await begun(), list[tuple[str, int, int]]()
        port.broker.on_trim = lambda *trim: trims.append(trim)
        for _ in range(3):
            await port.send(TOPIC.name, b"k", b"v", 0)
        await port.commit("g", TOPIC.name, {0: Commit(2, "note")})
        assert await port.committed("g", TOPIC.name) == {0: Commit(2, "note")}
        await port.trim(TOPIC.name, 0, 2)
        assert trims == [(TOPIC.name, 0, 2)]
        assert await port.bounds(TOPIC.name, 0) == (2, 3)

    play(scene)


def test_a_record_that_is_too_large_never_leaves_the_process() -> None:
    async def scene() -> None:
        port = await begun()
        writer = await port.writer(TOPIC.name, 0)
        huge = bytes(10_000_000)
        with pytest.raises(TooLarge):
            await writer.submit(b"k", huge)
        with pytest.raises(TooLarge):
            await port.send(TOPIC.name, b"k", huge)
        assert port.broker.history == {}

    play(scene)


def test_appends_in_flight_arrive_in_order_although_each_takes_its_own_time() -> None:
    async def scene() -> None:
        port = await begun(slow=60)
        writer = await port.writer(TOPIC.name, 0)
        flying = [await writer.submit(b"k", b"%d" % number) for number in range(12)]
        assert [(await outcome).offset for outcome in flying] == list(range(12))
        history = port.broker.history[TOPIC.name, 0]
        assert [record.value for record in history] == [b"%d" % n for n in range(12)]

    play(scene)


def test_behind_a_lost_record_a_writer_is_broken_or_is_overtaken() -> None:
    outcomes = set[tuple[bool, bool]]()
    for seed in range(20):

        async def scene(seed: int = seed) -> None:
            port = await begun(lost=100)
            port.broker.rng = Random(seed)
            writer = await port.writer(TOPIC.name, 0)
            first = await writer.submit(b"k", b"first")
            with pytest.raises(AppendUnknown):
                await first
            port.broker.healed = True
            try:
                await writer.append(b"k", b"second")
                overtook = True
            except AppendUnknown:
                overtook = False
            written = bool(port.broker.history[TOPIC.name, 0])
            assert written is overtook
            outcomes.add((overtook, written))

        play(scene)
    assert outcomes == {(True, True), (False, False)}


def test_a_member_gets_its_share_and_leaves_only_while_it_lives() -> None:
    async def scene() -> None:
        port = await begun()
        members = port.broker.groups["g", TOPIC.name]
        async with port.membership("g", TOPIC.name) as shares:
            assert await anext(shares) == frozenset({0, 1})
            assert list(members) == ["p1/1"]
        assert list(members) == []
        async with port.membership("g", TOPIC.name):
            port.alive = False
        assert list(members) == ["p1/2"]  # until its session expires
        port.alive = True

    play(scene)
