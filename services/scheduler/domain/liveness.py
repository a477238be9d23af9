"""Who is alive: what the journal believes of nodes beside what their heartbeats say.

Silence counts only while the watcher itself could read; after an outage every node gets a fresh
TTL. Times of heartbeats are the broker's, silence is the watcher's own elapsed time.
"""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from schemas.pool import (
    Event,
    Idle,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodeSeen,
    NodesObserved,
    ObserveNodes,
)
from schemas.telemetry import Heartbeat
from schemas.units import Ms, hour_of

# An observation that changed nothing (its command was lost, or came too early) is sent again.
REPEAT_MS: Final = 5_000


class Sight(Struct, frozen=True, kw_only=True):
    """One node. `standing`: the journal's; `last_seen`, `silent_ms`: the watcher's own.

    `told_ms` ago the pool was told `told_silent`, last in the hour `told_hour` of its heartbeats.
    `idle`: leases as the last heartbeat said; `told_idle`: what the pool was told of them.
    """

    pool: str
    node_id: str
    incarnation: str
    last_seen: Ms
    told_hour: int
    standing: Literal["up", "lost"] = "up"
    silent_ms: Ms = 0
    told_silent: bool = False
    told_ms: Ms = REPEAT_MS
    idle: tuple[Idle, ...] = ()
    told_idle: tuple[Idle, ...] = ()


Sights: TypeAlias = Map[tuple[str, str], Sight]
NOBODY: Final[Sights] = Map()


def folded(sights: Sights, pool: str, event: Event, at: Ms) -> Sights:
    """The journal's side."""
    match event:
        case NodeRegistered():
            sight = Sight(
                pool=pool,
                node_id=event.node_id,
                incarnation=event.incarnation,
                last_seen=at,
                told_hour=hour_of(at),
            )
            return sights.set((pool, event.node_id), sight)
        case NodeRetired():
            place = (pool, event.node_id)
            return sights.delete(place) if place in sights else sights
        case NodeLost():
            return _changed(sights, pool, event.node_id, "lost")
        case NodesObserved():
            for seen in event.seen:
                if not seen.silent:
                    sights = _changed(sights, pool, seen.node_id, "up")
            return sights
        case _:
            return sights


def _changed(sights: Sights, pool: str, node_id: str, standing: Literal["up", "lost"]) -> Sights:
    sight = sights.get((pool, node_id))
    if sight is None:
        return sights
    return sights.set((pool, node_id), replace(sight, standing=standing))


def heard(sights: Sights, beat: Heartbeat, at: Ms) -> Sights:
    """A heartbeat, at broker time. Those of other incarnations say nothing about this one."""
    place = (beat.pool, beat.node_id)
    sight = sights.get(place)
    if sight is None or sight.incarnation != beat.incarnation:
        return sights
    pairs = zip(beat.leases, beat.idle_ms, strict=False)  # earlier agents say nothing of it
    idle = tuple(Idle(lease=lease, idle_ms=idle_ms) for lease, idle_ms in pairs)
    since = {it.lease: it.idle_ms for it in idle}
    heard_of = replace(
        sight,
        last_seen=max(sight.last_seen, at),
        silent_ms=0,
        idle=idle,
        told_idle=tuple(it for it in sight.told_idle if it.idle_ms <= since.get(it.lease, 0)),
    )
    return sights.set(place, heard_of)


def waited(sights: Sights, elapsed_ms: Ms) -> Sights:
    """The watcher could read for so long; whoever has spoken is `heard` after this."""
    for place, sight in sights.items():
        waiting = replace(
            sight, silent_ms=sight.silent_ms + elapsed_ms, told_ms=sight.told_ms + elapsed_ms
        )
        sights = sights.set(place, waiting)
    return sights


def unseen(sights: Sights) -> Sights:
    """The watcher could not read: nobody's silence means anything so far."""
    for place, sight in sights.items():
        sights = sights.set(place, replace(sight, silent_ms=0))
    return sights


def observations(
    sights: Sights, ttl_ms: Ms, idle_ms_max: Ms
) -> tuple[tuple[str, ObserveNodes], ...]:
    """What the pools should hear now: changes, and a proof of life when an hour has passed.

    A lease that is idle for longer than the limit is told, and again after each limit more.
    """
    by_pool: dict[str, list[NodeSeen]] = {}
    for place in sorted(sights):
        sight = sights[place]
        silent = sight.silent_ms > ttl_ms
        news = silent != sight.told_silent or sight.told_ms >= REPEAT_MS
        changed = news and silent == (sight.standing == "up")
        hourly = not silent and hour_of(sight.last_seen) > sight.told_hour
        idle = () if silent else _idle(sight, idle_ms_max)
        if changed or hourly or idle:
            seen = NodeSeen(
                node_id=sight.node_id,
                incarnation=sight.incarnation,
                last_seen=sight.last_seen,
                silent=silent,
                idle=idle,
            )
            by_pool.setdefault(sight.pool, []).append(seen)
    return tuple((pool, ObserveNodes(seen=tuple(seen))) for pool, seen in by_pool.items())


def _idle(sight: Sight, idle_ms_max: Ms) -> tuple[Idle, ...]:
    """Leases that were idle for the limit since they were told, or since they made progress."""
    before = {it.lease: it.idle_ms for it in sight.told_idle}
    return tuple(it for it in sight.idle if it.idle_ms - before.get(it.lease, 0) > idle_ms_max)


def told(sights: Sights, pool: str, seen: Iterable[NodeSeen]) -> Sights:
    """An observation was sent."""
    for one in seen:
        sight = sights.get((pool, one.node_id))
        if sight is not None:
            hour = hour_of(one.last_seen)
            fresh = {it.lease for it in one.idle}
            still = tuple(it for it in sight.told_idle if it.lease not in fresh)
            said = replace(
                sight,
                told_silent=one.silent,
                told_ms=0,
                told_hour=hour,
                told_idle=(*still, *one.idle),
            )
            sights = sights.set((pool, one.node_id), said)
    return sights
