"""The node agent: makes the machine agree with what the pool says about this node.

It owns no state. After a crash the next incarnation kills what is left over, and registers; the old
leases end where their proof of life ended. What the pool says comes on the topic `assignments`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol
from uuid import uuid4

import msgspec

from schemas.assignments import Assigned, AssignedAll, AssignedLease, LeaseOrder
from schemas.node import (
    DeviceFault,
    JoinNode,
    LeaveNode,
    NodeDescription,
    NoticeNode,
    ReportDeviceFaults,
    ResizeNode,
    WarnNode,
)
from schemas.pool import RegisterNode, RetireNode
from schemas.records import build_from
from schemas.sealed import Sealed
from schemas.streams import agent_of
from schemas.telemetry import Heartbeat
from schemas.topics import ASSIGNMENTS
from schemas.units import Ms
from services.trainer.domain.evolve import HARDNESS, evolve
from services.trainer.domain.state import Assignment, Grant, NodeState, TargetState
from services.trainer.effect.reports import Reports
from services.trainer.ports import (
    Hardware,
    NoticeSource,
    NoticesUnavailable,
    OrphanSweeper,
    SlotHealth,
)
from services.trainer.settings import TrainerSettings
from tunery.platform.ports import Runtime
from tunery.platform.seal.abstract import SealBroken
from tunery.platform.seal.orders import open_order
from tunery.runtime.backoff import every, retry
from tunery.runtime.bus.abstract import OutOfRange, Unavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.abstract import HostStopped
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.tasks import KeptTask, run_again
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.trail import Trail, trail_context
from tunery.runtime.watchdog import beat

READ_WAIT_MS: Final = 1_000
READ_RECORDS_MAX: Final = 500
RECONNECT_MS: Final = 500
LEAVE_MS_MAX: Final = 5_000  # until the pool has answered that it grants nothing more
LOG: Final = logging.getLogger(__name__)


class Replaced(HostStopped):
    """Another agent registered under this node's name; two would fight over the machine."""


class Withdrawn(HostStopped):
    """An operator withdrew the key by which this node proves its name."""


class Forgotten(Exception):
    """An operator said that this node is gone for good, and it is not."""


class RunningLease(Protocol):
    """Task of one lease, from its grant to the report that its slots are free."""

    async def run(self) -> None:
        """Work until the end, and report it however it ended.

        Called again when it was cancelled by mistake: then nothing is started a second time.
        """

    def set_target(self, target: TargetState) -> None:
        """Take the state that the pool wants now; targets only harden."""

    def take_keys(self, sealed_keys: str) -> None:
        """Take the keys of the lease; the same ones may come more than once."""

    def meet(self, rendezvous: Sealed) -> None:
        """Take the address of the first of several members."""

    @property
    def idle_ms(self) -> Ms:
        """Time since the last event of its process; 0 before the start."""

    @property
    def elapsed_ms(self) -> Ms:
        """Monotonic time since its process began to work; 0 before that."""

    def prepared_bytes(self) -> int:
        """Return the bytes fetched and read so far to prepare the start."""


class NodeAgent:
    """One per node; a new incarnation at each run.

    `start_lease` makes what runs under a lease, from the grant and the agent's incarnation.
    `quota` returns the slots of an elastic node, None: not known now; without it the node is a
    machine. `admission_ms_max` is how long a lease of it may wait for its cluster.
    """

    name = "agent"

    def __init__(
        self,
        runtime: Runtime,
        settings: TrainerSettings,
        sweeper: OrphanSweeper,
        hardware: Hardware,
        start_lease: Callable[[Grant, str], RunningLease],
        notices: NoticeSource,
        health: SlotHealth,
        quota: Callable[[], Awaitable[int | None]] | None = None,
        admission_ms_max: Ms = 0,
    ) -> None:
        self._runtime, self._settings, self._sweeper = runtime, settings, sweeper
        self._hardware, self._start_lease = hardware, start_lease
        self._admission_ms_max = admission_ms_max
        self._notices, self._health, self._quota = notices, health, quota
        self._reports = Reports(runtime, settings.pool)
        self._partition = partition_of(agent_of(settings.id).encode(), ASSIGNMENTS.partitions)
        self._registered = asyncio.Event()
        self._begin()

    def _begin(self) -> None:
        sender = self._runtime.keys.sender
        self._state = NodeState(node_id=self._settings.id, incarnation=uuid4().hex, sender=sender)
        self._has_joined = self._is_leaving = False
        self._grants_ended = asyncio.Event()
        self._faults: tuple[DeviceFault, ...] = ()  # reported to the pool
        self._slots = self._settings.slots  # likewise
        self._mildest: TargetState = "run"  # of all leases; harder once this agent leaves
        self._position = 0  # next offset of the assignments to read
        self._leases: dict[int, RunningLease] = {}
        self._tasks: dict[int, KeptTask[None]] = {}

    async def run(self) -> None:
        """Register, follow the pool until cancelled, then drain and retire.

        Raises Replaced when another agent registers under this name, Withdrawn when its key
        counts no more.
        """
        while True:
            try:
                await self._live()
            except Forgotten:
                log_event(LOG, logging.WARNING, "node.forgotten", node=self._settings.id)

    async def _live(self) -> None:
        """Run one incarnation."""
        self._begin()
        await self._find_end()
        killed = await self._sweeper.sweep()
        if killed:
            log_event(LOG, logging.WARNING, "node.orphans_killed", processes=killed)
        beating = KeptTask(self._beat, "agent heartbeats")
        try:
            await run_again(self._register, "agent registration")
            await run_again(self._report_faults, "faults of devices")  # before the first lease
            watching = (
                KeptTask(self._await_notice, "agent notices"),
                KeptTask(self._watch_health, "agent health"),
            )
            try:
                await self._follow_while(beating)
            finally:
                for task in watching:
                    await task.stop()
        finally:
            try:
                await self._leave()
            finally:
                await beating.stop()

    async def _watch_health(self) -> None:
        while True:
            beat("waiting")
            await self._runtime.clock.sleep(self._settings.health_poll_ms)
            await self._report_faults()
            await self._report_slots()

    async def _report_faults(self) -> None:
        """Report the faults of the slots to the pool when they change."""
        faults, state = self._health.faults(), self._state
        if faults == self._faults:
            return
        said = " ".join(f"{fault.device}:{fault.reason.code}" for fault in faults)
        log_event(LOG, logging.WARNING, "node.device_faults", faults=said)
        report = ReportDeviceFaults(
            node_id=state.node_id, incarnation=state.incarnation, faults=faults
        )
        await self._reports.fact(report)
        self._faults = faults

    async def _report_slots(self) -> None:
        """Report the slots of an elastic node when its quota changes."""
        slots = None if self._quota is None else await self._quota()
        if slots is None or slots == self._slots:
            return
        log_event(LOG, logging.INFO, "node.resized", slots=slots)
        state = self._state
        await self._reports.fact(
            ResizeNode(node_id=state.node_id, incarnation=state.incarnation, slots=slots)
        )
        self._slots = slots

    async def _await_notice(self) -> None:
        """Report once that the machine is taken away. Leases end by the pool's order.

        And once before that it may be: then the pool prefers other nodes.
        """
        state, known, warned = self._state, True, False
        while True:
            beat("waiting")
            try:
                left_ms = await self._notices.left_ms()
                known = True
            except NoticesUnavailable as error:
                left_ms = None
                if known:
                    log_event(LOG, logging.WARNING, "node.notices_unavailable", why=error)
                known = False
            if left_ms is not None:
                break
            warned = warned or await self._warn()
            await self._runtime.clock.sleep(self._settings.notices_poll_ms)
        log_event(LOG, logging.WARNING, "node.noticed", left_ms=left_ms)
        notice = NoticeNode(node_id=state.node_id, incarnation=state.incarnation, left_ms=left_ms)
        await self._reports.fact(notice)

    async def _warn(self) -> bool:
        """Report if the cloud may soon take the machine away; return whether it was reported."""
        try:
            if not await self._notices.is_at_risk():
                return False
        except NoticesUnavailable:  # the next notice that is asked for says so
            return False
        log_event(LOG, logging.WARNING, "node.warned")
        state = self._state
        await self._reports.fact(WarnNode(node_id=state.node_id, incarnation=state.incarnation))
        return True

    async def _find_end(self) -> None:
        """Find the end of the assignments: all of this incarnation come after it registers."""
        ends = await retry(
            partial(self._runtime.log.ends, ASSIGNMENTS.name, (self._partition,)),
            (Unavailable,),
            clock=self._runtime.clock,
            backoff=every(RECONNECT_MS),
        )
        self._position = ends[self._partition]

    async def _follow_while(self, beating: KeptTask[None]) -> None:
        """Follow the pool until that, or the heartbeats, come to an end. Raises what they did.

        A node without heartbeats is lost to its pool, regardless of all else.
        """
        following = KeptTask(self._follow, "agent assignments")
        try:
            ended, _ = await asyncio.wait(
                (following.ended, beating.ended), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            await following.stop()
        for end in ended:
            end.result()

    async def ready(self) -> None:
        """Wait until the pool has accepted this node."""
        await self._registered.wait()

    async def _register(self) -> None:
        node = build_from(
            NodeDescription,
            self._state,
            self._hardware,
            self._settings,
            accelerator=self._settings.accelerator or self._hardware.accelerator,
            taints=tuple(filter(None, self._settings.taints.split(","))),
            scores=self._settings.score_url is not None,
            fabric=bool(self._settings.fabric),
            elastic=self._quota is not None,
            admission_ms_max=self._admission_ms_max,
        )
        await self._reports.fact(RegisterNode(node=node, joins=True))

    async def _follow(self) -> None:
        """Read what the pool says, and make the machine agree with it after every batch."""
        partition, log = self._partition, self._runtime.log
        while True:
            try:
                reader = await log.reader(ASSIGNMENTS.name, {partition: self._position})
                try:
                    while True:
                        beat("waiting")
                        for record in await reader.poll(READ_WAIT_MS, READ_RECORDS_MAX):
                            self._take(record.value)
                            self._position = record.offset + 1
                        self._reconcile()
                        await self._join()
                finally:
                    await reader.close()
            except Unavailable:
                beat("waiting")
                await self._runtime.clock.sleep(RECONNECT_MS)
            except OutOfRange as gap:
                log_event(LOG, logging.WARNING, "node.assignments_missed", why=gap)
                if self._position < gap.start:  # it was away for longer than records are kept
                    raise Forgotten from gap
                self._position = gap.start  # a power cut took the end, and it is written anew

    async def _join(self) -> None:
        """Join once the pool has accepted this node."""
        if not self._state.registered or self._has_joined or self._is_leaving:
            return
        state = self._state
        await self._reports.fact(JoinNode(node_id=state.node_id, incarnation=state.incarnation))
        self._has_joined = True

    def _take(self, value: bytes) -> None:
        """Take in a record of this node, or of all nodes of its pool."""
        try:
            record = msgspec.json.decode(value, type=Assigned)
        except MALFORMED as error:
            log_event(LOG, logging.ERROR, "assignment.unreadable", why=error)
            return
        if record.pool != self._settings.pool:
            return
        if not isinstance(record, AssignedAll) and agent_of(record.node_id) != agent_of(
            self._state.node_id
        ):
            return
        if isinstance(record, AssignedLease) and record.sealed_order is not None:
            record = msgspec.structs.replace(record, order=self._open(record))
        self._state = evolve(self._state, record)

    def _open(self, record: AssignedLease) -> LeaseOrder | None:
        """Open the order of a lease; None: it is not this agent's, or is sealed to another key."""
        if record.incarnation != self._state.incarnation or record.sealed_order is None:
            return None
        try:
            return open_order(record.sealed_order, self._runtime.keys)
        except SealBroken as error:
            hint = "print the keys of this node again, or enrol it again"
            log_event(LOG, logging.ERROR, "assignment.not_opened", why=error, hint=hint)
            return None

    def _reconcile(self) -> None:
        if self._state.leaving:
            self._grants_ended.set()
        if self._state.replaced and not self._is_leaving:
            raise Replaced(
                f"another agent registered as {self._state.node_id}; give each its own "
                "TUNERY_NODE_ID"
            )
        if self._state.withdrawn and not self._is_leaving:
            raise Withdrawn(
                f"an operator withdrew the key of {self._state.sender}; give this node another one "
                "in TUNERY_COMMAND_KEYS"
            )
        if self._state.forgotten and not self._is_leaving:
            raise Forgotten
        if self._state.registered:
            self._registered.set()
        for lease in sorted(self._state.assignments):
            self._pursue(lease, self._state.assignments[lease])
        for lease in [lease for lease in self._leases if lease not in self._state.assignments]:
            if self._tasks[lease].ended.done():
                del self._leases[lease], self._tasks[lease]

    def _pursue(self, lease: int, assignment: Assignment) -> None:
        if lease not in self._leases:
            running = self._start_lease(assignment.grant, self._state.incarnation)
            # not what it was granted for: that may be another job, which freed its slots
            with trail_context(Trail(assignment.correlation, assignment.traceparent)):
                # not watched: it is silent for long, and `idle_ms` shows that
                kept = KeptTask(running.run, f"lease {lease}", is_watched=False)
            kept.ended.add_done_callback(partial(_log_crash, lease))
            self._leases[lease], self._tasks[lease] = running, kept
        if assignment.sealed_keys:
            self._leases[lease].take_keys(assignment.sealed_keys)
        if assignment.rendezvous is not None:
            self._leases[lease].meet(assignment.rendezvous)
        self._leases[lease].set_target(
            max(assignment.target, self._mildest, key=HARDNESS.__getitem__)
        )

    async def _beat(self) -> None:
        while True:
            beat("working")
            # A lease whose task has ended is not alive, whatever the journal still says.
            leases = tuple(
                lease for lease in sorted(self._leases) if not self._tasks[lease].ended.done()
            )
            await self._reports.heartbeat(
                Heartbeat(
                    pool=self._settings.pool,
                    node_id=self._state.node_id,
                    incarnation=self._state.incarnation,
                    leases=leases,
                    idle_ms=tuple(self._leases[lease].idle_ms for lease in leases),
                    elapsed_ms=tuple(self._leases[lease].elapsed_ms for lease in leases),
                    prepared_bytes=tuple(self._leases[lease].prepared_bytes() for lease in leases),
                )
            )
            await self._runtime.clock.sleep(self._settings.heartbeat_ms)

    async def _leave(self) -> None:
        """Announce the end, drain leases, kill them after the grace period, then retire."""
        self._is_leaving = True
        self._harden("kill" if self._is_unknown else "drain")
        # What was granted before the pool knew goes back unstarted, so that it is granted again.
        following = KeptTask(self._follow, "agent assignments")
        try:
            await self._end_grants()
            await self._drain()
        finally:
            await following.stop()
        if self._state.registered and not self._is_unknown:
            state = self._state
            await self._tell(RetireNode(node_id=state.node_id, incarnation=state.incarnation))

    @property
    def _is_unknown(self) -> bool:
        """The pool has no node of this incarnation any more."""
        return self._state.replaced or self._state.forgotten or self._state.withdrawn

    async def _end_grants(self) -> None:
        """Return when the pool grants this node nothing more, or after LEAVE_MS_MAX."""
        state = self._state
        if not state.registered or self._is_unknown:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_MS_MAX / 1_000):
                leave = LeaveNode(node_id=state.node_id, incarnation=state.incarnation)
                await self._reports.fact(leave)
                await self._grants_ended.wait()

    def _harden(self, target: TargetState) -> None:
        """Set the target of all leases, and of those that are still assigned."""
        self._mildest = target
        for running_lease in self._leases.values():
            running_lease.set_target(target)

    async def _drain(self) -> None:
        running = [task.ended for task in self._tasks.values() if not task.ended.done()]
        grace_s = self._settings.drain_grace_ms / 1_000
        if running:
            _, late = await asyncio.wait(running, timeout=grace_s)
            self._harden("kill")
            if late:
                await asyncio.wait(late, timeout=grace_s)

    async def _tell(self, retire: RetireNode) -> None:
        grace_s = self._settings.drain_grace_ms / 1_000
        try:
            await asyncio.wait_for(self._reports.fact(retire), timeout=grace_s)
        except TimeoutError:
            log_event(LOG, logging.WARNING, "node.unreachable_on_shutdown", node=retire.node_id)


def _log_crash(lease: int, ended: "asyncio.Future[None]") -> None:
    error = ended.exception()
    if error is not None:
        log_event(LOG, logging.CRITICAL, "lease.crashed", error, lease=lease)
