"""A pool that lives: production decides and folds, agents report, nodes fail, time passes."""

from collections import Counter
from typing import Any, Final

import msgspec
from immutables import Map

from schemas.account import Lane
from schemas.envelope import Context, Message, Tick
from schemas.node import (
    CordonNode,
    DrainNode,
    ForgetNode,
    JoinNode,
    LeaveNode,
    NodeDescription,
    NodeSeen,
    NoticeNode,
    UncordonNode,
)
from schemas.pool import (
    ClosePlacement,
    ConfirmFreed,
    EndRequest,
    LeaseDraining,
    ObserveNodes,
    RegisterNode,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    RequestPlacement,
    RetireNode,
)
from schemas.reasons import ending
from schemas.training import AttemptStart, Device
from services.scheduler.app import POOLS
from services.scheduler.domain.pool.faults import barred_nodes
from services.scheduler.domain.pool.planned_pool import PlannedPool
from services.scheduler.domain.pool.state import Pool, Pools, free_devices, leases_on
from simulator.control_plane.samples import POOL, T0, checkpoint, describe, request, result_of
from tests.simulation.scheduling.asks import DOMAINS, GB, HOUR, Ask
from tests.simulation.scheduling.booked import BookedLease, BookedWait, due, is_behind, rank
from tests.simulation.scheduling.pool_books import PoolBooks
from tests.simulation.scheduling.pool_replay import planned_before, through_snapshot
from tests.simulation.scheduling.rules import Judge, Rule
from tests.ticks import CheckedTicks
from tunery.plan.scheduling.explanation import explain
from tunery.plan.scheduling.plan import BEYOND, Plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.requests import Request
from tunery.runtime.journal.codec import canonical

MINUTE: Final = 60_000
COMMAND_ID: Final = "0" * 32
NODES: Final = ("a", "b", "c", "d", "e", "f")
TENANTS: Final = ("acme", "globex", "initech")
ROUNDS_MAX: Final = 400  # of the calm in which all that waits gets its turn
AGED_MS: Final = 16 * HOUR  # a free request is served with the standard lane
OUTCOMES: Final = ("succeeded", "succeeded", "platform", "bad_node", "user", "oom", "preempted")


class PoolWorld:
    """The pool, its second books, and a journal. Verbs take numbers and pick by them."""

    def __init__(self, judge: Judge) -> None:
        self.state: Pools = POOLS.initial
        self.ticks = CheckedTicks(POOLS, COMMAND_ID)
        self.books = PoolBooks(judge)
        self.judge, self.at, self.count = judge, T0, 0
        self.journal: list[tuple[Context, tuple[Any, ...]]] = []
        self.jobs: dict[str, int] = {}  # the last attempt of each
        self.commands: list[tuple[int, Message]] = []
        self.happened: Counter[str] = Counter()

    # --- the owner --------------------------------------------------------------------------------

    def send(self, command: Message) -> tuple[Any, ...]:
        """Decide, write, fold, and hold the record against the promises."""
        self.commands.append((self.at, command))
        context = Context(
            at=self.at,
            key=POOL,
            tenant=TENANTS[0],
            command_id=COMMAND_ID,
            seq=len(self.journal) + 1,
        )
        before = self.state
        events = POOLS.decide(before, command, context)
        again = POOLS.decide(through_snapshot(before), command, context)
        self.judge.check(Rule.SAME, events == again, "another decision from a snapshot")
        self.books.granted = []
        stopped: dict[str, list[BookedLease]] = {}
        for event in events:
            self.state = POOLS.evolve(self.state, event, context)
            self.books.apply(event, self.at)
            self.happened[type(event).__name__] += 1
            if isinstance(event, LeaseDraining) and event.beneficiary is not None:
                self.happened["preempted"] += 1
                victim = self.books.leases[event.lease.token.lease]
                stopped.setdefault(event.beneficiary.job_id, []).append(victim)
        self.ticks.note(self.state, context, events)
        self.journal.append((context, events))
        self.books.check_victims(stopped)
        is_planned = bool(events) and type(events[0]).__name__ != "Rejected"
        self._check(planned_before(before, events, context) if is_planned else None)
        return events

    @property
    def pool(self) -> Pool:
        return self.state.get(POOL, Pool())

    # --- nodes ------------------------------------------------------------------------------------

    def register(
        self,
        number: int,
        slots: int,
        cuda: bool,
        gigabytes: int,
        joins: bool,
        accelerator: str = "",
        spot: bool = False,
        taints: tuple[str, ...] = (),
    ) -> None:
        """An agent starts: a new node, or a node again, whatever it held."""
        self.count += 1
        node = NodeDescription(
            node_id=NODES[number % len(NODES)],
            incarnation=f"i{self.count}",
            slots=slots,
            device="cuda" if cuda else "cpu",
            memory_bytes=gigabytes * GB,
            accelerator=accelerator,
            spot=spot,
            taints=taints,
            domain=DOMAINS[number % 2],
            fabric=True,
        )
        self.send(RegisterNode(node=node, joins=joins))

    def node(self, number: int) -> str | None:
        """One of the nodes that are known."""
        names = sorted(self.books.nodes)
        return names[number % len(names)] if names else None

    def order(self, number: int, what: int) -> None:
        """An operator, or the node's agent, says something about it."""
        node_id = self.node(number)
        if node_id is None:
            return
        incarnation = self.books.nodes[node_id].incarnation
        orders: tuple[Message, ...] = (
            CordonNode(node_id=node_id),
            UncordonNode(node_id=node_id),
            DrainNode(node_id=node_id),
            ForgetNode(node_id=node_id),
            JoinNode(node_id=node_id, incarnation=incarnation),
            LeaveNode(node_id=node_id, incarnation=incarnation),
            RetireNode(node_id=node_id, incarnation=incarnation),
            NoticeNode(node_id=node_id, incarnation=incarnation, left_ms=2 * MINUTE),
        )
        self.send(orders[what % len(orders)])

    def take_away(self, number: int) -> None:
        """A spot node is noticed while its leases work; then they wait again, and it comes back."""
        names = sorted(
            name for name, node in self.books.nodes.items() if node.spot and node.may_get
        )
        if not names:
            return
        node_id = names[number % len(names)]
        node = self.books.nodes[node_id]
        self.work(12 * MINUTE)
        self.send(NoticeNode(node_id=node_id, incarnation=node.incarnation, left_ms=2 * MINUTE))
        self.end_noticed()
        for each in range(3):
            self.retry(each)
        self.register(
            NODES.index(node_id),
            node.slots,
            node.device == "cuda",
            node.memory_bytes // GB,
            joins=False,
            accelerator=node.accelerator,
            spot=True,
            taints=node.taints,
        )

    def watch(self, number: int, silent: bool, zone: bool) -> None:
        """A node, or all of every second one, is silent or lives."""
        names = sorted(self.books.nodes)
        seen = names[number % 2 :: 2] if zone else names[number % len(names) :][:1] if names else []
        sights = tuple(
            NodeSeen(
                node_id=node_id,
                incarnation=self.books.nodes[node_id].incarnation,
                last_seen=self.at,
                silent=silent,
            )
            for node_id in seen
        )
        if sights:
            self.send(ObserveNodes(seen=sights))

    # --- jobs -------------------------------------------------------------------------------------

    def submit(self, ask: Ask) -> None:
        """A new job waits."""
        job_id = f"ftjob-{len(self.jobs)}"
        self.send(msgspec.structs.replace(describe(job_id), tenant=TENANTS[ask.tenant]))
        self._request(job_id, 1, ask.lane, ask, self.at)

    def retry(self, number: int) -> None:
        """A job whose attempt has ended waits again, and keeps its place."""
        left = sorted(
            job_id
            for job_id, closed in self.books.ended.items()
            if closed.attempt == self.jobs[job_id] and closed.end.outcome != "succeeded"
        )
        if not left:
            return
        job_id = left[number % len(left)]
        before = next(
            event.placement
            for _, events in reversed(self.journal)
            for event in events
            if type(event).__name__ == "PlacementQueued" and event.placement.job_id == job_id
        )
        end = self.books.ended[job_id].end
        failed = end.outcome == "failed" and end.cause in ("bad_node", "platform")
        self.jobs[job_id] += 1
        self.send(
            RequestPlacement(
                placement=msgspec.structs.replace(
                    before,
                    attempt=self.jobs[job_id],
                    excluded_nodes=(*before.excluded_nodes, *(end.node_ids if failed else ()))[-3:],
                    preemptions=before.preemptions + (end.ended_by == "scheduler"),
                )
            )
        )

    def cancel(self, number: int, kill: bool) -> None:
        """The tenant changes its mind."""
        open_ = sorted({*self.books.waiting} | {*self.pool.open})
        if open_:
            job_id = open_[number % len(open_)]
            end = EndRequest(
                attempt=self.jobs[job_id],
                mode="kill" if kill else "drain",
                ended_by="tenant",
                reason=ending("cancelled"),
            )
            self.send(ClosePlacement(job_id=job_id, request=end))

    # --- agents -----------------------------------------------------------------------------------

    def lease(self, number: int) -> BookedLease | None:
        """One of the leases that hold slots."""
        leases = self.books.open_leases()
        return leases[number % len(leases)] if leases else None

    def report(self, number: int, what: int) -> None:
        """An agent says what became of a lease: it starts, saves, ends, is free."""
        lease = self.lease(number)
        if lease is None:
            return
        if what == 0 or lease.started_at is None:
            self.start(lease)
        elif what == 1:
            self.save(lease)
        elif what == 2:
            self.free(lease)
        else:
            self.end(lease, OUTCOMES[what % len(OUTCOMES)])

    def finish(self, number: int) -> None:
        """A lease ends, and is free."""
        lease = self.lease(number)
        if lease is not None:
            self.report(number, 3)
            self.free(lease)

    def start(self, lease: BookedLease) -> None:
        start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=40)
        self.send(ReportStarted(token=lease.token, incarnation=lease.agent, start=start))

    def save(self, lease: BookedLease) -> None:
        self.count += 1
        elapsed_ms = self.at - (lease.started_at or self.at)
        placement = lease.placement
        saved = checkpoint(self.count, placement.attempt, elapsed_ms, tenant=placement.tenant)
        report = ReportCheckpoint(token=lease.token, incarnation=lease.agent, checkpoint=saved)
        self.send(report)

    def save_all(self) -> None:
        """Everything that works writes a checkpoint."""
        for lease in self.books.open_leases():
            if lease.started_at is not None and not lease.closed:
                self.save(lease)

    def end(self, lease: BookedLease, outcome: str) -> None:
        elapsed_ms = self.at - (lease.started_at or self.at)
        report: Any = ReportExit(
            token=lease.token,
            incarnation=lease.agent,
            outcome="failed",
            elapsed_ms=elapsed_ms,
            cause=None,
        )
        if outcome == "succeeded":
            result = result_of("train", lease.placement.tenant)
            report = msgspec.structs.replace(report, outcome=outcome, result=result)
        elif outcome == "preempted":
            report = msgspec.structs.replace(report, outcome=outcome)
        else:
            report = msgspec.structs.replace(report, cause=outcome)
        self.send(report)

    def work(self, ms: int) -> None:
        """Start granted leases, and let them work for some time."""
        for lease in self.books.open_leases():
            if lease.started_at is None and not lease.closed:
                self.start(lease)
        self.pass_time(ms)

    def end_noticed(self) -> None:
        """End draining leases, and free their slots."""
        for lease in self.books.open_leases():
            if lease.ends_by is not None:
                if not lease.closed:
                    self.end(lease, "preempted")
                self.free(lease)

    def free(self, lease: BookedLease) -> None:
        for node_id in list(lease.members):
            self.send(
                ConfirmFreed(
                    token=lease.token, node_id=node_id, incarnation=lease.incarnations[node_id]
                )
            )

    # --- time -------------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        """Time passes; ticks come when they are due, as the owner's host sends them."""
        self.at += ms
        for _ in range(20):
            if not self.ticks.is_due(self.state, self.at):
                self.books.check_waits(self.at)
                break
            if not self.send(Tick()):
                break

    def repeat(self) -> None:
        """The last command comes once more."""
        if self.commands:
            self.send(self.commands[-1][1])

    def calm_down(self) -> None:
        """Nothing fails any more, every lease ends in its time: all that can be placed starts."""
        for node_id in sorted(self.books.nodes):
            node = self.books.nodes[node_id]
            if node.cordoned:
                self.send(UncordonNode(node_id=node_id))
            if not node.may_get:
                number = NODES.index(node_id)
                self.register(
                    number,
                    node.slots,
                    node.device == "cuda",
                    node.memory_bytes // GB,
                    joins=False,
                    accelerator=node.accelerator,
                    spot=node.spot,
                    taints=node.taints,
                )
        for _ in range(ROUNDS_MAX):
            leases = self.books.open_leases()
            if not leases and not any(map(self._can_ever, self.books.waiting.values())):
                break
            self.work(HOUR)
            for first in (0, 1):  # agents are heard: nothing is kept for evaluations any more
                self.watch(first, silent=False, zone=True)
            for lease in leases:
                if not lease.closed:
                    self.end(lease, "succeeded")
                self.free(lease)
        left = [wait for wait in self.books.waiting.values() if self._can_ever(wait)]
        self.judge.check(Rule.STARVATION, not left, left)
        folded = POOLS.initial
        for context, events in self.journal:
            for event in events:
                folded = POOLS.evolve(folded, event, context)
        is_same = canonical(folded) == canonical(self.state)
        self.judge.check(Rule.SAME, is_same, "another state from the journal")

    def check_reasons(self) -> None:
        """Readers say of everything that waits why, and until when; never until a past moment."""
        cluster = PlannedPool(msgspec.structs.replace(self.pool, waiting=Map())).state
        planned = self._cluster()
        for job_id, seats in planned.bound.items():
            cluster.bind(job_id, seats)
        explained = explain(cluster, planned.queue.requests.values(), self.at).explanations
        for job_id, wait in self.books.waiting.items():
            says = explained.get(job_id)
            text = f"{job_id} at {self.at}: {says}"
            self.judge.check(Rule.REASON, says is not None and bool(says.reason.code), text)
            if says is None or says.earliest is None or says.latest is None:
                self.judge.check(Rule.REASON, not self._can_ever(wait), text)
            else:
                self.judge.check(Rule.REASON, self.at <= says.earliest <= says.latest, text)

    # --- what must hold after every record --------------------------------------------------------

    def _check(self, planned: Plan | None) -> None:
        self._check_slots()
        self._check_bound()
        for lease in self.books.leases.values():
            ended = lease.closed or not any(
                node_id in self.books.nodes and self.books.nodes[node_id].is_lost
                for node_id in lease.members
            )
            self.judge.check(Rule.LOST, ended, f"{lease} goes on")
            is_ending = lease.closed or lease.ends_by is not None
            stays = not any(
                node_id in self.books.nodes and self.books.nodes[node_id].noticed
                for node_id in lease.members
            )
            self.judge.check(Rule.LOST, is_ending or stays, f"{lease} was not told to end")
        if planned is not None:
            self._check_ranks()
            self._check_owners(planned)
            for wait in self.books.waiting.values():
                if self._fits_now(wait):
                    self._check_held_back(wait, planned)

    def _check_slots(self) -> None:
        """The scheduler's free devices are what the second books leave."""
        for node_id, node in self.pool.nodes.items():
            if not node.is_grantable:
                continue
            free = free_devices(node, leases_on(self.pool, node_id))
            booked = self.books.free_on(node_id) + self.books.kept_on(node_id)
            self.judge.check(Rule.CAPACITY, len(free) == booked, f"{node_id}: {free}, {booked}")

    def _check_bound(self) -> None:
        for node_id, node in self.books.nodes.items():
            if not node.may_get:
                continue
            free, claimed = self.books.free_on(node_id), self.books.claimed_on(node_id)
            held = f"{claimed} slots of {node_id} are kept, {free} are free"
            self.judge.check(Rule.BOUND, claimed <= free, held)

    def _check_ranks(self) -> None:
        for lease in self.books.granted:
            for wait in self.books.waiting.values():
                first, second = wait.placement, lease.placement
                is_longer = wait.expected.p90_ms > lease.expected.p90_ms
                is_alike = self._alike(first) == self._alike(second) and lease.is_like(wait)
                if not is_alike or is_longer:
                    continue
                is_late = lease.placement.lane != "premium" and due(lease)[0] < self.at
                in_order = rank(lease) < rank(wait) or (is_late and due(lease) < due(wait))
                self.judge.check(Rule.RANK, in_order, f"{second.job_id} before {first.job_id}")

    def _alike(self, asked: Any) -> tuple[object, ...]:
        """Key that is equal for requests that are served in order of their rank."""
        is_old = asked.lane == "free" and asked.first_submitted_at + AGED_MS <= self.at
        lane = "standard" if is_old else asked.lane
        return (
            lane,
            asked.tenant,
            asked.slots,
            asked.device,
            asked.memory_bytes,
            None if asked.constraints is None else asked.constraints.accelerator,
            () if asked.constraints is None else asked.constraints.tolerations,
            # of the first it gets a node where there is no other, of the second none
            tuple(sorted({*asked.excluded_nodes})),
            tuple(sorted(barred_nodes(self.pool, asked.job_id))),
        )

    def _check_held_back(self, wait: BookedWait, planned: Plan) -> None:
        """A job that fits waits only if on every node it would delay a reservation."""
        asked, request = wait.placement, self._cluster().queue.requests[wait.placement.job_id]
        in_its_way = [
            reserved
            for reserved in planned.reservations
            if (
                self._turn(reserved.request, planned) <= max(1, self._turn(request, planned))
                or (reserved.kept and self._turn(request, planned) > 0)
            )
            and self.at + wait.expected.p90_ms > reserved.at
        ]
        for name in self._possible(wait):
            left = self.books.free_on(name) - self.books.bound_on(name)
            spare = min((left, *(reserved.spare.free[name] for reserved in in_its_way)))
            is_held = spare < asked.slots or not self.books.has_memory(name, wait)
            says = f"{asked.job_id} waits beside free slots of {name}, which are not reserved"
            self.judge.check(Rule.IDLE, is_held, says)
        for reserved in in_its_way:
            for node_id, slots in reserved.seats:
                ended = sum(
                    lease.on(node_id)
                    for lease in self.books.leases.values()
                    if lease.members
                    and (
                        lease.ends_at(self.at) <= reserved.at
                        or (reserved.kept and is_behind(lease, reserved.request))
                    )
                )
                ended += self.books.kept_on(node_id, reserved.at)
                kept = self.books.free_on(node_id) + ended
                self.judge.check(Rule.HEAD, kept >= slots, f"{reserved} has {kept} of its slots")

    def _check_owners(self, planned: Plan) -> None:
        """A node is reserved for one request, and who waits is behind a reservation or has one."""
        reserved = [node_id for each in planned.reservations for node_id, _ in each.seats]
        self.judge.check(Rule.OWNER, len({*reserved}) == len(reserved), planned.reservations)
        if planned.more or planned.preemptions:
            return
        state = self._cluster()
        for job_id, wait in self.books.waiting.items():
            if wait.bound or not self._possible(wait):
                continue
            kinds = state.capacity.kinds(state.queue.requests[job_id].needs)
            is_behind = any(each.concerns(kinds) for each in planned.reservations)
            self.judge.check(Rule.OWNER, is_behind, f"{job_id} waits, and nothing is reserved")
        self._check_kept(planned)

    def _check_kept(self, planned: Plan) -> None:
        """The first late request has nodes, or leases make way for it, unless others have them."""
        first = self.books.first_late(self.at)
        if first is None:
            return
        slots = [self.books.nodes[name].slots for name in self._possible(first)]
        if self.books.largest_of(first) in slots:
            jobs = {each.request.job_id for each in planned.reservations}
            is_kept = bool(first.bound) or first.placement.job_id in jobs
            self.judge.check(Rule.KEPT, is_kept, f"{first} is late at {self.at}: {jobs}")

    def _turn(self, request: Request, planned: Plan) -> int:
        """The place of its lane in the order of service: old requests of the free lane are served
        with the standard one, premium beyond its cap comes last.
        """
        if request.lane == 0 and request.needs in planned.beyond:
            return BEYOND
        is_old = request.lane == 2 and request.submitted_at + AGED_MS <= self.at
        return 1 if is_old else request.lane

    def _cluster(self) -> PlanningState:
        """Build the planner's state anew; the carried one has to be equal."""
        return PlannedPool(self.pool).state

    def _fits_now(self, wait: BookedWait) -> bool:
        """Beside what is free, or being freed, for requests that others were stopped for."""
        return not wait.bound and any(
            self.books.free_on(name) - self.books.bound_on(name) >= wait.placement.slots
            and self.books.has_memory(name, wait)
            for name in self._possible(wait)
        )

    def _can_ever(self, wait: BookedWait) -> bool:
        return bool(self._possible(wait))

    def _possible(self, wait: BookedWait) -> list[str]:
        """Nodes that are large enough; those that failed under the job only where no other is."""
        asked = wait.placement
        barred = barred_nodes(self.pool, asked.job_id)
        names = [
            name
            for name, node in self.books.nodes.items()
            if node.may_get
            and wait.fits(node)
            and not self.books.must_avoid(node, wait)
            and name not in barred
        ]
        return [name for name in names if name not in asked.excluded_nodes] or names

    def _request(self, job_id: str, attempt: int, lane: int, ask: Ask, submitted_at: int) -> None:
        lanes: tuple[Lane, ...] = ("premium", "standard", "free")
        device: Device = "cuda" if ask.cuda else "cpu"
        self.jobs[job_id] = attempt
        command = request(
            job_id,
            attempt,
            tenant=TENANTS[ask.tenant],
            lane=lanes[lane],
            slots=ask.slots,
            device=device,
            memory_bytes=ask.gigabytes * GB,
            first_submitted_at=submitted_at,
            p50_ms=ask.hours * HOUR,
            p90_ms=2 * ask.hours * HOUR,
            max_gpu_ms=2 * ask.hours * HOUR * ask.slots,
            constraints=ask.constraints_at(submitted_at),
        )
        self.send(command)
