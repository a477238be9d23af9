"""Simulated processes: they start, crash and come back, and each fault ends where it should."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import pytest

from schemas.streams import Topic
from schemas.units import HOUR_MS
from simulator.engine.broker import Broker
from simulator.engine.cluster import PROCESSES, RESTART_MS_MAX, Cluster, Process
from simulator.engine.faults import SESSION_MS, Faults, FaultStep, FaultTally
from simulator.engine.virtual_loop import run_virtual
from tunery.runtime.bus.abstract import Unavailable

TOPIC = Topic("log", "key", HOUR_MS, ("writer",), ("reader",))
GROUP = ("readers", TOPIC.name)


class Waiting:
    """A host that waits for ever, or fails when it is told to."""

    name = "waiting"

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def ready(self) -> None:
        return None

    async def run(self) -> None:
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()


def waiting(_process: Process) -> Sequence[Any]:
    return (Waiting(),)


def cluster_of(build: Callable[[Process], Sequence[Any]] = waiting, seed: int = 1) -> Cluster:
    active = {TOPIC.name: frozenset(range(3))}
    broker = Broker(Random(seed), Faults(), FaultTally(), active)
    return Cluster(broker, seed, {}, build)


def virtually(test: Callable[[Cluster], Awaitable[None]], **changes: Any) -> Cluster:
    """Run a coroutine with a started cluster in virtual time, and end the cluster."""
    clusters: list[Cluster] = []

    async def run() -> None:
        cluster = cluster_of(**changes)
        clusters.append(cluster)
        cluster.start()
        await asyncio.sleep(0)
        await test(cluster)
        cluster.end()
        await asyncio.sleep(0)

    run_virtual(run())
    return clusters[0]


def names(cluster: Cluster) -> list[str]:
    return [process.name for process in cluster.processes]


def test_a_crashed_process_is_replaced_by_one_with_another_name() -> None:
    async def crashes(cluster: Cluster) -> None:
        assert names(cluster) == ["p1", "p2"]
        assert len(names(cluster)) == PROCESSES
        first = cluster.processes[0]
        cluster.crash(first)
        cluster.crash(first)  # it is dead already
        assert (names(cluster), first.port.alive) == (["p2"], False)
        await asyncio.sleep(RESTART_MS_MAX / 1_000)
        assert names(cluster) == ["p2", "p3"]

    cluster = virtually(crashes)
    assert cluster.broker.tally.counts["crash"] == 1
    assert (cluster.named, cluster.died) == ([], [])


def test_no_process_starts_while_all_are_to_be_down() -> None:
    async def stops(cluster: Cluster) -> None:
        cluster.stop_all()
        await asyncio.sleep(2 * RESTART_MS_MAX / 1_000)
        assert names(cluster) == []
        cluster.down = False
        cluster.start()
        assert names(cluster) == ["p3", "p4"]

    virtually(stops)


def test_a_host_that_fails_is_named() -> None:
    async def fails(_cluster: Cluster) -> None:
        await asyncio.sleep(1)

    def build(process: Process) -> Sequence[Any]:
        return (Waiting(KeyError("lease") if process.generation == 2 else None),)

    cluster = virtually(fails, build=build)
    assert cluster.died
    assert all("KeyError" in death for death in cluster.died)


def test_processes_of_one_service_share_its_database_and_no_other() -> None:
    async def asks(cluster: Cluster) -> None:
        assert cluster.database("scheduler") is cluster.database("scheduler")
        assert cluster.database("scheduler") is not cluster.database("billing")

    assert set(virtually(asks).databases) == {"scheduler", "billing"}


def test_ids_of_a_process_repeat_with_the_seed() -> None:
    ids: list[list[str]] = []

    async def draws(cluster: Cluster) -> None:
        ids.append([process.fresh_id() for process in cluster.processes])

    for seed in (1, 1, 2):
        virtually(draws, seed=seed)
    assert ids[0] == ids[1] != ids[2]
    assert len(set(ids[0])) == PROCESSES


@pytest.mark.parametrize(
    ("kind", "is_on"),
    [
        ("broker restart", lambda cluster: cluster.broker.away),
        ("blobs away", lambda cluster: cluster.storage.away),
        ("store away", lambda cluster: cluster.database("s").away),
        ("clock ahead", lambda cluster: cluster.broker.clock.skew_ms > 0),
        ("slow reader", lambda cluster: any(p.port.slow for p in cluster.processes)),
    ],
)
def test_a_fault_begins_at_its_time_and_ends(kind: str, is_on: Callable[[Cluster], bool]) -> None:
    async def faulty(cluster: Cluster) -> None:
        cluster.database("s")
        chaos = asyncio.create_task(cluster.chaos(Faults(steps=(FaultStep(1_000, kind),))))
        await asyncio.sleep(0.999)
        assert not is_on(cluster)
        await asyncio.sleep(0.002)
        assert is_on(cluster)
        await chaos
        assert not is_on(cluster)

    assert virtually(faulty).broker.tally.counts[kind] == 1


def test_a_clock_that_jumps_stays_behind() -> None:
    async def jumps(cluster: Cluster) -> None:
        await cluster.chaos(Faults(steps=(FaultStep(1, "clock jump"),)))
        assert cluster.broker.clock.skew_ms < 0

    virtually(jumps)


def test_the_broker_answers_no_request_during_an_outage() -> None:
    async def away(cluster: Cluster) -> None:
        task = asyncio.create_task(cluster.lose_broker(2))
        await asyncio.sleep(1)
        with pytest.raises(Unavailable):
            cluster.broker.must_answer()
        await task
        cluster.broker.must_answer()

    virtually(away)


@pytest.mark.parametrize("seed", range(4))
def test_a_torn_snapshot_is_cut_in_half_or_gone(seed: int) -> None:
    async def tears(cluster: Cluster) -> None:
        cluster.storage.bodies |= {"snapshots/seats": b"12345678", "t/acme": b"12345678"}
        await cluster.chaos(Faults(steps=(FaultStep(1, "snapshot torn"),)))
        assert cluster.storage.bodies.get("snapshots/seats") in (None, b"1234")
        assert cluster.storage.bodies["t/acme"] == b"12345678"

    virtually(tears, seed=seed)


class Longest(Random):
    """Draws the longest pause that there is."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Following:
    """A host that follows a group until it is sent away."""

    name = "following"

    def __init__(self, process: Process) -> None:
        self._process, self.away = process, asyncio.Event()

    async def ready(self) -> None:
        return None

    async def run(self) -> None:
        async with self._process.port.membership(*GROUP):
            await self.away.wait()
        await asyncio.Event().wait()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_paused_process_comes_back_to_the_groups_that_it_has_not_left(leaves: bool) -> None:
    """A member that is gone must get no partitions, which would not be served."""

    followers: dict[str, Following] = {}

    def build(process: Process) -> Sequence[Any]:
        followers[process.name] = Following(process)
        return (followers[process.name],)

    async def pauses(cluster: Cluster) -> None:
        await asyncio.sleep(1)
        members = cluster.broker.groups[GROUP]
        before = sorted(members)
        assert [name.partition("/")[0] for name in before] == ["p1", "p2"]
        pausing = asyncio.create_task(cluster.actions["pause"](Longest(1)))
        await asyncio.sleep(2 * SESSION_MS / 1_000)
        (paused,) = [process for process in cluster.processes if process.name not in str(members)]
        if leaves:
            followers[paused.name].away.set()
        await pausing
        assert sorted(members) == [
            name for name in before if not leaves or not name.startswith(paused.name)
        ]

    virtually(pauses, build=build)


def test_healing_starts_what_is_missing_and_cancels_planted_faults() -> None:
    async def heals(cluster: Cluster) -> None:
        steps = (FaultStep(1, "crash"), FaultStep(2, "stray cancellation"))
        await cluster.chaos(Faults(steps=steps))
        planted = [(p.port.crash_after, p.port.cancel_after) for p in cluster.processes]
        assert any(crash or cancel for crash, cancel in planted)
        cluster.crash(cluster.processes[0])
        cluster.heal()
        assert len(names(cluster)) == PROCESSES
        assert cluster.broker.healed
        assert all(
            (p.port.crash_after, p.port.cancel_after) == (None, None) for p in cluster.processes
        )

    virtually(heals)
