"""A pool that lives: production decides and folds, agents report, nodes fail, time passes."""

from collections import Counter
from dataclasses import dataclass
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
    NodeCordoned,
    NodeSeen,
    UncordonNode,
)
from schemas.pool import (
    ClosePlacement,
    ConfirmFreed,
    EndRequest,
    LeaseDraining,
    NodeDescription,
    ObserveNodes,
    RegisterNode,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    RequestPlacement,
    RetireNode,
    Token,
)
from schemas.reasons import ending
from schemas.training import AttemptStart, Device
from services.scheduler.app import POOLS
from services.scheduler.domain.pool.deadlines import earliest
from services.scheduler.domain.pool.evolve import evolve_pool
from services.scheduler.domain.pool.faults import barred_nodes
from services.scheduler.domain.pool.planned_pool import PlannedPool
from services.scheduler.domain.pool.state import Pool, Pools, free_devices, leases_on
from simulator.control_plane.samples import POOL, T0, TRAINED, checkpoint, describe, request
from tests.simulation.scheduling.pool_books import LANES, BookedLease, BookedWait, PoolBooks
from tests.simulation.scheduling.rules import Judge, Rule
from tunery.cli.simulate.journals import split_decisions
from tunery.plan.scheduling.explanation import explain
from tunery.plan.scheduling.plan import Plan, plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.runtime.journal.codec import canonical
from tunery.runtime.journal.snapshots import revive

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
GB: Final = 1_000_000_000
NODES: Final = ("a", "b", "c", "d", "e", "f")
TENANTS: Final = ("acme", "globex", "initech")
ROUNDS_MAX: Final = 400  # of the calm in which all that waits gets its turn
AGED_MS: Final = 16 * HOUR  # a free request is served with the standard lane
OUTCOMES: Final = ("succeeded", "succeeded", "platform", "bad_node", "user", "oom", "preempted")


@dataclass(frozen=True)
class Ask:
    """What a job asks for, in steps of what makes a difference."""

    lane: int
    tenant: int
    slots: int
    hours: int
    cuda: bool
    gigabytes: int


class PoolWorld:
    """The pool, its second books, and a journal. Verbs take numbers and pick by them."""

    def __init__(self, judge: Judge) -> None:
        self.state: Pools = POOLS.initial
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
            command_id="0" * 32,
            seq=len(self.journal) + 1,
        )
        before = self.state
        events = POOLS.decide(before, command, context)
        again = POOLS.decide(_through_snapshot(before), command, context)
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
        self.journal.append((context, events))
        self.books.check_victims(stopped)
        is_planned = bool(events) and type(events[0]).__name__ != "Rejected"
        self._check(_planned(before, events, context) if is_planned else None)
        return events

    @property
    def pool(self) -> Pool:
        return self.state.get(POOL, Pool())

    # --- nodes ------------------------------------------------------------------------------------

    def register(self, number: int, slots: int, cuda: bool, gigabytes: int, joins: bool) -> None:
        """An agent starts: a new node, or a node again, whatever it held."""
        self.count += 1
        device: Device = "cuda" if cuda else "cpu"
        node = NodeDescription(
            node_id=NODES[number % len(NODES)],
            incarnation=f"i{self.count}",
            slots=slots,
            device=device,
            memory_bytes=gigabytes * GB,
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
        )
        self.send(orders[what % len(orders)])

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

    def start(self, lease: BookedLease) -> None:
        start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=40)
        self.send(ReportStarted(token=_token(lease), incarnation=_agent(lease), start=start))

    def save(self, lease: BookedLease) -> None:
        self.count += 1
        elapsed_ms = self.at - (lease.started_at or self.at)
        saved = checkpoint(self.count, lease.placement.attempt, elapsed_ms)
        report = ReportCheckpoint(token=_token(lease), incarnation=_agent(lease), checkpoint=saved)
        self.send(report)

    def save_all(self) -> None:
        """Everything that works writes a checkpoint."""
        for lease in self.books.open_leases():
            if lease.started_at is not None and not lease.closed:
                self.save(lease)

    def end(self, lease: BookedLease, outcome: str) -> None:
        elapsed_ms = self.at - (lease.started_at or self.at)
        report: Any = ReportExit(
            token=_token(lease),
            incarnation=_agent(lease),
            outcome="failed",
            elapsed_ms=elapsed_ms,
            cause=None,
        )
        if outcome == "succeeded":
            report = msgspec.structs.replace(report, outcome=outcome, result=TRAINED)
        elif outcome == "preempted":
            report = msgspec.structs.replace(report, outcome=outcome)
        else:
            report = msgspec.structs.replace(report, cause=outcome)
        self.send(report)

    def work(self, ms: int) -> None:
        """What was granted starts, and works for some time."""
        for lease in self.books.open_leases():
            if lease.started_at is None and not lease.closed:
                self.start(lease)
        self.pass_time(ms)

    def end_noticed(self) -> None:
        """What was told to end has ended, and is free."""
        for lease in self.books.open_leases():
            if lease.ends_by is not None:
                if not lease.closed:
                    self.end(lease, "preempted")
                self.free(lease)

    def free(self, lease: BookedLease) -> None:
        for node_id in list(lease.members):
            self.send(
                ConfirmFreed(
                    token=_token(lease), node_id=node_id, incarnation=lease.incarnations[node_id]
                )
            )

    # --- time -------------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        """Time passes; ticks come when they are due, as the owner's host sends them."""
        self.at += ms
        for _ in range(20):
            due = earliest(self.state)
            if due is None or due[0] > self.at or not self.send(Tick()):
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
                gigabytes = node.memory_bytes // GB
                self.register(number, node.slots, node.device == "cuda", gigabytes, joins=False)
        for _ in range(ROUNDS_MAX):
            leases = self.books.open_leases()
            if not self.books.waiting and not leases:
                break
            self.work(HOUR)
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
        if planned is not None:
            self._check_ranks()
            for wait in self.books.waiting.values():
                if self._fits_now(wait):
                    self._check_held_back(wait, planned)

    def _check_slots(self) -> None:
        """The scheduler's free devices are what the second books leave."""
        for node_id, node in self.pool.nodes.items():
            if not node.is_grantable:
                continue
            free = free_devices(node, leases_on(self.pool, node_id))
            booked = self.books.free_on(node_id)
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
                if self._alike(first) != self._alike(second) or first.p90_ms > second.p90_ms:
                    continue
                in_order = _rank(second) < _rank(first)
                self.judge.check(Rule.RANK, in_order, f"{second.job_id} before {first.job_id}")

    def _alike(self, asked: Any) -> tuple[object, ...]:
        """What is the same for requests that are served in order of their rank."""
        is_old = asked.lane == "free" and asked.first_submitted_at + AGED_MS <= self.at
        lane = "standard" if is_old else asked.lane
        barred = barred_nodes(self.pool, asked.job_id)
        kept_away = {*asked.excluded_nodes, *barred}
        return (
            lane,
            asked.tenant,
            asked.slots,
            asked.device,
            asked.memory_bytes,
            *sorted(kept_away),
        )

    def _check_held_back(self, wait: BookedWait, planned: Plan) -> None:
        """It fits: then it would go on beyond a reservation whose slots it needs."""
        asked, reserved = wait.placement, planned.reservation
        says = f"{asked.job_id} waits beside free slots"
        self.judge.check(Rule.IDLE, reserved is not None, says)
        if reserved is None:
            return
        is_before = reserved.request.lane <= max(1, LANES.index(asked.lane))
        self.judge.check(Rule.IDLE, is_before, f"{says} for a later lane")
        self.judge.check(Rule.IDLE, self.at + asked.p90_ms > reserved.at, f"{says}; it is short")
        needs = self._cluster().queue.requests[asked.job_id].needs
        spare = reserved.spare.find_seats(needs)
        self.judge.check(Rule.IDLE, spare is None, f"{says}, which nobody reserved")
        for node_id, slots in reserved.seats:
            ended = sum(
                lease.on(node_id)
                for lease in self.books.leases.values()
                if lease.members and lease.ends_at(self.at) <= reserved.at
            )
            kept = self.books.free_on(node_id) + ended
            self.judge.check(Rule.HEAD, kept >= slots, f"{reserved} has {kept} of its slots")

    def _cluster(self) -> PlanningState:
        """What the planner sees. It is made anew: what is carried has to be the same."""
        return PlannedPool(self.pool).state

    def _fits_now(self, wait: BookedWait) -> bool:
        """Beside what is free, or being freed, for requests that others were stopped for."""
        return not wait.bound and any(
            self.books.free_on(name) - self.books.bound_on(name) >= wait.placement.slots
            and self._has_memory(name, wait)
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
            and node.slots >= asked.slots
            and node.device == asked.device
            and node.memory_bytes >= asked.memory_bytes * _sharing(asked)
            and name not in barred
        ]
        return [name for name in names if name not in asked.excluded_nodes] or names

    def _has_memory(self, node_id: str, wait: BookedWait) -> bool:
        """Leases of a CPU node share its memory."""
        node = self.books.nodes[node_id]
        if node.device == "cuda":
            return True
        bound = sum(
            seat.slots * other.placement.memory_bytes
            for other in self.books.waiting.values()
            for seat in other.bound
            if seat.node_id == node_id
        )
        needed = wait.placement.slots * wait.placement.memory_bytes
        return node.memory_bytes - self.books.memory_on(node_id) - bound >= needed

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
        )
        self.send(command)


def _rank(asked: Any) -> tuple[int, int, str]:
    """Requests of a tenant: by submission, and twice their expected time."""
    waits = asked.first_submitted_at + 2 * asked.p50_ms
    return waits, asked.first_submitted_at, asked.job_id


def _sharing(asked: Any) -> int:
    """How many of its slots share the memory of a node: those of a CPU node all do."""
    return int(asked.slots) if asked.device == "cpu" else 1


def _token(lease: BookedLease) -> Token:
    return Token(pool=POOL, lease=lease.number)


def _agent(lease: BookedLease) -> str:
    return next(iter(lease.incarnations.values()))


def _planned(before: Pools, events: tuple[Any, ...], context: Context) -> Plan:
    """What production planned in a record: on the state that its facts led to."""
    pool = before.get(POOL, Pool())
    facts, decisions = split_decisions(pool, events, context)
    for event in (*facts, *(each for each in decisions if isinstance(each, NodeCordoned))):
        pool = evolve_pool(pool, event, context)
    return plan(PlannedPool(pool).state, context.at)


def _through_snapshot(state: Pools) -> Pools:
    """The state as an owner reads it that takes over."""
    plain = msgspec.json.decode(canonical(state))
    revived: Pools = msgspec.convert(plain, Pools, dec_hook=revive)
    return revived
