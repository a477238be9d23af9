"""Liveness of nodes: their state in the journal compared with their heartbeats.

Silence counts only while the watcher itself could read; after an outage every node gets a fresh
TTL. Times of heartbeats are the broker's, silence is the watcher's own elapsed time.

An event costs the nodes that it names, a heartbeat its node, and a look the nodes whose moment has
come, however many others there are.
"""

from collections.abc import Iterable, Iterator, Set
from heapq import heappop, heappush
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
from schemas.records import build_from
from schemas.telemetry import Heartbeat
from schemas.units import Ms, hour_of
from tunery.runtime.bus.partitioner import partition_of

# An observation that changed nothing (its command was lost, or came too early) is sent again.
REPEAT_MS: Final = 5_000
PREPARING_REPEAT_MS: Final = 120_000  # between two reports that preparations of a node go on
OBSERVED_MAX: Final = 50  # nodes in one command, each with up to 256 leases of 30 bytes

NodeKey: TypeAlias = tuple[str, str]  # pool, node


class Sight(Struct, frozen=True, kw_only=True):
    """Knowledge of the watcher about one node. Clock times are those of its `Sightings`."""

    # pool, node_id, incarnation: identity of the agent
    pool: str
    node_id: str
    incarnation: str
    partition: int  # partition of its heartbeats
    last_seen: Ms  # broker time of its last heartbeat
    reported_hour: int  # hour of the heartbeats in the last `ObserveNodes`
    beat_ms: Ms  # clock time of its last heartbeat, or of its registration
    reported_ms: Ms  # clock time of the last `ObserveNodes`; at first, as if one were due
    standing: Literal["up", "lost"] = "up"  # standing of the node in the journal
    has_beaten: bool = False  # a heartbeat came since it was lost
    reported_silent: bool = False  # the last `ObserveNodes` reported it as silent
    idle: tuple[IdleLease, ...] = ()  # idle leases in the last heartbeat
    # leases that were reported as idle, and for how long they were idle then
    reported_idle: tuple[IdleLease, ...] = ()
    # leases in the last heartbeat; None: its agent reports no elapsed time
    leases: tuple[LeaseSeen, ...] | None = None
    listed: frozenset[int] = frozenset()  # leases that an earlier heartbeat of this agent listed
    # elapsed time of its leases that the pool must learn of at once, by lease number
    notices: Map[int, Ms] = Map()
    # bytes prepared by leases that have not started, in the last `ObserveNodes`
    reported_bytes: Map[int, int] = Map()


class Sightings:
    """All known nodes of a watcher. Mutable: it follows the journals and the heartbeats.

    visits: how many nodes were considered so far, for tests and benches.
    """

    def __init__(self, ttl_ms: Ms, idle_ms_max: Ms) -> None:
        """Begin to watch.

        ttl_ms: a longer silence is reported
        idle_ms_max: a lease that idles for longer is reported
        """
        self._ttl_ms, self._idle_ms_max = ttl_ms, idle_ms_max
        self._clock_ms: Ms = 0  # what heartbeats could be read for, in all
        self._fresh_ms: dict[int, Ms] = {}  # by partition: silence counts from this clock time
        self._sights: dict[NodeKey, Sight] = {}
        self._members: dict[tuple[str, int], set[str]] = {}  # nodes of leases that have notices
        # Nodes of which something new is known, and clock times at which others may be due.
        self._changed: set[NodeKey] = set()
        self._timers: list[tuple[Ms, NodeKey]] = []
        self._timer_of: dict[NodeKey, Ms] = {}
        self.visits = 0

    def __len__(self) -> int:
        return len(self._sights)

    def fold_event(self, pool: str, event: Event, at: Ms) -> None:
        """Follow an event of a pool's journal: which nodes there are, and their standing."""
        match event:
            case NodeRegistered():
                self._put(
                    Sight(
                        pool=pool,
                        node_id=event.node.node_id,
                        incarnation=event.node.incarnation,
                        partition=partition_of(event.node.node_id.encode()),
                        last_seen=at,
                        reported_hour=hour_of(at),
                        beat_ms=self._clock_ms,
                        reported_ms=self._clock_ms - REPEAT_MS,
                    )
                )
            case NodeRetired() | NodeForgotten():
                self._sights.pop((pool, event.node_id), None)
            case NodeLost():
                sight = self._sights.get((pool, event.node_id))
                if sight is not None:
                    self._put(replace(sight, standing="lost", has_beaten=False))
            case NodesObserved():
                for seen in event.seen:
                    sight = self._sights.get((pool, seen.node_id))
                    if sight is not None and not seen.silent:
                        self._put(replace(sight, standing="up"))
            case LeaseGranted():
                lease = event.lease.token.lease
                self._members[pool, lease] = {member.node_id for member in event.members}
                for member in event.members:
                    self._set_notice(pool, member.node_id, lease, event.notice_ms)
            case LeaseDraining() | LeaseKilled():
                # It is to end anyway, and the pool has deadlines of its own for that.
                lease = event.lease.token.lease
                for node_id in self._members.pop((pool, lease), ()):
                    self._set_notice(pool, node_id, lease, None)
            case MemberFreed():
                lease = event.lease.token.lease
                self._set_notice(pool, event.node_id, lease, None)
                members = self._members.get((pool, lease), set())
                members.discard(event.node_id)
                if not members:
                    self._members.pop((pool, lease), None)
            case _:
                pass

    def record_heartbeat(self, beat: Heartbeat, at: Ms) -> None:
        """Take in a heartbeat, at broker time. Other incarnations say nothing about this one."""
        sight = self._sights.get((beat.pool, beat.node_id))
        if sight is None or sight.incarnation != beat.incarnation:
            return
        pairs = zip(beat.leases, beat.idle_ms, strict=False)  # agents may leave the second out
        idle = tuple(IdleLease(lease=lease, idle_ms=idle_ms) for lease, idle_ms in pairs)
        idle_ms_of = {lease.lease: lease.idle_ms for lease in idle}
        still_idle = tuple(
            lease
            for lease in sight.reported_idle
            if lease.idle_ms <= idle_ms_of.get(lease.lease, 0)
        )
        prepared = dict(zip(beat.leases, beat.prepared_bytes, strict=False))
        elapsed = tuple(
            LeaseSeen(lease=lease, elapsed_ms=elapsed_ms, prepared_bytes=prepared.get(lease, 0))
            for lease, elapsed_ms in zip(beat.leases, beat.elapsed_ms, strict=False)
        )
        alive = replace(
            sight,
            last_seen=max(sight.last_seen, at),
            beat_ms=self._clock_ms,
            has_beaten=True,
            leases=elapsed if len(elapsed) == len(beat.leases) else None,
            listed=(sight.listed | set(beat.leases)) & set(sight.notices),
            idle=idle,
            reported_idle=still_idle,
        )
        self._put(alive)

    def advance_silence(self, elapsed_ms: Ms, unread: Set[int] = frozenset()) -> None:
        """The watcher could read for so long. Heartbeats that it read are recorded after this.

        unread: partitions that it could not read; silence of their nodes means nothing so far.
        """
        self._clock_ms += elapsed_ms
        for partition in unread:
            self._fresh_ms[partition] = self._clock_ms

    def reset_silence(self, partitions: Iterable[int]) -> None:
        """The watcher could not read these: no silence in them means anything so far."""
        self.advance_silence(0, frozenset(partitions))

    def due_observations(self) -> tuple[tuple[str, ObserveNodes], ...]:
        """Pools and the observations to send them: changes, and a proof of life after each hour.

        They are due until `mark_reported` says that they were sent. A lease that is idle for longer
        than the limit is reported, and again after each limit more; one near its cap, or no longer
        listed by its agent, until the journal says that it is to end.
        """
        by_pool: dict[str, list[NodeSeen]] = {}
        for sight in self._to_consider():
            self.visits += 1
            seen = self._observation(sight)
            if seen is None:
                self._changed.discard((sight.pool, sight.node_id))
                self._set_timer(sight)
            else:
                by_pool.setdefault(sight.pool, []).append(seen)
        return tuple(
            (pool, ObserveNodes(seen=tuple(seen[first : first + OBSERVED_MAX])))
            for pool, seen in by_pool.items()
            for first in range(0, len(seen), OBSERVED_MAX)
        )

    def mark_reported(self, pool: str, observed: Iterable[NodeSeen]) -> None:
        """Remember that these observations were sent."""
        for seen in observed:
            sight = self._sights.get((pool, seen.node_id))
            if sight is None:
                continue
            new = {lease.lease for lease in seen.idle}
            earlier = tuple(lease for lease in sight.reported_idle if lease.lease not in new)
            reported = replace(
                sight,
                reported_silent=seen.silent,
                reported_ms=self._clock_ms,
                reported_hour=hour_of(seen.last_seen),
                reported_idle=(*earlier, *seen.idle),
                reported_bytes=_prepared(seen.leases),
            )
            self._put(reported)

    def silence_ms(self, sight: Sight) -> Ms:
        """Return the time since the last heartbeat of a node, while the watcher could read."""
        return self._clock_ms - max(sight.beat_ms, self._fresh_ms.get(sight.partition, 0))

    def _put(self, sight: Sight) -> None:
        key = sight.pool, sight.node_id
        self._sights[key] = sight
        self._changed.add(key)

    def _set_notice(self, pool: str, node_id: str, lease: int, notice_ms: Ms | None) -> None:
        sight = self._sights.get((pool, node_id))
        if sight is None or (notice_ms is None and lease not in sight.notices):
            return
        notices = (
            sight.notices.delete(lease)
            if notice_ms is None
            else sight.notices.set(lease, notice_ms)
        )
        self._put(replace(sight, notices=notices))

    def _to_consider(self) -> Iterator[Sight]:
        """Nodes of which something is new, or whose moment has come, in their order."""
        while self._timers and self._timers[0][0] <= self._clock_ms:
            moment, key = heappop(self._timers)
            if self._timer_of.get(key) == moment:
                del self._timer_of[key]
                self._changed.add(key)
        self._changed &= self._sights.keys()
        for key in sorted(self._changed):
            yield self._sights[key]

    def _observation(self, sight: Sight) -> NodeSeen | None:
        """Return the report that the pool needs about a node now; None: nothing new."""
        silent = self.silence_ms(sight) > self._ttl_ms
        since_report_ms = self._clock_ms - sight.reported_ms
        is_news = silent != sight.reported_silent or since_report_ms >= REPEAT_MS
        idle: tuple[IdleLease, ...] = ()
        if silent:
            is_due = is_news and sight.standing == "up"
        elif self._clock_ms - sight.beat_ms > self._ttl_ms:
            is_due = False  # its silence means nothing, and what it said is old
        else:
            is_back = is_news and sight.standing == "lost" and sight.has_beaten
            idle = _idle_beyond(sight, self._idle_ms_max)
            ends = since_report_ms >= REPEAT_MS and _has_lease_to_end(sight)
            prepares = since_report_ms >= PREPARING_REPEAT_MS and _prepares(sight)
            hourly = hour_of(sight.last_seen) > sight.reported_hour
            is_due = is_back or hourly or bool(idle) or ends or prepares
        if not is_due:
            return None
        return build_from(NodeSeen, sight, silent=silent, idle=idle)

    def _set_timer(self, sight: Sight) -> None:
        """Consider a node again when it may be due although nothing new is known of it."""
        silence_ms, since_report_ms = self.silence_ms(sight), self._clock_ms - sight.reported_ms
        left_ms = [
            self._ttl_ms + 1 - silence_ms,
            REPEAT_MS - since_report_ms,
            PREPARING_REPEAT_MS - since_report_ms if _prepared(sight.leases) else 0,
        ]
        moment = self._clock_ms + min((left for left in left_ms if left > 0), default=0)
        key = sight.pool, sight.node_id
        if moment > self._clock_ms and moment < self._timer_of.get(key, moment + 1):
            self._timer_of[key] = moment
            heappush(self._timers, (moment, key))


def _prepares(sight: Sight) -> bool:
    """Return whether a lease that has not started has more prepared than was reported."""
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
