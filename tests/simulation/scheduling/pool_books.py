"""Second books of a pool: who holds what, by the events alone, without the scheduler's state."""

from dataclasses import dataclass, field
from math import inf
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
    PlacementClosed,
    PlacementQueued,
    UsageCredited,
    UsageSliced,
)
from schemas.training import ExpectedTime
from schemas.works import WorkForgotten
from tests.simulation.scheduling.booked import (
    HOUR,
    LANES,
    LATE_MS,
    MINUTE,
    RESTART_MS,
    BookedKept,
    BookedLease,
    BookedNode,
    BookedWait,
    due,
)
from tests.simulation.scheduling.rules import Judge, Rule

KEPT_MS: Final = 30_000  # slots of a training, for its evaluation
# The bound that is published.
LOSS_SHARE: Final = 20  # of the expected time of a victim
LOSS_MS_MAX: Final = 10 * MINUTE
RAN_MS_MIN: Final = 10 * MINUTE
PREEMPTIONS_MAX: Final = 3


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
    kept: dict[str, BookedKept] = field(default_factory=dict)  # by job
    forgotten: set[str] = field(default_factory=set)

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
                kept = self.kept.pop(placement.job_id, None)
                if kept is not None:
                    self._bind(self.waiting[placement.job_id], kept)
            case WorkForgotten(job_id=job_id):
                self.kept.pop(job_id, None)
                self.forgotten.add(job_id)
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
                self._free(self.leases[lease.token.lease], node_id, at)
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
                if isinstance(event, NodesObserved):
                    self.kept = {job: k for job, k in self.kept.items() if k.until > at}
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
        kept = sum(
            kept.slots * kept.memory_bytes for kept in self.kept.values() if kept.node_id == node_id
        )
        return kept + sum(
            lease.on(node_id) * lease.placement.memory_bytes for lease in self.leases.values()
        )

    def free_on(self, node_id: str) -> int:
        """Slots of a node that no lease holds."""
        return self.nodes[node_id].slots - self.held_on(node_id) - self.kept_on(node_id)

    def kept_on(self, node_id: str, until: float = inf) -> int:
        """Slots of a node that are free, and kept for evaluations that long at most."""
        kept = (each for each in self.kept.values() if each.node_id == node_id)
        return sum(each.slots for each in kept if each.until <= until)

    def _bind(self, wait: BookedWait, kept: BookedKept) -> None:
        if wait.placement.role == "eval" and wait.placement.slots <= kept.slots:
            wait.bound = (Seat(node_id=kept.node_id, slots=wait.placement.slots),)

    def _free(self, lease: BookedLease, node_id: str, at: int) -> None:
        """A member is free; the first one of a training that succeeded is kept for half a minute.

        Not where a job of an earlier lane waits.
        """
        first, slots = lease.first
        lease.members.pop(node_id, None)
        asked = lease.placement
        end = self.ended.get(asked.job_id)
        lane = LANES.index(asked.lane)
        if (
            node_id != first
            or end is None
            or asked.job_id in self.forgotten
            or (end.attempt, end.role, end.end.outcome) != (asked.attempt, "train", "succeeded")
            or lease.ends_by is not None
            or any(LANES.index(other.placement.lane) < lane for other in self.waiting.values())
        ):
            return
        kept = BookedKept(node_id, slots, asked.memory_bytes, at + KEPT_MS)
        if asked.job_id in self.waiting:
            self._bind(self.waiting[asked.job_id], kept)
        else:
            self.kept[asked.job_id] = kept

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

    def has_memory(self, node_id: str, wait: BookedWait) -> bool:
        """Leases of a CPU node share its memory."""
        node = self.nodes[node_id]
        if node.device == "cuda":
            return True
        bound = sum(
            seat.slots * other.placement.memory_bytes
            for other in self.waiting.values()
            for seat in other.bound
            if seat.node_id == node_id
        )
        needed = wait.placement.slots * wait.placement.memory_bytes
        return node.memory_bytes - self.memory_on(node_id) - bound >= needed

    def largest_of(self, wait: BookedWait) -> int:
        """Slots of the largest node that is what a request asks for; 0: there is none."""
        return max(
            (
                node.slots
                for node in self.nodes.values()
                if node.may_get and node.suits(wait.placement) and not self.must_avoid(node, wait)
            ),
            default=0,
        )

    def is_late(self, wait: BookedWait, at: int) -> bool:
        """Whether a request for whole nodes has waited for too long."""
        late_ms = LATE_MS.get(wait.placement.lane)
        is_whole = wait.placement.slots >= self.largest_of(wait)
        return late_ms is not None and is_whole and at > wait.since + late_ms

    def first_late(self, at: int) -> BookedWait | None:
        """The first late request; None: there is none, or others may have the nodes first."""
        waiting = self.waiting.values()
        late = sorted((wait for wait in waiting if self.is_late(wait, at)), key=due)
        if not late or any(wait.placement.lane == "premium" for wait in waiting):
            return None
        is_alone = not self.kept and not any(wait.bound for wait in waiting if wait is not late[0])
        return late[0] if is_alone else None

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
            wait.since,
            spot=wait.spot,
            domain=wait.domain,
            first=(event.members[0].node_id, event.members[0].slots),
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
        bound = lease.placement.billed_gpu_ms_max
        check(Rule.USE, bound is None or lease.billable <= bound, f"above {bound}")
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
        is_late = self.is_late(wait, at)
        is_behind = lanes[0] > lanes[1] or (
            is_late
            and lanes[0] == lanes[1]
            and victim.placement.first_submitted_at > wait.placement.first_submitted_at
        )
        check(Rule.VICTIM, is_behind, f"{victim.placement} is before {wait.placement}")
        check(Rule.VICTIM, victim.started_at is not None, "it has not begun")
        began = victim.started_at or 0
        lost_ms = at - began - victim.captured_ms + RESTART_MS
        bound_ms = min(LOSS_MS_MAX, victim.placement.p50_ms // LOSS_SHARE)
        check(Rule.VICTIM, lost_ms <= bound_ms, f"{lost_ms} ms are more than {bound_ms}")
        check(Rule.VICTIM, at - began >= RAN_MS_MIN, "it has only begun")
        check(Rule.VICTIM, victim.placement.preemptions < PREEMPTIONS_MAX, "once more")
        victim.beneficiary = beneficiary.job_id
        # Leases make way for what is late one by one, so its slots are not all being freed.
        wait.bound, wait.was_let_go = beneficiary.seats, is_late

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
