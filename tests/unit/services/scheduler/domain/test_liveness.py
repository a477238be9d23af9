"""Silence counts only while the watcher could read."""

import copy
import random
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from schemas.node import LeaseSeen, NodeDescription, NodeSeen
from schemas.pool import (
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseMember,
    LeaseRef,
    MemberFreed,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    ObserveNodes,
    Token,
)
from schemas.reasons import ending
from schemas.streams import PARTITIONS
from schemas.telemetry import Heartbeat
from schemas.units import HOUR_MS
from services.scheduler.domain.liveness import PREPARING_REPEAT_MS, REPEAT_MS, Sightings
from simulator.control_plane.samples import POOL, T0

TTL_MS = 10_000
IDLE_MS_MAX = 60_000
REGISTERED = NodeRegistered(
    node=NodeDescription(node_id="a", incarnation="a-1", slots=1, device="cpu", memory_bytes=1)
)


def after(watched: Sightings, change: Callable[[Sightings], None]) -> Sightings:
    """The sightings after a change, beside those before it."""
    later = copy.deepcopy(watched)
    change(later)
    return later


def fold_event(watched: Sightings, pool: str, event: Any, at: int) -> Sightings:
    return after(watched, lambda later: later.fold_event(pool, event, at))


def record_heartbeat(watched: Sightings, heartbeat: Heartbeat, at: int) -> Sightings:
    return after(watched, lambda later: later.record_heartbeat(heartbeat, at))


def advance_silence(watched: Sightings, elapsed_ms: int) -> Sightings:
    return after(watched, lambda later: later.advance_silence(elapsed_ms))


def mark_reported(watched: Sightings, pool: str, observed: Iterable[NodeSeen]) -> Sightings:
    return after(watched, lambda later: later.mark_reported(pool, observed))


def due_observations(watched: Sightings) -> tuple[tuple[str, ObserveNodes], ...]:
    return watched.due_observations()


def sights(*events: Any) -> Sightings:
    watched = Sightings(TTL_MS, IDLE_MS_MAX)
    for event in (REGISTERED, *events):
        watched = fold_event(watched, POOL, event, T0)
    return watched


def beat(incarnation: str = "a-1", node_id: str = "a", **idle_ms: int) -> Heartbeat:
    """`l7=9`: lease 7 is idle for 9 ms."""
    return Heartbeat(
        pool=POOL,
        node_id=node_id,
        incarnation=incarnation,
        leases=tuple(int(name[1:]) for name in idle_ms),
        idle_ms=tuple(idle_ms.values()),
    )


def idle(watched: Sightings) -> list[tuple[int, int]]:
    """Leases without progress that would be reported."""
    return [
        (lease.lease, lease.idle_ms)
        for _, command in due_observations(watched)
        for seen_node in command.seen
        for lease in seen_node.idle
    ]


def seen(watched: Sightings) -> list[tuple[str, int, bool]]:
    return [
        (node.node_id, node.last_seen, node.silent)
        for _, command in due_observations(watched)
        for node in command.seen
    ]


def test_a_live_node_is_not_reported() -> None:
    watched = sights()
    for second in range(60):
        watched = record_heartbeat(advance_silence(watched, 1_000), beat(), T0 + 1_000 * second)
        assert seen(watched) == []


def test_silence_beyond_the_ttl_is_reported_with_the_last_heartbeat() -> None:
    watched = record_heartbeat(sights(), beat(), T0 + 5_000)
    assert seen(advance_silence(watched, TTL_MS)) == []
    watched = advance_silence(watched, TTL_MS + 1)
    assert seen(watched) == [("a", T0 + 5_000, True)]


def test_silence_of_a_new_node_counts_from_its_registration() -> None:
    assert seen(advance_silence(sights(), TTL_MS + 1)) == [("a", T0, True)]


def test_an_outage_of_the_watcher_gives_a_fresh_ttl() -> None:
    watched = after(
        advance_silence(sights(), TTL_MS), lambda later: later.reset_silence(range(PARTITIONS))
    )
    assert seen(advance_silence(watched, TTL_MS)) == []
    assert seen(advance_silence(watched, TTL_MS + 1)) != []


def test_heartbeats_of_another_incarnation_or_node_do_not_count() -> None:
    watched = advance_silence(sights(), TTL_MS + 1)
    assert seen(record_heartbeat(watched, beat("a-0"), T0 + 1)) == seen(watched)
    assert seen(record_heartbeat(watched, beat(node_id="b"), T0 + 1)) == seen(watched)
    assert seen(record_heartbeat(watched, beat(), T0 + 1)) == []


def test_an_observation_is_repeated_until_it_is_in_the_journal() -> None:
    watched = advance_silence(sights(), TTL_MS + 1)
    (pool, command), *_ = due_observations(watched)
    watched = mark_reported(watched, pool, command.seen)
    assert seen(watched) == []
    assert seen(advance_silence(watched, REPEAT_MS)) == [("a", T0, True)]
    lost = fold_event(watched, POOL, NodeLost(node_id="a", incarnation="a-1", last_seen=T0), T0)
    assert seen(advance_silence(lost, REPEAT_MS)) == []


def test_a_lost_node_that_sends_heartbeats_again_is_reported() -> None:
    lost = sights(NodeLost(node_id="a", incarnation="a-1", last_seen=T0))
    watched = record_heartbeat(advance_silence(lost, TTL_MS), beat(), T0 + 60_000)
    assert seen(watched) == [("a", T0 + 60_000, False)]
    back = NodeSeen(node_id="a", incarnation="a-1", last_seen=T0 + 60_000, silent=False)
    assert seen(fold_event(watched, POOL, NodesObserved(seen=(back,)), T0)) == []


def test_a_proof_of_life_is_sent_once_an_hour() -> None:
    watched = record_heartbeat(sights(), beat(), T0 + HOUR_MS + 1)
    assert seen(watched) == [("a", T0 + HOUR_MS + 1, False)]
    (pool, command), *_ = due_observations(watched)
    watched = mark_reported(watched, pool, command.seen)
    assert seen(record_heartbeat(watched, beat(), T0 + HOUR_MS + 9_000)) == []
    assert seen(record_heartbeat(watched, beat(), T0 + 2 * HOUR_MS)) != []


def test_a_retired_node_is_forgotten() -> None:
    assert len(sights()) == 1
    assert len(sights(NodeRetired(node_id="a"))) == 0
    assert len(sights(NodeRetired(node_id="z"))) == 1


def test_an_idle_lease_is_reported_at_the_limit_and_at_each_multiple() -> None:
    watched = sights()
    reported_idle_ms = []
    for second in range(200):
        watched = record_heartbeat(
            advance_silence(watched, 1_000), beat(l1=1_000 * second, l2=10), T0 + 1_000 * second
        )
        for pool, command in due_observations(watched):
            reported_idle_ms.append(command.seen[0].idle[0].idle_ms)
            watched = mark_reported(watched, pool, command.seen)
    assert reported_idle_ms == [61_000, 122_000, 183_000]


def test_progress_begins_a_new_count() -> None:
    watched = record_heartbeat(sights(), beat(l1=IDLE_MS_MAX + 1), T0)
    (pool, command), *_ = due_observations(watched)
    watched = record_heartbeat(mark_reported(watched, pool, command.seen), beat(l1=5), T0)
    assert idle(watched) == []
    watched = record_heartbeat(watched, beat(l1=IDLE_MS_MAX + 1), T0)
    assert idle(watched) == [(1, IDLE_MS_MAX + 1)]


def test_idle_leases_of_a_silent_node_are_not_reported() -> None:
    watched = record_heartbeat(sights(), beat(l1=IDLE_MS_MAX + 1), T0)
    assert idle(advance_silence(watched, TTL_MS + 1)) == []


def test_heartbeats_without_idle_times_report_no_idle_lease() -> None:
    old = Heartbeat(pool=POOL, node_id="a", incarnation="a-1", leases=(1, 2))
    assert idle(record_heartbeat(sights(), old, T0)) == []


def granted(notice_ms: int, lease: int = 7) -> LeaseGranted:
    member = LeaseMember(node_id="a", incarnation="a-1", slots=1, devices=(0,))
    return LeaseGranted(lease=ref(lease), members=(member,), notice_ms=notice_ms)


def ref(lease: int) -> LeaseRef:
    return LeaseRef(
        token=Token(pool=POOL, lease=lease),
        tenant="acme",
        job_id="ftjob-1",
        attempt=1,
        role="train",
        lane="standard",
        price_version="2026-11",
    )


def elapsed(**elapsed_ms: int) -> Heartbeat:
    """`l7=9`: lease 7 has run for 9 ms."""
    leases = tuple(int(name[1:]) for name in elapsed_ms)
    return replace(beat(), leases=leases, elapsed_ms=tuple(elapsed_ms.values()))


def test_what_agents_say_of_elapsed_time_is_passed_on() -> None:
    watched = record_heartbeat(sights(), elapsed(l7=301_000), T0 + HOUR_MS)
    ((_, command),) = due_observations(watched)
    assert command.seen[0].leases == (LeaseSeen(lease=7, elapsed_ms=301_000),)
    silent = record_heartbeat(sights(), beat(l7=0), T0 + HOUR_MS)
    ((_, command),) = due_observations(silent)
    assert command.seen[0].leases is None


def test_a_lease_near_its_cap_is_reported_until_the_journal_says_that_it_ends() -> None:
    watched = record_heartbeat(sights(granted(5_000)), elapsed(l7=4_999), T0)
    assert seen(watched) == []
    watched = record_heartbeat(watched, elapsed(l7=5_000), T0 + 1)
    ((pool, command),) = due_observations(watched)
    watched = mark_reported(watched, pool, command.seen)
    assert seen(watched) == []
    assert seen(advance_silence(watched, REPEAT_MS)) == [("a", T0 + 1, False)]
    draining = LeaseDraining(
        lease=ref(7), deadline=T0, ended_by="budget", reason=ending("cap_reached")
    )
    assert seen(fold_event(advance_silence(watched, REPEAT_MS), POOL, draining, T0)) == []


def test_a_lease_that_is_listed_no_more_is_reported_until_it_is_free() -> None:
    watched = record_heartbeat(sights(granted(5_000)), elapsed(), T0)
    assert seen(watched) == []  # its agent has not read of it yet
    watched = record_heartbeat(record_heartbeat(watched, elapsed(l7=1), T0), elapsed(), T0 + 1)
    assert seen(watched) == [("a", T0 + 1, False)]
    freed = MemberFreed(lease=ref(7), node_id="a")
    assert seen(fold_event(watched, POOL, freed, T0)) == []


def preparing(prepared_bytes: int, elapsed_ms: int = 0) -> Heartbeat:
    listed = replace(beat(l7=0), elapsed_ms=(elapsed_ms,))
    return replace(listed, prepared_bytes=(prepared_bytes,))


def test_sched_b13_preparation_that_goes_on_is_reported_now_and_then() -> None:
    watched = record_heartbeat(sights(), preparing(5), T0)
    watched = advance_silence(watched, PREPARING_REPEAT_MS)
    ((_, command),) = due_observations(record_heartbeat(watched, preparing(9), T0))
    assert command.seen[0].leases == (LeaseSeen(lease=7, elapsed_ms=0, prepared_bytes=9),)
    watched = mark_reported(watched, POOL, command.seen)
    assert seen(record_heartbeat(watched, preparing(12), T0)) == [], "not at every heartbeat"
    watched = advance_silence(watched, PREPARING_REPEAT_MS)
    assert seen(record_heartbeat(watched, preparing(9), T0)) == [], "it stands still"
    assert seen(record_heartbeat(watched, preparing(12, elapsed_ms=1), T0)) == [], "it has started"
    assert seen(record_heartbeat(watched, preparing(12), T0)) == [("a", T0, False)]


def test_a_lost_node_is_not_reported_as_alive_by_a_watcher_that_has_just_begun() -> None:
    """Silence that does not count yet is no sign of life."""
    lost = sights(NodeLost(node_id="a", incarnation="a-1", last_seen=T0))
    assert seen(lost) == []
    fresh = after(
        advance_silence(lost, TTL_MS + 1), lambda later: later.reset_silence(range(PARTITIONS))
    )
    assert seen(advance_silence(fresh, REPEAT_MS)) == []
    assert seen(record_heartbeat(fresh, beat(), T0 + 1)) == [("a", T0 + 1, False)]


def many_nodes(nodes: int) -> Sightings:
    """Nodes of eight leases each, and one lease over the first two."""
    watched = Sightings(TTL_MS, IDLE_MS_MAX)
    for number in range(nodes):
        name = f"n{number}"
        described = NodeDescription(
            node_id=name, incarnation="a-1", slots=8, device="cuda", memory_bytes=1
        )
        watched.fold_event(POOL, NodeRegistered(node=described), T0)
        for lease in range(8 * number, 8 * number + 8):
            watched.fold_event(POOL, granted_on(lease, name), T0)
    watched.fold_event(POOL, granted_on(8 * nodes, "n0", "n1"), T0)
    assert due_observations(watched) == ()
    watched.visits = 0
    return watched


def granted_on(lease: int, *names: str) -> LeaseGranted:
    members = tuple(
        LeaseMember(node_id=name, incarnation="a-1", slots=1, devices=(0,)) for name in names
    )
    return LeaseGranted(lease=ref(lease), members=members, notice_ms=5_000)


def killed(lease: int) -> LeaseKilled:
    return LeaseKilled(lease=ref(lease), ended_by="platform", reason=ending("preempted"))


def test_review2_e2_an_event_a_heartbeat_and_a_look_cost_the_nodes_that_they_concern() -> None:
    watched = many_nodes(3_000)
    watched.fold_event(POOL, killed(8 * 700 + 3), T0)
    assert (due_observations(watched), watched.visits) == ((), 1)
    watched.fold_event(POOL, killed(8 * 3_000), T0)
    assert (due_observations(watched), watched.visits) == ((), 3), "a lease over two nodes"
    watched.record_heartbeat(beat(node_id="n9"), T0)
    assert (due_observations(watched), watched.visits) == ((), 4)
    for _ in range(TTL_MS // 1_000):
        watched.advance_silence(1_000)
        watched.record_heartbeat(beat(node_id="n9"), T0)
        assert due_observations(watched) == ()
    assert watched.visits <= 4 + TTL_MS // 1_000 + 3_000  # once more after REPEAT_MS
    watched.advance_silence(1)
    silent = [node for _, command in due_observations(watched) for node in command.seen]
    assert len(silent) == 2_999
    assert all(node.silent for node in silent)


def test_review2_e2_what_is_due_agrees_with_a_look_at_all_nodes() -> None:
    for case in range(40):
        draw = random.Random(case)
        watched = many_nodes(12)
        at = T0
        for _ in range(120):
            at += draw.randrange(400_000)
            name = f"n{draw.randrange(12)}"
            match draw.randrange(7):
                case 0 | 1:
                    idle_ms = tuple(draw.choice((0, 9, 70_000)) for _ in range(3))
                    listed = replace(beat(), node_id=name, leases=(0, 1, 2), idle_ms=idle_ms)
                    watched.record_heartbeat(listed, at)
                case 2:
                    watched.record_heartbeat(
                        replace(preparing(draw.randrange(9)), node_id=name), at
                    )
                case 3:
                    watched.fold_event(POOL, killed(draw.randrange(97)), at)
                case 4:
                    lost = NodeLost(node_id=name, incarnation="a-1", last_seen=at)
                    watched.fold_event(POOL, lost, at)
                case 5:
                    unread = frozenset(draw.sample(range(PARTITIONS), 2))
                    watched.advance_silence(draw.randrange(4_000), unread)
                case _:
                    watched.advance_silence(draw.choice((500, 3_000, TTL_MS)))
            due = due_observations(watched)
            assert due == due_observations(after(watched, consider_all)), case
            if draw.random() < 0.7:
                for pool, command in due:
                    watched.mark_reported(pool, command.seen)


def consider_all(watched: Sightings) -> None:
    watched._changed |= watched._sights.keys()
