"""The simulated broker: each fault does what its name says, and groups share what there is."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from schemas.streams import Topic
from schemas.units import HOUR_MS
from simulator.engine.broker import BROADCAST_MS_MAX, EPOCH_MS, LATE_MS_MAX, Broker, TrueClock
from simulator.engine.faults import APPEND_MS_MAX, Faults, FaultTally
from simulator.engine.virtual_loop import run_virtual
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable

TOPIC = Topic("log", "key", HOUR_MS, ("writer",), ("reader",))
GROUP = ("readers", TOPIC.name)


def broker_with(**faults: Any) -> Broker:
    active = {TOPIC.name: frozenset(range(3))}
    return Broker(Random(1), Faults(**faults), FaultTally(), active)


async def begun(**faults: Any) -> Broker:
    broker = broker_with(**faults)
    await broker.memory.create((TOPIC,), 3)
    return broker


async def append(broker: Broker, value: bytes = b"v") -> int | None:
    """The offset of an append; None when its writer does not know."""
    try:
        return (await broker.append("writer", TOPIC.name, 0, b"k", value)).offset
    except AppendUnknown:
        return None


def values(broker: Broker, partition: int = 0) -> list[bytes]:
    return [record.value for record in broker.history[TOPIC.name, partition]]


def in_virtual_time(run: Coroutine[Any, Any, None]) -> None:
    run_virtual(run)


def test_without_faults_an_append_is_in_the_log_and_acknowledged() -> None:
    async def run() -> None:
        broker = await begun()
        assert [await append(broker, b"a"), await append(broker, b"b")] == [0, 1]
        assert values(broker) == [b"a", b"b"]
        assert broker.tally.counts == {}

    in_virtual_time(run())


@pytest.mark.parametrize(
    ("fault", "known", "at_once", "in_the_end"),
    [
        ("lost", False, 0, 0),
        ("late", False, 0, 1),
        ("unanswered", False, 1, 1),
        ("doubled", True, 1, 2),
        ("slow", True, 1, 1),
    ],
)
def test_a_fault_of_an_append_decides_what_is_written_and_what_its_writer_learns(
    fault: str, known: bool, at_once: int, in_the_end: int
) -> None:
    async def run() -> None:
        broker = await begun(**{fault: 100})
        writing = asyncio.create_task(append(broker))
        await asyncio.sleep(0.001)
        assert len(values(broker)) == at_once
        assert ((await writing) is not None) is known
        await asyncio.sleep(LATE_MS_MAX / 1_000)
        assert len(values(broker)) == in_the_end
        assert broker.tally.counts == {f"append {fault}": 1}

    in_virtual_time(run())


def test_a_writer_without_an_answer_gives_up_after_its_limit() -> None:
    async def run() -> None:
        broker = await begun(lost=100)
        assert await append(broker) is None
        assert broker.clock.monotonic_ms() == APPEND_MS_MAX

    in_virtual_time(run())


def test_a_broker_that_is_away_takes_nothing_not_even_what_was_under_way() -> None:
    async def run() -> None:
        broker = await begun(late=100)
        writing = asyncio.create_task(append(broker))
        await asyncio.sleep(0.001)
        broker.away = True
        with pytest.raises(Unavailable):
            broker.must_answer()
        assert await append(broker) is None
        assert await writing is None
        await asyncio.sleep(LATE_MS_MAX / 1_000)
        assert values(broker) == []
        assert broker.tally.counts == {"append late": 1, "append cut off": 1}

    in_virtual_time(run())


def test_a_healed_broker_has_no_faults_left() -> None:
    async def run() -> None:
        broker = await begun(lost=100, stale_ends=100)
        broker.healed = True
        assert await append(broker) == 0
        assert await broker.bounds(TOPIC.name, 0) == (0, 1)

    in_virtual_time(run())


def test_an_end_may_be_stale_but_never_before_what_a_client_has_seen() -> None:
    async def run() -> None:
        broker = await begun(stale_ends=100)
        for _ in range(3):
            await append(broker)
        assert await broker.bounds(TOPIC.name, 0) == (0, 0)
        broker.expose(TOPIC.name, 0, 2)
        broker.expose(TOPIC.name, 0, 1)  # it has seen more before
        assert await broker.bounds(TOPIC.name, 0) == (0, 2)
        broker.expose(TOPIC.name, 0, 3)
        assert await broker.bounds(TOPIC.name, 0) == (0, 3)
        assert broker.tally.counts == {"stale end": 2}

    in_virtual_time(run())


def test_a_lost_tail_is_gone_from_the_log_and_from_its_history() -> None:
    async def run() -> None:
        broker = await begun()
        for value in (b"a", b"b", b"c"):
            await append(broker, value)
        assert broker.lose_tail(TOPIC.name, 0, 2) == 2
        assert values(broker) == [b"a"]
        assert await broker.bounds(TOPIC.name, 0) == (0, 1)
        assert broker.lose_tail(TOPIC.name, 0, 5) == 1
        assert broker.lose_tail(TOPIC.name, 0, 5) == 0
        assert await append(broker, b"d") == 0

    in_virtual_time(run())


def test_a_recreated_partition_begins_again_and_gives_its_old_records() -> None:
    async def run() -> None:
        broker = await begun()
        await append(broker, b"a")
        assert [record.value for record in broker.recreate(TOPIC.name, 0)] == [b"a"]
        assert await append(broker, b"b") == 0
        assert values(broker) == [b"b"]

    in_virtual_time(run())


def test_the_brokers_clock_may_be_off_and_true_time_is_not() -> None:
    async def run() -> None:
        broker = broker_with()
        await broker.clock.sleep(250)
        broker.clock.skew_ms = -1_000
        assert broker.clock.true_ms() == EPOCH_MS + 250
        assert broker.clock.now_ms() == EPOCH_MS - 750
        right = TrueClock(broker.clock)
        assert (right.now_ms(), right.monotonic_ms()) == (EPOCH_MS + 250, 250)

    in_virtual_time(run())


async def shares(*queues: asyncio.Queue[frozenset[int]]) -> list[frozenset[int]]:
    """The newest assignment that each member has got."""
    await asyncio.sleep(2 * BROADCAST_MS_MAX / 1_000)
    newest: list[frozenset[int]] = []
    for queue in queues:
        share = frozenset[int]()
        while not queue.empty():
            share = queue.get_nowait()
        newest.append(share)
    return newest


def test_members_of_a_group_share_the_partitions_in_use() -> None:
    async def run() -> None:
        broker = broker_with()
        first = broker.join(GROUP, "p1/1")
        assert await shares(first) == [frozenset({0, 1, 2})]
        second = broker.join(GROUP, "p2/1")
        assert await shares(first, second) == [frozenset({0, 2}), frozenset({1})]
        broker.leave(GROUP, "p1/1")
        broker.leave(GROUP, "p1/1")  # it has left
        assert await shares(first, second) == [frozenset(), frozenset({0, 1, 2})]

    in_virtual_time(run())


def test_a_session_that_expires_takes_all_members_of_its_process() -> None:
    async def run() -> None:
        broker = broker_with()
        broker.join(GROUP, "p1/1")
        broker.join(GROUP, "p1/2")
        other = broker.join(GROUP, "p10/1")
        gone = broker.expire(GROUP, "p1")
        assert sorted(gone) == ["p1/1", "p1/2"]
        assert await shares(other) == [frozenset({0, 1, 2})]
        assert broker.join(GROUP, "p1/1", gone["p1/1"]) is gone["p1/1"]

    in_virtual_time(run())


def test_assignments_arrive_late_but_in_their_order() -> None:
    async def run() -> None:
        broker = broker_with()
        queue = broker.join(GROUP, "p1/1")
        for number in range(20):
            broker.announce(GROUP, "p1/1", frozenset({number}))
        broker.announce(GROUP, "nobody", frozenset({7}))
        assert queue.empty()
        await asyncio.sleep(30 * BROADCAST_MS_MAX / 1_000)
        got = [queue.get_nowait() for _ in range(queue.qsize())]
        assert got[1:] == [frozenset({number}) for number in range(20)]

    in_virtual_time(run())
