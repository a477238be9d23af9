"""Second books of a pool: who holds what, by the events alone, without the scheduler's state."""

from dataclasses import dataclass, field
from typing import Any, Final

from schemas.node import (
    Beneficiary,
    DomainGivenUp,
    NodeCordoned,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeNoticed,
    NodeUncordoned,
    Seat,
    SpotGivenUp,
    SpotReconsidered,
)
from schemas.pool import (
    CheckpointAccepted,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseStarted,
    MemberFreed,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    Placement,
    PlacementClosed,
    PlacementQueued,
    Token,
    UsageCredited,
    UsageSliced,
)
from schemas.training import ExpectedTime, NodeConstraints
from simulator.control_plane.samples import POOL
from tests.simulation.scheduling.rules import Judge, Rule

LANES: Final = ("premium", "standard", "free")
MINUTE: Final = 60_000
# The bound that is published.
LOSS_SHARE: Final = 20  # of the expected time of a victim
LOSS_MS_MAX: Final = 10 * MINUTE
RESTART_MS: Final = 3 * MINUTE
RAN_MS_MIN: Final = 10 * MINUTE
PREEMPTIONS_MAX: Final = 3
SAVED_EVERY_MS: Final = 10 * MINUTE  # by the work of all jobs here
HOUR: Final = 60 * MINUTE
SOON_MS: Final = 10_000
STEPS_MIN: Final = 20  # of a lease, before they say how long the others take


@dataclass
class BookedNode:
    """A node: what it has, and whether it may get anything."""

    slots: int
    device: str
    memory_bytes: int
    incarnation: str
    gone: bool = False  # lost or retired
    is_lost: bool = False
    cordoned: bool = False
    joining: bool = False
    leaving: bool = False
    noticed: bool = False  # its machine is taken away
    accelerator: str = ""
    spot: bool = False
    taints: tuple[str, ...] = ()
    domain: str = ""

    @property
    def may_get(self) -> bool:
        return not (self.gone or self.cordoned or self.joining or self.leaving)

    def suits(self, placement: Placement) -> bool:
        """Whether its slots can be what a placement asks for."""
        asked = placement.constraints or NodeConstraints()
        is_alike = self.device == placement.device and asked.accelerator in ("", self.accelerator)
        is_tolerated = {*self.taints} <= {*asked.tolerations}
        return is_alike and is_tolerated and self.memory_bytes >= placement.memory_bytes


@dataclass
class BookedLease:
    """A lease: its placement, what it holds, and what it used."""

    number: int
    placement: Placement
    members: dict[str, tuple[int, ...]]  # node → devices that it still holds
    incarnations: dict[str, str]
    expected: ExpectedTime
    granted_at: int
    started_at: int | None = None
    steps: int = 0
    step: int = 0
    captured_ms: int = 0
    ends_by: int | None = None
    beneficiary: str = ""
    used: int = 0
    billable: int = 0
    lost: int = 0
    closed: bool = False
    spot: bool | None = None
    domain: str = ""

    @property
    def token(self) -> Token:
        return Token(pool=POOL, lease=self.number)

    @property
    def agent(self) -> str:
        return next(iter(self.incarnations.values()))

    def is_like(self, wait: "BookedWait") -> bool:
        """Whether a request may have what it might when it waited, by what its pool decided."""
        return (self.spot, self.domain) == (wait.spot, wait.domain)

    def on(self, node_id: str) -> int:
        """Slots that it holds there."""
        return len(self.members.get(node_id, ()))

    def ends_at(self, at: int) -> int:
        """When its slots should be free; always after now.

        What is late is expected in steps, so that it is not expected anew all the time: in ten
        seconds where it was told to end, in a tenth of its time otherwise.
        """
        if self.closed or self.ends_by is not None:
            ends_by = self.granted_at if self.closed or self.ends_by is None else self.ends_by
            late_ms = at - ends_by
            return ends_by if late_ms < 0 else ends_by + late_ms - late_ms % SOON_MS + SOON_MS
        began = self.granted_at if self.started_at is None else self.started_at
        ends_at, ran_ms = began + self.lasts_ms(), at - began
        if ends_at > at:
            return ends_at
        ran_ms -= ran_ms % (4_000 << (ran_ms // (10 * MINUTE)).bit_length())
        return began + ran_ms + max(MINUTE, ran_ms // 10)

    def lasts_ms(self) -> int:
        """How long it should last at most: as the steps in its last checkpoint took, and a quarter
        more for the others.
        """
        if not self.steps or self.step < STEPS_MIN:
            return self.expected.p90_ms
        left = max(0, self.steps - self.step)
        left_ms = self.captured_ms * left // self.step + MINUTE // 2
        most_ms = self.captured_ms + left_ms + left_ms // 4 + MINUTE
        return max(1, min(most_ms, self.placement.p90_ms))


@dataclass
class BookedWait:
    """A placement that waits, and the slots that are being freed for it."""

    placement: Placement
    expected: ExpectedTime
    bound: tuple[Seat, ...] = ()
    was_let_go: bool = False  # one of several nodes it is bound to was away since
    spot: bool | None = None
    is_kept_off: bool = False  # it lost too many spot nodes lately
    since: int = 0
    any_domain: bool = False  # it has waited long enough

    @property
    def domain(self) -> str:
        """Where its nodes have to be; empty: anywhere."""
        asked = self.placement.constraints
        return "" if asked is None or self.any_domain else asked.domain

    def may_leave_domain(self, at: int) -> bool:
        """Whether it has waited for its domain as long as it would."""
        asked = self.placement.constraints
        if asked is None or asked.domain_wait_ms is None:
            return False
        return at >= self.since + asked.domain_wait_ms

    @property
    def sharing(self) -> int:
        """How many of its slots share the memory of a node: those of a CPU node all do."""
        return self.placement.slots if self.placement.device == "cpu" else 1

    def fits(self, node: BookedNode) -> bool:
        """Whether a node could hold it, if it were idle."""
        asked = self.placement
        has_memory = node.memory_bytes >= asked.memory_bytes * self.sharing
        is_near = self.domain in ("", node.domain)
        return is_near and has_memory and node.slots >= asked.slots and node.suits(asked)

    def gives_up_spot(self, at: int) -> bool:
        """Whether it could not lose a spot node now and be done in time all the same."""
        asked = self.placement.constraints
        if asked is None or asked.finish_by is None:
            return False
        return at + self.expected.p90_ms + SAVED_EVERY_MS + RESTART_MS >= asked.finish_by


@dataclass
class PoolBooks:
    """All of it, kept from one event to the next, and judged on the way."""

    judge: Judge
    nodes: dict[str, BookedNode] = field(default_factory=dict)
    leases: dict[int, BookedLease] = field(default_factory=dict)
    waiting: dict[str, BookedWait] = field(default_factory=dict)
    granted: list[BookedLease] = field(default_factory=list)  # in this record, bound ones left out
    stopped_for: set[tuple[str, str]] = field(default_factory=set)  # (victim, beneficiary)
    closed: set[tuple[str, int]] = field(default_factory=set)
    spot_nodes: dict[str, bool] = field(default_factory=dict)  # also of those that are gone
    losses: dict[str, list[int]] = field(default_factory=dict)  # of spot nodes, by job
    ended: dict[str, PlacementClosed] = field(default_factory=dict)  # by job, its last attempt

    def apply(self, event: Any, at: int) -> None:
        match event:
            case PlacementQueued(placement=placement):
                own = ExpectedTime(p50_ms=placement.p50_ms, p90_ms=placement.p90_ms)
                asked = placement.constraints
                may_be_kept_off = asked is not None and asked.spot is True
                self.waiting[placement.job_id] = BookedWait(
                    placement,
                    event.expected or own,
                    spot=event.spot,
                    is_kept_off=may_be_kept_off and self._is_kept_off(placement.job_id, at),
                    since=at,
                )
            case SpotGivenUp(job_id=job_id):
                self.waiting[job_id].spot = False
            case SpotReconsidered(job_id=job_id):
                wait = self.waiting[job_id]
                wait.spot, wait.is_kept_off = event.spot, False
                over = not self._is_kept_off(job_id, at)
                self.judge.check(Rule.SPOT, over, f"{wait.placement} lost too many of late")
            case DomainGivenUp(job_id=job_id):
                wait = self.waiting[job_id]
                may = wait.may_leave_domain(at)
                self.judge.check(Rule.LOCALITY, may, f"{wait} has not waited long enough")
                wait.any_domain = True
            case LeaseGranted():
                self._grant(event, at)
            case PlacementClosed():
                self._close(event, at)
            case MemberFreed(lease=lease, node_id=node_id):
                self.leases[lease.token.lease].members.pop(node_id, None)
            case LeaseStarted(lease=lease):
                self.leases[lease.token.lease].started_at = at
                self.leases[lease.token.lease].steps = event.start.total_steps
            case CheckpointAccepted(lease=lease, checkpoint=checkpoint):
                self._save(self.leases[lease.token.lease], checkpoint.captured_ms, at)
                self.leases[lease.token.lease].step = checkpoint.step
            case LeaseDraining(lease=lease):
                booked = self.leases[lease.token.lease]
                if booked.ends_by is None:
                    booked.ends_by = event.deadline
                if event.beneficiary is not None:
                    self._preempt(booked, event.beneficiary, at)
            case LeaseKilled(lease=lease):
                self.leases[lease.token.lease].ends_by = at
            case UsageSliced(lease=lease):
                booked = self.leases[lease.token.lease]
                self.judge.check(Rule.USE, not booked.closed, "a slice after the end")
                booked.used += event.used_gpu_ms
                booked.billable += event.billable_gpu_ms
            case UsageCredited(lease=lease):
                if lease.token.lease in self.leases:
                    self.leases[lease.token.lease].lost += event.lost_gpu_ms
            case _:
                self._apply_node(event)
                self._note_what_is_let_go()

    def open_leases(self) -> list[BookedLease]:
        """Leases that hold slots, oldest first."""
        return [lease for lease in self.leases.values() if lease.members]

    def held_on(self, node_id: str) -> int:
        """Slots that leases hold on a node."""
        return sum(lease.on(node_id) for lease in self.leases.values())

    def memory_on(self, node_id: str) -> int:
        """Memory that leases use of a node."""
        return sum(
            lease.on(node_id) * lease.placement.memory_bytes for lease in self.leases.values()
        )

    def free_on(self, node_id: str) -> int:
        """Slots of a node that no lease holds."""
        return self.nodes[node_id].slots - self.held_on(node_id)

    def freeing_on(self, node_id: str) -> int:
        """Slots of a node that leases hold which were told to end for others."""
        return sum(lease.on(node_id) for lease in self.leases.values() if lease.beneficiary)

    def bound_on(self, node_id: str) -> int:
        """Slots of a node that leases were stopped for, which others may not have."""
        return sum(
            seat.slots
            for wait in self.waiting.values()
            if self._is_bound(wait)
            for seat in wait.bound
            if seat.node_id == node_id
        )

    def claimed_on(self, node_id: str) -> int:
        """Free slots of a node that were always kept for requests that others were stopped for."""
        once_let_go = sum(
            seat.slots
            for wait in self.waiting.values()
            if wait.was_let_go and self._is_bound(wait)
            for seat in wait.bound
            if seat.node_id == node_id
        )
        return max(0, self.bound_on(node_id) - once_let_go - self.freeing_on(node_id))

    def _note_what_is_let_go(self) -> None:
        """When one of a request's nodes leaves, anyone may have what was kept on the others."""
        for wait in self.waiting.values():
            if len(wait.bound) > 1 and not self._is_bound(wait):
                wait.was_let_go = True

    def _is_bound(self, wait: BookedWait) -> bool:
        """A node that is gone, or has become too small, binds nothing."""
        nodes = [(self.nodes.get(seat.node_id), seat.slots) for seat in wait.bound]
        return all(
            node is not None and node.may_get and node.slots >= slots and node.suits(wait.placement)
            for node, slots in nodes
        )

    def _apply_node(self, event: Any) -> None:
        match event:
            case NodeRegistered(node=node):
                known = self.nodes.get(node.node_id)
                self.spot_nodes[node.node_id] = node.spot
                self.nodes[node.node_id] = BookedNode(
                    node.slots,
                    node.device,
                    node.memory_bytes,
                    node.incarnation,
                    joining=event.joining,
                    cordoned=known is not None and known.cordoned,
                    accelerator=node.accelerator,
                    spot=node.spot,
                    taints=node.taints,
                    domain=node.domain,
                )
            case NodeJoined(node_id=node_id):
                self.nodes[node_id].joining = False
            case NodeLeaving(node_id=node_id):
                self.nodes[node_id].leaving = True
            case NodeNoticed(node_id=node_id):
                self.nodes[node_id].leaving = self.nodes[node_id].noticed = True
            case NodeRetired(node_id=node_id):
                self.nodes[node_id].gone = True
            case NodeLost(node_id=node_id):
                self.nodes[node_id].gone = self.nodes[node_id].is_lost = True
            case NodesObserved(seen=seen):
                for sight in seen:
                    booked_node = self.nodes[sight.node_id]
                    if booked_node.is_lost and not sight.silent:
                        booked_node.gone = booked_node.is_lost = False
            case NodeCordoned(node_id=node_id):
                self.nodes[node_id].cordoned = True
            case NodeUncordoned(node_id=node_id):
                self.nodes[node_id].cordoned = False
            case NodeForgotten(node_id=node_id):
                del self.nodes[node_id]
            case _:
                pass

    def must_avoid(self, node: BookedNode, wait: BookedWait) -> bool:
        """Whether a spot node is none for it: it said so, or is kept off and there are others."""
        if not node.spot or wait.spot is not False:
            return False
        asked = wait.placement.constraints
        return asked is None or not asked.spot or self.has_others(wait)

    def has_others(self, wait: BookedWait) -> bool:
        """Whether a node that is not spot could hold it."""
        return any(
            wait.fits(node) for node in self.nodes.values() if node.may_get and not node.spot
        )

    def _is_kept_off(self, job_id: str, at: int) -> bool:
        """Two losses of spot nodes within two hours keep a job off them for four."""
        losses = self.losses.get(job_id, [])
        if len(losses) < 2:
            return False
        before, newest = losses[-2:]
        return newest - before <= 2 * HOUR and at < newest + 4 * HOUR

    # --- events -----------------------------------------------------------------------------------

    def _grant(self, event: LeaseGranted, at: int) -> None:
        check = self.judge.check
        wait = self.waiting.pop(event.lease.job_id, None)
        check(Rule.GANG, wait is not None, "a grant for what does not wait")
        if wait is None:
            return
        placement = wait.placement
        devices = [(member.node_id, d) for member in event.members for d in member.devices]
        whole = len(devices) == placement.slots and len({*devices}) == placement.slots
        check(Rule.GANG, whole, f"{placement.slots} slots asked for, {devices} granted")
        nodes = [member.node_id for member in event.members]
        check(Rule.GANG, len({*nodes}) == len(nodes), "two members on a node")
        for member in event.members:
            node = self.nodes[member.node_id]
            rule = Rule.LOST if node.leaving or node.gone else Rule.LEGAL
            check(rule, node.may_get, f"{member.node_id} is {node}")
            check(Rule.LEGAL, member.incarnation == node.incarnation, "a former agent")
            check(Rule.LEGAL, node.suits(placement), f"{node} for {placement}")
            is_near = wait.domain in ("", node.domain)
            check(Rule.LOCALITY, is_near, f"{node} is not in {wait.domain}")
            asked = placement.constraints
            if node.spot and asked is not None and asked.spot is not None:
                check(Rule.SPOT, asked.spot, f"{placement} must not be on {member.node_id}")
            if node.spot and asked is not None and asked.spot and self.has_others(wait):
                check(Rule.SPOT, not wait.is_kept_off, f"{placement} lost too many such nodes")
                check(Rule.SPOT, not wait.gives_up_spot(at), f"{placement} would be too late")
            held = {
                device
                for lease in self.leases.values()
                for device in lease.members.get(member.node_id, ())
            }
            free = {*range(node.slots)} - held
            check(Rule.CAPACITY, {*member.devices} <= free, f"{member.devices} of {free}")
        lease = BookedLease(
            event.lease.token.lease,
            placement,
            {member.node_id: member.devices for member in event.members},
            {member.node_id: member.incarnation for member in event.members},
            wait.expected,
            at,
            spot=wait.spot,
            domain=wait.domain,
        )
        self.leases[lease.number] = lease
        for node_id in lease.members:
            used, node = self.memory_on(node_id), self.nodes[node_id]
            fits = node.device == "cuda" or used <= node.memory_bytes
            check(Rule.LEGAL, fits, f"{used} bytes of {node} are used")
        if not wait.bound:
            self.granted.append(lease)

    def _close(self, event: PlacementClosed, at: int) -> None:
        check, end = self.judge.check, event.end
        check(Rule.USE, (event.job_id, event.attempt) not in self.closed, "it ends twice")
        self.closed.add((event.job_id, event.attempt))
        self.ended[event.job_id] = event
        wait = self.waiting.get(event.job_id)
        if wait is not None and wait.placement.attempt == event.attempt:
            del self.waiting[event.job_id]
            return
        lease = next(
            lease
            for lease in self.leases.values()
            if (lease.placement.job_id, lease.placement.attempt) == (event.job_id, event.attempt)
        )
        lease.closed = True
        was_lost = end.outcome in ("lost", "preempted") and end.ended_by == "node"
        if was_lost and any(self.spot_nodes.get(node_id) for node_id in end.node_ids):
            self.losses.setdefault(event.job_id, []).append(at)
        sums = (end.billable_gpu_ms, end.lost_gpu_ms)
        check(Rule.USE, sums == (lease.billable, lease.lost), f"{sums} for {lease}")
        check(Rule.USE, lease.billable <= lease.placement.max_gpu_ms, "above its cap")
        check(Rule.USE, 0 <= lease.lost <= lease.billable, "more given back than billed")
        if end.outcome == "lost":
            saved = min(lease.placement.max_gpu_ms, lease.placement.slots * lease.captured_ms)
            net = lease.billable - lease.lost
            check(Rule.PROGRESS, net == saved, f"{net} is billed, {saved} is saved")

    def _save(self, lease: BookedLease, captured_ms: int, at: int) -> None:
        began = lease.started_at or at
        in_order = lease.captured_ms <= captured_ms <= at - began
        self.judge.check(Rule.PROGRESS, in_order, f"{captured_ms} after {lease.captured_ms}")
        lease.captured_ms = captured_ms

    def _preempt(self, victim: BookedLease, beneficiary: Beneficiary, at: int) -> None:
        check, wait = self.judge.check, self.waiting.get(beneficiary.job_id)
        check(Rule.VICTIM, wait is not None, "for a job that does not wait")
        if wait is None:
            return
        pair = victim.placement.job_id, beneficiary.job_id
        check(Rule.FLAPPING, pair[::-1] not in self.stopped_for, pair)
        self.stopped_for.add(pair)
        lanes = LANES.index(victim.placement.lane), LANES.index(wait.placement.lane)
        check(Rule.VICTIM, lanes[0] > lanes[1], f"{lanes[0]} is not a later lane than {lanes[1]}")
        check(Rule.VICTIM, victim.started_at is not None, "it has not begun")
        began = victim.started_at or 0
        lost_ms = at - began - victim.captured_ms + RESTART_MS
        bound_ms = min(LOSS_MS_MAX, victim.placement.p50_ms // LOSS_SHARE)
        check(Rule.VICTIM, lost_ms <= bound_ms, f"{lost_ms} ms are more than {bound_ms}")
        check(Rule.VICTIM, at - began >= RAN_MS_MIN, "it has only begun")
        check(Rule.VICTIM, victim.placement.preemptions < PREEMPTIONS_MAX, "once more")
        victim.beneficiary = beneficiary.job_id
        wait.bound, wait.was_let_go = beneficiary.seats, False

    # --- when a record has been read, or time has passed ------------------------------------------

    def check_waits(self, at: int) -> None:
        """Nothing is kept off spot nodes by losses, or in its domain, for longer than it should."""
        for job_id, wait in self.waiting.items():
            is_patient = not wait.domain or not wait.may_leave_domain(at)
            self.judge.check(Rule.LOCALITY, is_patient, f"{wait} waits for its domain for ever")
            counts = not wait.is_kept_off or self._is_kept_off(job_id, at)
            self.judge.check(Rule.SPOT, counts, f"{wait.placement} is kept off for ever")

    def check_victims(self, stopped: dict[str, list[BookedLease]]) -> None:
        """Without any one of them, the request would not have its seats."""
        for job_id, victims in stopped.items():
            for spared in victims:
                kept = [victim for victim in victims if victim is not spared]
                enough = all(self._has_place(seat, kept) for seat in self.waiting[job_id].bound)
                self.judge.check(Rule.VICTIM, not enough, f"{spared} is stopped for nothing")

    def _has_place(self, seat: Seat, victims: list[BookedLease]) -> bool:
        """Whether there is room for what is bound on a node once these have ended."""
        others = self.bound_on(seat.node_id) - seat.slots
        left = max(0, self.free_on(seat.node_id) - others)
        return left + sum(victim.on(seat.node_id) for victim in victims) >= seat.slots
