"""Which nodes are alive: what the journal believes beside what heartbeats say.

Silence counts only while the watcher itself could read; after an outage every node gets a fresh
TTL. Times of heartbeats are the broker's, silence is the watcher's own elapsed time.
"""

from collections.abc import Iterable, Set
from typing import Final, Literal, TypeAlias

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from schemas.node import IdleLease, LeaseSeen, NodeForgotten, NodeSeen
from schemas.pool import (
    Event,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    MemberFreed,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    ObserveNodes,
)
from schemas.telemetry import Heartbeat
from schemas.units import Ms, hour_of

# An observation that changed nothing (its command was lost, or came too early) is sent again.
REPEAT_MS: Final = 5_000
PREPARING_REPEAT_MS: Final = 120_000  # between two reports that preparations of a node go on
OBSERVED_MAX: Final = 50  # nodes in one command, each with up to 256 leases of 30 bytes


class Sight(Struct, frozen=True, kw_only=True):
    """What the watcher knows of one node.

    pool, node_id, incarnation: which agent.
    last_seen: broker time of its last heartbeat.
    standing: as the journal has it.
    silent_ms: how long the watcher has read nothing from it, by its own clock.
    idle: leases as the last heartbeat said.
    reported_hour: hour of the heartbeats in the last `ObserveNodes`.
    reported_silent: whether that one said it is silent.
    reported_idle: leases that were reported as idle, and for how long they were idle then.
    since_report_ms: how long ago the last `ObserveNodes` was sent.
    leases: what the last heartbeat listed; None: its agent says nothing of elapsed time.
    listed: leases that an earlier heartbeat of this agent listed.
    notices: elapsed time of its leases that the pool must learn of at once, by lease number.
    reported_bytes: what leases that have not started had prepared in the last `ObserveNodes`.
    """

    pool: str
    node_id: str
    incarnation: str
    last_seen: Ms
    reported_hour: int
    standing: Literal["up", "lost"] = "up"
    silent_ms: Ms = 0
    reported_silent: bool = False
    since_report_ms: Ms = REPEAT_MS
    idle: tuple[IdleLease, ...] = ()
    reported_idle: tuple[IdleLease, ...] = ()
    leases: tuple[LeaseSeen, ...] | None = None
    listed: frozenset[int] = frozenset()
    notices: Map[int, Ms] = Map()
    reported_bytes: Map[int, int] = Map()


Sights: TypeAlias = Map[tuple[str, str], Sight]
INITIAL: Final[Sights] = Map()


def fold_event(sights: Sights, pool: str, event: Event, at: Ms) -> Sights:
    """Sights after an event of the pool's journal: which nodes there are, and their standing."""
    match event:
        case NodeRegistered():
            sight = Sight(
                pool=pool,
                node_id=event.node.node_id,
                incarnation=event.node.incarnation,
                last_seen=at,
                reported_hour=hour_of(at),
            )
            return sights.set((pool, event.node.node_id), sight)
        case NodeRetired() | NodeForgotten():
            key = (pool, event.node_id)
            return sights.delete(key) if key in sights else sights
        case NodeLost():
            return _with_standing(sights, pool, event.node_id, "lost")
        case NodesObserved():
            for seen in event.seen:
                if not seen.silent:
                    sights = _with_standing(sights, pool, seen.node_id, "up")
            return sights
        case LeaseGranted():
            for member in event.members:
                notice = event.lease.token.lease, event.notice_ms
                sights = _with_notice(sights, pool, member.node_id, *notice)
            return sights
        case LeaseDraining() | LeaseKilled():
            # It is to end anyway, and the pool has deadlines of its own for that.
            for key in [key for key in sights if key[0] == pool]:
                sights = _with_notice(sights, pool, key[1], event.lease.token.lease, None)
            return sights
        case MemberFreed():
            return _with_notice(sights, pool, event.node_id, event.lease.token.lease, None)
        case _:
            return sights


def _with_notice(
    sights: Sights, pool: str, node_id: str, lease: int, notice_ms: Ms | None
) -> Sights:
    sight = sights.get((pool, node_id))
    if sight is None or (notice_ms is None and lease not in sight.notices):
        return sights
    notices = (
        sight.notices.delete(lease) if notice_ms is None else sight.notices.set(lease, notice_ms)
    )
    return sights.set((pool, node_id), replace(sight, notices=notices))


def _with_standing(
    sights: Sights, pool: str, node_id: str, standing: Literal["up", "lost"]
) -> Sights:
    sight = sights.get((pool, node_id))
    if sight is None:
        return sights
    return sights.set((pool, node_id), replace(sight, standing=standing))


def record_heartbeat(sights: Sights, beat: Heartbeat, at: Ms) -> Sights:
    """Sights after a heartbeat, at broker time. Other incarnations say nothing about this one."""
    key = (beat.pool, beat.node_id)
    sight = sights.get(key)
    if sight is None or sight.incarnation != beat.incarnation:
        return sights
    pairs = zip(beat.leases, beat.idle_ms, strict=False)  # agents may leave the second out
    idle = tuple(IdleLease(lease=lease, idle_ms=idle_ms) for lease, idle_ms in pairs)
    idle_ms_of = {lease.lease: lease.idle_ms for lease in idle}
    still_idle = tuple(
        lease for lease in sight.reported_idle if lease.idle_ms <= idle_ms_of.get(lease.lease, 0)
    )
    prepared = dict(zip(beat.leases, beat.prepared_bytes, strict=False))
    elapsed = tuple(
        LeaseSeen(lease=lease, elapsed_ms=elapsed_ms, prepared_bytes=prepared.get(lease, 0))
        for lease, elapsed_ms in zip(beat.leases, beat.elapsed_ms, strict=False)
    )
    alive = replace(
        sight,
        last_seen=max(sight.last_seen, at),
        silent_ms=0,
        leases=elapsed if len(elapsed) == len(beat.leases) else None,
        listed=(sight.listed | set(beat.leases)) & set(sight.notices),
        idle=idle,
        reported_idle=still_idle,
    )
    return sights.set(key, alive)


def advance_silence(
    sights: Sights, elapsed_ms: Ms, unread: Set[tuple[str, str]] = frozenset()
) -> Sights:
    """The watcher could read for so long. Heartbeats it read are recorded after this.

    `unread`: nodes whose heartbeats it could not read; silence of theirs means nothing so far.
    """
    for key, sight in sights.items():
        later = replace(
            sight,
            silent_ms=0 if key in unread else sight.silent_ms + elapsed_ms,
            since_report_ms=sight.since_report_ms + elapsed_ms,
        )
        sights = sights.set(key, later)
    return sights


def reset_silence(sights: Sights) -> Sights:
    """The watcher could not read: no node's silence means anything so far."""
    for key, sight in sights.items():
        sights = sights.set(key, replace(sight, silent_ms=0))
    return sights


def due_observations(
    sights: Sights, ttl_ms: Ms, idle_ms_max: Ms
) -> tuple[tuple[str, ObserveNodes], ...]:
    """Pools and the observations to send them: changes, and a proof of life after each hour.

    A lease that is idle for longer than the limit is reported, and again after each limit more; one
    near its cap, or no longer listed by its agent, until the journal says that it is to end.
    """
    by_pool: dict[str, list[NodeSeen]] = {}
    for key in sorted(sights):
        sight = sights[key]
        silent = sight.silent_ms > ttl_ms
        is_news = silent != sight.reported_silent or sight.since_report_ms >= REPEAT_MS
        changed = is_news and silent == (sight.standing == "up")
        hourly = not silent and hour_of(sight.last_seen) > sight.reported_hour
        idle = () if silent else _idle_beyond(sight, idle_ms_max)
        ends = not silent and sight.since_report_ms >= REPEAT_MS and _has_lease_to_end(sight)
        if changed or hourly or idle or ends or (not silent and _prepares(sight)):
            seen = NodeSeen(
                node_id=sight.node_id,
                incarnation=sight.incarnation,
                last_seen=sight.last_seen,
                silent=silent,
                idle=idle,
                leases=sight.leases,
            )
            by_pool.setdefault(sight.pool, []).append(seen)
    return tuple(
        (pool, ObserveNodes(seen=tuple(seen[first : first + OBSERVED_MAX])))
        for pool, seen in by_pool.items()
        for first in range(0, len(seen), OBSERVED_MAX)
    )


def _prepares(sight: Sight) -> bool:
    """Whether a lease that has not started has more prepared than was reported some time ago."""
    if sight.since_report_ms < PREPARING_REPEAT_MS:
        return False
    return any(
        bytes_now > sight.reported_bytes.get(lease, 0)
        for lease, bytes_now in _prepared(sight.leases).items()
    )


def _prepared(leases: tuple[LeaseSeen, ...] | None) -> Map[int, int]:
    return Map({seen.lease: seen.prepared_bytes for seen in leases or () if seen.elapsed_ms == 0})


def _has_lease_to_end(sight: Sight) -> bool:
    if sight.leases is None:
        return False
    elapsed = {lease.lease: lease.elapsed_ms for lease in sight.leases}
    return any(
        elapsed[lease] >= notice_ms if lease in elapsed else lease in sight.listed
        for lease, notice_ms in sight.notices.items()
    )


def _idle_beyond(sight: Sight, idle_ms_max: Ms) -> tuple[IdleLease, ...]:
    """Leases idle for the limit since they were reported, or since they made progress."""
    before = {lease.lease: lease.idle_ms for lease in sight.reported_idle}
    return tuple(
        lease for lease in sight.idle if lease.idle_ms - before.get(lease.lease, 0) > idle_ms_max
    )


def mark_reported(sights: Sights, pool: str, observed: Iterable[NodeSeen]) -> Sights:
    """Sights after these observations were sent."""
    for seen in observed:
        sight = sights.get((pool, seen.node_id))
        if sight is None:
            continue
        new = {lease.lease for lease in seen.idle}
        earlier = tuple(lease for lease in sight.reported_idle if lease.lease not in new)
        reported = replace(
            sight,
            reported_silent=seen.silent,
            since_report_ms=0,
            reported_hour=hour_of(seen.last_seen),
            reported_idle=(*earlier, *seen.idle),
            reported_bytes=_prepared(seen.leases),
        )
        sights = sights.set((pool, seen.node_id), reported)
    return sights
