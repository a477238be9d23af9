"""Table of watched jobs, and the anomalies that are sent to `job`."""

import logging
from collections.abc import Iterator, MutableMapping
from functools import partial
from typing import Final, get_args
from uuid import uuid5

import msgspec

from schemas.anomaly import Anomaly, AnomalyKind, RecordAnomaly
from schemas.ids import NAMESPACE
from schemas.records import build_from
from schemas.streams import node_of
from schemas.telemetry import Step, Telemetry
from schemas.topics import JOB, SPEEDS, TELEMETRY
from schemas.units import HOUR_MS, Ms
from services.watcher.domain.peers import LastSpeed, NodeSpeed, compare
from services.watcher.domain.watch import (
    AttemptOver,
    Watch,
    WindowSpeed,
    end_attempt,
    judge_silence,
    mark_lasting,
    observe,
)
from services.watcher.metrics import ANOMALIES, EVICTED, WATCHED
from services.watcher.settings import WatcherSettings
from tunery.platform.ports import Runtime
from tunery.runtime.backoff import Backoff, retry
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.signing import Unproven
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.telemetry.figures import StateValue
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.metrics import REJECTIONS

LOG: Final = logging.getLogger("tunery.watcher")
RETRIES: Final = Backoff(100, 5_000)
UNREACHABLE: Final = (Unavailable, AppendUnknown)  # sent again until it is in the log
FORGOTTEN_MS: Final[Ms] = HOUR_MS  # of silence: it has ended, or the pool has ended it
LATE_MS_MAX: Final[Ms] = HOUR_MS  # what was written before shows what is usual, and is no news
KEY_BYTES_MAX: Final = 200
PEERS_MAX: Final = (
    1_000  # types of nodes, each with a work: tenants make new ones by their settings
)
_MESSAGE: Final[msgspec.json.Decoder[Telemetry]] = msgspec.json.Decoder(Telemetry)
_WATCH: Final = msgspec.msgpack.Decoder(Watch)
_OVER: Final = msgspec.json.Decoder(AttemptOver)
_SPEED: Final = msgspec.json.Decoder(NodeSpeed)
_PEERS: Final = msgspec.msgpack.Decoder(dict[str, LastSpeed])


class Watching:
    """Watches the jobs of `table`, which has encoded watches by job.

    peers: encoded speeds of nodes, by their type and the work that they do.

    last_ms: when a job said something last, by the monotonic clock; or was first seen here.
    compared_ms: when nodes were compared last, by their type and work.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: WatcherSettings,
        table: MutableMapping[bytes, bytes],
        peers: MutableMapping[bytes, bytes],
    ) -> None:
        self._runtime, self._settings = runtime, settings
        self._table, self._peers = table, peers
        self._last_ms: dict[bytes, Ms] = {}
        self._compared_ms: dict[bytes, Ms] = {}
        for kind in get_args(AnomalyKind):
            ANOMALIES.labels(kind)  # 0: so that the first is seen as growth

    def figures(self) -> Iterator[StateValue]:
        """Yield the current metrics."""
        yield StateValue(WATCHED, (), len(self._last_ms))

    async def take(self, key: bytes, value: bytes, at: Ms) -> None:
        """Fold one record of telemetry, and send what it shows before it counts as read.

        It raises nothing: Faust would lose the records that it has fetched after this one.
        """
        try:
            if not self._is_of_a_node(value, at):
                REJECTIONS.labels(TELEMETRY.name, "sender_unproven").inc()
                return
            message = _MESSAGE.decode(value)
            if key != message.job_id.encode() or len(key) > KEY_BYTES_MAX:
                raise msgspec.DecodeError("its key is not its job")
            await self._fold(key, message, at)
        except MALFORMED as error:
            log_event(LOG, logging.WARNING, "telemetry.record_skipped", why=error)
        except Exception as error:  # a defect: one record is lost, and no other
            log_event(LOG, logging.ERROR, "telemetry.record_failed", error)

    def _is_of_a_node(self, value: bytes, at: Ms) -> bool:
        """Return whether a node has signed this. The gateway's views check that the attempt runs on
        it.
        """
        keys = self._runtime.keys
        if not keys.can_check(TELEMETRY.name):
            return True
        try:
            sender = keys.sender_of(TELEMETRY.name, value, at)
        except Unproven:
            return False
        return sender is None or node_of(sender) is not None

    async def take_speed(self, key: bytes, value: bytes, _at: Ms) -> None:
        """Compare the speed of a node with others of its type. Like `take`, it raises nothing."""
        try:
            speed = _SPEED.decode(value)
            kept = self._peers.get(key)
            peers = {} if kept is None else _PEERS.decode(kept)
            after, anomaly = compare(peers, speed)
            if anomaly is not None:
                await self._send(speed.tenant, speed.job_id, anomaly, speed.node_id)
            if kept is None and len(self._peers) >= PEERS_MAX:
                oldest = min(self._peers, key=lambda other: self._compared_ms.get(other, 0))
                self._compared_ms.pop(oldest, None)
                del self._peers[oldest]
            self._compared_ms[key] = self._runtime.clock.monotonic_ms()
            self._peers[key] = msgspec.msgpack.encode(after)
        except Exception as error:  # a defect: one record is lost, and no other
            log_event(LOG, logging.ERROR, "telemetry.record_failed", error)

    async def take_end(self, key: bytes, value: bytes, at: Ms) -> None:
        """Note the end of an attempt, after which silence is usual. Like `take`, raises nothing."""
        try:
            before = self._watch_of(key)
            watch = end_attempt(before, _OVER.decode(value), at, self._settings.window_ms)
            if before is None:
                self._evict_if_full()
            self._last_ms[key] = self._runtime.clock.monotonic_ms()
            self._keep(key, watch)
        except Exception as error:  # a defect: one record is lost, and no other
            log_event(LOG, logging.ERROR, "telemetry.record_failed", error)

    async def look(self, readable: frozenset[int]) -> None:
        """Judge how long each job was silent. Call it every few seconds.

        readable: partitions of telemetry that this process has read to their ends; jobs of the
        others may have said much, so their silence begins anew.
        """
        now_ms = self._runtime.clock.monotonic_ms()
        for key in tuple(self._table):
            if partition_of(key) in readable:
                await self._judge(key, now_ms - self._last_ms.setdefault(key, now_ms))
            else:
                self._last_ms.pop(key, None)

    async def _fold(self, key: bytes, message: Telemetry, at: Ms) -> None:
        before = self._watch_of(key)
        watch, anomalies = observe(before, message, at, self._settings.window_ms)
        if self._runtime.clock.now_ms() - at < LATE_MS_MAX:
            for anomaly in anomalies:
                await self._send(message.tenant, message.job_id, anomaly)
            if watch.closed is not None and (before is None or before.closed != watch.closed):
                await self._tell_speed(message, watch.closed, at)
        if before is None:
            self._evict_if_full()
        self._last_ms[key] = self._runtime.clock.monotonic_ms()
        self._keep(key, watch)

    async def _tell_speed(self, message: Telemetry, closed: WindowSpeed, at: Ms) -> None:
        """Send a figure to the comparison of nodes of this type at this work; repeats change
        nothing.
        """
        if not isinstance(message, Step) or not (message.node_type and message.work):
            return
        speed = build_from(NodeSpeed, closed, message, at=at)
        key = f"{message.node_type}/{message.work}".encode()[:KEY_BYTES_MAX]
        value = msgspec.json.encode(speed)
        send = partial(self._runtime.log.send, SPEEDS.name, key, value)
        await retry(send, UNREACHABLE, clock=self._runtime.clock, backoff=RETRIES)

    async def _judge(self, key: bytes, silent_ms: Ms) -> None:
        watch, settings = self._watch_of(key), self._settings
        if watch is None or silent_ms > FORGOTTEN_MS:
            self._forget(key)
            return
        anomaly = judge_silence(watch, silent_ms, settings.stuck_ms, settings.window_ms)
        if anomaly is None:
            return
        await self._send(watch.tenant, key.decode(), anomaly)
        if self._watch_of(key) == watch:  # no step came meanwhile
            self._keep(key, mark_lasting(watch, "stuck"))

    async def _send(self, tenant: str, job_id: str, anomaly: Anomaly, node_id: str = "") -> None:
        """Return when it is in the log, however long that takes; again after a kill."""
        command_id = str(uuid5(NAMESPACE, f"{tenant}/{job_id}/{anomaly.key}"))
        body = RecordAnomaly(job_id=job_id, anomaly=anomaly)
        send = partial(self._runtime.sender.send, JOB, tenant, tenant, body, command_id=command_id)
        await retry(send, UNREACHABLE, clock=self._runtime.clock, backoff=RETRIES)
        log_event(
            LOG,
            logging.INFO,
            "anomaly.sent",
            kind=anomaly.kind,
            job_id=job_id,
            attempt=anomaly.attempt,
            window=anomaly.window,
            node_id=node_id,
        )

    def _watch_of(self, key: bytes) -> Watch | None:
        """Return the saved watch of a job; None if there is none or its format is of another
        version.
        """
        kept = self._table.get(key)
        try:
            return None if kept is None else _WATCH.decode(kept)
        except MALFORMED:
            return None

    def _keep(self, key: bytes, watch: Watch) -> None:
        self._table[key] = msgspec.msgpack.encode(watch)

    def _forget(self, key: bytes) -> None:
        self._last_ms.pop(key, None)
        if key in self._table:
            del self._table[key]

    def _evict_if_full(self) -> None:
        """Forget the job that was silent for longest, before one more is kept."""
        if len(self._last_ms) >= self._settings.jobs_max:
            self._forget(min(self._last_ms, key=self._last_ms.__getitem__))
            EVICTED.inc()
