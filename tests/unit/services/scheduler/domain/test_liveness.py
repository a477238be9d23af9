"""Silence counts only while the watcher could read."""

from typing import Any

from schemas.pool import NodeLost, NodeRegistered, NodeRetired, NodeSeen, NodesObserved
from schemas.telemetry import Heartbeat
from schemas.units import HOUR_MS
from services.scheduler.domain.liveness import (
    NOBODY,
    REPEAT_MS,
    Sights,
    folded,
    heard,
    observations,
    told,
    unseen,
    waited,
)
from simulator.control_plane.samples import POOL, T0

TTL_MS = 10_000
IDLE_MS_MAX = 60_000
REGISTERED = NodeRegistered(node_id="a", incarnation="a-1", slots=1, device="cpu", memory_bytes=1)


def sights(*events: Any) -> Sights:
    found = NOBODY
    for event in (REGISTERED, *events):
        found = folded(found, POOL, event, T0)
    return found


def beat(incarnation: str = "a-1", node_id: str = "a", **idle_ms: int) -> Heartbeat:
    """`l7=9`: lease 7 is idle for 9 ms."""
    return Heartbeat(
        pool=POOL,
        node_id=node_id,
        incarnation=incarnation,
        leases=tuple(int(name[1:]) for name in idle_ms),
        idle_ms=tuple(idle_ms.values()),
    )


def idle(found: Sights) -> list[tuple[int, int]]:
    """What would be told of leases that make no progress."""
    return [
        (it.lease, it.idle_ms)
        for _, command in observations(found, TTL_MS, IDLE_MS_MAX)
        for one in command.seen
        for it in one.idle
    ]


def seen(found: Sights) -> list[tuple[str, int, bool]]:
    return [
        (one.node_id, one.last_seen, one.silent)
        for _, command in observations(found, TTL_MS, IDLE_MS_MAX)
        for one in command.seen
    ]


def test_a_node_that_speaks_is_no_news() -> None:
    found = sights()
    for second in range(60):
        found = heard(waited(found, 1_000), beat(), T0 + 1_000 * second)
        assert seen(found) == []


def test_silence_beyond_the_ttl_is_told_with_the_last_heartbeat() -> None:
    found = heard(sights(), beat(), T0 + 5_000)
    assert seen(waited(found, TTL_MS)) == []
    found = waited(found, TTL_MS + 1)
    assert seen(found) == [("a", T0 + 5_000, True)]


def test_a_node_that_never_spoke_counts_from_its_registration() -> None:
    assert seen(waited(sights(), TTL_MS + 1)) == [("a", T0, True)]


def test_an_outage_of_the_watcher_gives_a_fresh_ttl() -> None:
    found = unseen(waited(sights(), TTL_MS))
    assert seen(waited(found, TTL_MS)) == []
    assert seen(waited(found, TTL_MS + 1)) != []


def test_heartbeats_of_another_incarnation_or_node_do_not_count() -> None:
    found = waited(sights(), TTL_MS + 1)
    assert seen(heard(found, beat("a-0"), T0 + 1)) == seen(found)
    assert seen(heard(found, beat(node_id="b"), T0 + 1)) == seen(found)
    assert seen(heard(found, beat(), T0 + 1)) == []


def test_an_observation_is_repeated_only_while_the_journal_does_not_know() -> None:
    found = waited(sights(), TTL_MS + 1)
    (pool, command), *_ = observations(found, TTL_MS, IDLE_MS_MAX)
    found = told(found, pool, command.seen)
    assert seen(found) == []
    assert seen(waited(found, REPEAT_MS)) == [("a", T0, True)]
    lost = folded(found, POOL, NodeLost(node_id="a", incarnation="a-1", last_seen=T0), T0)
    assert seen(waited(lost, REPEAT_MS)) == []


def test_a_lost_node_that_speaks_again_is_told() -> None:
    lost = sights(NodeLost(node_id="a", incarnation="a-1", last_seen=T0))
    found = heard(waited(lost, TTL_MS), beat(), T0 + 60_000)
    assert seen(found) == [("a", T0 + 60_000, False)]
    back = NodeSeen(node_id="a", incarnation="a-1", last_seen=T0 + 60_000, silent=False)
    assert seen(folded(found, POOL, NodesObserved(seen=(back,)), T0)) == []


def test_a_proof_of_life_is_sent_once_an_hour() -> None:
    found = heard(sights(), beat(), T0 + HOUR_MS + 1)
    assert seen(found) == [("a", T0 + HOUR_MS + 1, False)]
    (pool, command), *_ = observations(found, TTL_MS, IDLE_MS_MAX)
    found = told(found, pool, command.seen)
    assert seen(heard(found, beat(), T0 + HOUR_MS + 9_000)) == []
    assert seen(heard(found, beat(), T0 + 2 * HOUR_MS)) != []


def test_a_retired_node_is_forgotten() -> None:
    assert sights(NodeRetired(node_id="a")) == NOBODY
    assert folded(NOBODY, POOL, NodeRetired(node_id="z"), T0) == NOBODY


def test_no_progress_is_told_at_the_limit_and_again_after_one_more() -> None:
    found = sights()
    told_at = []
    for second in range(200):
        found = heard(waited(found, 1_000), beat(l1=1_000 * second, l2=10), T0 + 1_000 * second)
        for pool, command in observations(found, TTL_MS, IDLE_MS_MAX):
            told_at.append(command.seen[0].idle[0].idle_ms)
            found = told(found, pool, command.seen)
    assert told_at == [61_000, 122_000, 183_000]


def test_progress_begins_a_new_count() -> None:
    found = heard(sights(), beat(l1=IDLE_MS_MAX + 1), T0)
    (pool, command), *_ = observations(found, TTL_MS, IDLE_MS_MAX)
    found = heard(told(found, pool, command.seen), beat(l1=5), T0)
    assert idle(found) == []
    found = heard(found, beat(l1=IDLE_MS_MAX + 1), T0)
    assert idle(found) == [(1, IDLE_MS_MAX + 1)]


def test_a_silent_node_is_lost_and_its_leases_are_not_looked_at() -> None:
    found = heard(sights(), beat(l1=IDLE_MS_MAX + 1), T0)
    assert idle(waited(found, TTL_MS + 1)) == []


def test_agents_that_say_nothing_of_progress_are_believed() -> None:
    old = Heartbeat(pool=POOL, node_id="a", incarnation="a-1", leases=(1, 2))
    assert idle(heard(sights(), old, T0)) == []
