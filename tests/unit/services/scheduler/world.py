"""Both deciders with their reactions, simulated clients, agents and services, in a seeded loop.

No clock but `at`, no hosts: commands wait in one queue per stream and are decided in order, as on
the log. Agents start, checkpoint, succeed, fail, vanish and come back at random; every command may
come twice. Agents and second books are those of the simulator, which has tasks and faulty logs too.
"""

from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from schemas import errors
from schemas.account import Announce, Lane, WebhookEvent
from schemas.admission import SetSuspension
from schemas.dataset import PinDataset, UnpinDataset
from schemas.envelope import Message, Rejected, Tick
from schemas.job import (
    CancelJob,
    PauseJob,
    RecordBase,
    RecordDataset,
    RecordFile,
    RecordRegistered,
    RecordVerdict,
    ResumeJob,
    VerdictDue,
)
from schemas.model import PinBase, RegisterVersion
from schemas.node import LeaseSeen, NodeDescription, NodeNoticed, NodeSeen
from schemas.pool import LeaseGranted, ObserveNodes
from schemas.reasons import Failure, failing
from schemas.submission import Price
from schemas.training import AttemptOutcome, FailureCause
from schemas.units import HOUR_MS, month_of
from services.scheduler.app import JOBS, POOLS
from services.scheduler.domain.pool.assigning import assigned_after, assigned_in
from services.scheduler.domain.pool.state import Pool
from services.scheduler.react import react_job, react_pool
from simulator.control_plane.agent import (
    STEPS,
    STEPS_PER_CHECKPOINT,
    LeaseDiaries,
    SimAgent,
    SimAttempt,
)
from simulator.control_plane.bills import LATER_BOOKS, own_books
from simulator.control_plane.books import SecondBooks
from simulator.control_plane.samples import (
    BASE,
    HYPER,
    MINUTE,
    PASSED,
    POOL,
    PREPARED,
    SLOT_BYTES,
    T0,
    limits,
    submit,
    tokens,
)
from simulator.control_plane.usage_books import Agent, Beat
from tests.ticks import next_tick
from tests.unit.services.scheduler.fold import Decider, header_of, open_gpu_ms
from tunery.plan.price import lane_price

TENANTS: Final = ("acme", "globex")
LANES: Final[tuple[Lane, ...]] = ("premium", "standard", "free")
PRICE: Final = "2026-11"
BOOKS: Final = {**own_books(), **{book.version: book for book in LATER_BOOKS}}
HARD_GPU_MS: Final = 5 * HOUR_MS
# Attempts take minutes here, and some begin again several times: half an hour of each slot is held.
TOKENS_PER_SLOT: Final = 85_000
MONTH_END: Final = int(datetime(2025, 12, 1, tzinfo=UTC).timestamp()) * 1_000
YEAR_END: Final = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000
BEGINNINGS: Final = (T0, MONTH_END - 3 * HOUR_MS, YEAR_END - 3 * HOUR_MS)
TTL_MS: Final = 10_000
STEPS_MAX: Final = 1_000
CAUSES: Final[tuple[FailureCause, ...]] = (
    "oom",
    "divergence",
    "bad_data",
    "bad_node",
    "user",
    "platform",
)
# Jobs that need more memory than any node has, in each of their attempts.
TOO_LARGE: Final = ("-3", "-8")


@dataclass
class WorldNode:
    """A machine of the world, and the agent that runs on it now or ran on it last."""

    node_id: str
    slots: int
    agent: SimAgent | None = None
    alive: bool = False
    retired: bool = False
    last_seen: int = 0
    leases: tuple[LeaseSeen, ...] | None = ()
    slept_ms: int = 0  # its monotonic clock stood while the broker's ran
    broken: bool = False  # whatever runs on it fails
    taken_at: int | None = None  # when its cloud takes it away
    leaving: bool = False  # it retires once what it runs has ended


class World:
    def __init__(self, seed: int, nodes: int = 2, chaos: bool = True) -> None:
        self.seed, self.random, self.chaos = seed, Random(seed), chaos
        self.weather = Random(f"{seed}/weather")  # of faults that hit everybody, or are rare
        self.clouds = Random(f"{seed}/clouds")  # of those that take their machines away
        self.noticed: set[str] = set()  # incarnations whose machines are taken away
        self.operators = Random(f"{seed}/operators")  # of what they do to plans and nodes
        self.faults: Counter[str] = Counter()
        begun = self.weather.choice(BEGINNINGS) if chaos else T0
        self.at = begun + self.random.randrange(HOUR_MS)
        self.away_until = self.at  # until then no agent reaches the log
        self.held_back: list[Message] = []  # what agents have to say since
        #: of the plans, as the gateway knows them
        self.prices = {t: lane_price(BOOKS[PRICE], LANES[n]) for n, t in enumerate(TENANTS)}
        self.new_prices: dict[str, Price] = {}
        self.suspended: set[str] = set()
        self.job = Decider(JOBS, "", self.at)
        self.pool = Decider(POOLS, POOL, self.at)
        self.queues: dict[str, deque[tuple[str, Message]]] = {"job": deque(), "pool": deque()}
        self.nodes = [WorldNode(f"n{i}", self.random.randint(1, 3)) for i in range(nodes)]
        for node in self.nodes:
            node.broken = self.weather.random() < 0.15
        self.gone: list[WorldNode] = []
        self.lost_terms = Random(f"{seed}/terms")  # terms that end before nodes are told
        self.beats: dict[Agent, list[Beat]] = {}
        self.diaries: LeaseDiaries = {}
        self.books, self.incarnations = SecondBooks(self.beats, self.diaries), 0
        self.jobs: dict[str, str] = {}  # job → tenant
        self.announced: list[WebhookEvent] = []
        self.unpinned: list[str] = []
        self.files: list[tuple[str, str, int]] = []  # tenant, file, slots of its job
        self.rejected: Counter[str] = Counter()
        for number, tenant in enumerate(TENANTS):
            self.send("job", tenant, limits(HARD_GPU_MS, lane=LANES[number]))

    # --- the log ----------------------------------------------------------------------------------

    def send(self, stream: str, key: str, body: Message) -> None:
        """Queue a command, perhaps twice; the order of commands is kept."""
        self.queues[stream].append((key, body))
        if self.chaos and self.random.random() < 0.05:
            self.queues[stream].append((key, body))

    def drain(self) -> None:
        """Decide all queued commands; the order of the streams is random."""
        while waiting := [name for name, queue in self.queues.items() if queue]:
            name = self.random.choice(waiting)
            key, body = self.queues[name].popleft()
            decider = self.job if name == "job" else self.pool
            decider.at = max(decider.at, self.at)
            events = decider.when(body, key)
            self._enter(name, key, body, events, decider.at)
            if name == "pool":
                self._assign(key, events)
            self._follow(name, key, events)
            self._check()

    def _enter(
        self, stream: str, key: str, body: Message, events: tuple[Any, ...], at: int
    ) -> None:
        """One decision more in the books; they find what is wrong at once."""
        if stream == "job":
            self.books.enter_job(key, body, events, at)
        else:
            self.books.enter_pool(body, events, at)
        assert not self.books.violations, self.books.violations[0]

    def _assign(self, key: str, events: tuple[Any, ...]) -> None:
        """Tell nodes what a decision leads to; where its owner died before that, its successor
        tells them all.
        """
        offset, pools = len(self.pool.journal), self.pool.state
        everything = tuple(assigned_in(pools, offset))
        is_lost = self.chaos and self.lost_terms.random() < 0.05
        records = everything if is_lost else tuple(assigned_after(pools, key, events, offset))
        for agent in (node.agent for node in self.nodes if node.agent is not None):
            for record in records:
                agent.take(record)
            before = agent.state
            for record in everything:
                agent.take(record)
            assert replace(agent.state, offset=0, node_offset=0) == replace(
                before, offset=0, node_offset=0
            )
            agent.state = before

    def _follow(self, stream: str, key: str, events: tuple[Any, ...]) -> None:
        header = header_of(stream, key, self.at)
        react = react_job if stream == "job" else react_pool
        for event in events:
            if isinstance(event, Rejected):
                self.rejected[event.code] += 1
            if stream == "pool":
                self._check_notices(event)
            if isinstance(event, VerdictDue):
                unjudged = Failure(code=errors.PLATFORM, reason=failing("scores_unjudged"))
                failed = self._fails_elsewhere(event.job_id)
                verdict = RecordVerdict(job_id=event.job_id, summary=PASSED)
                if failed == "gate":
                    verdict = RecordVerdict(job_id=event.job_id, summary=None, failure=unjudged)
                self.send("job", key, verdict)
            for send in react(header, event):
                if send.stream in self.queues:
                    self.queues[send.stream].append((send.key, send.body))
                else:
                    self._elsewhere(key, send.body)

    def _check_notices(self, event: Message) -> None:
        """Nothing is granted to a machine that is taken away."""
        if isinstance(event, NodeNoticed):
            node = self.pool.state[POOL].nodes[event.node_id]
            self.noticed.add(node.description.incarnation)
        if isinstance(event, LeaseGranted):
            doomed = self.noticed & {member.incarnation for member in event.members}
            assert not doomed, f"granted to {doomed}, whose machine is taken away"

    def _elsewhere(self, tenant: str, body: Message) -> None:
        """The other services, which answer at once."""
        match body:
            case PinDataset():
                done = RecordDataset(job_id=body.job_id, prepared=PREPARED)
                self.send("job", tenant, done)
            case PinBase():
                self.send("job", tenant, RecordBase(job_id=body.job_id, base=BASE))
            case RegisterVersion():
                job_id = body.terms.lineage.job_id
                full = Failure(
                    code=errors.ILLEGAL_STATE, reason=failing("versions_at_most", limit=10)
                )
                failed = self._fails_elsewhere(job_id) == "registry"
                registered = RecordRegistered(
                    job_id=job_id, model_id=body.terms.model_id, failure=full if failed else None
                )
                self.send("job", tenant, registered)
            case Announce():
                self.announced.append(body.event)
            case UnpinDataset():
                self.unpinned.append(body.job_id)
            case _:
                raise AssertionError(f"no simulated service handles {body}")

    def _fails_elsewhere(self, job_id: str) -> str:
        """The service that fails this job after its training was paid for."""
        return Random(f"{self.seed}/{job_id}").choice(("gate", "registry", *[""] * 8))

    def calm(self) -> None:
        """Stop all faults; dead nodes stay dead, and one node has never failed under any job."""
        self.chaos, self.away_until = False, self.at
        for tenant in sorted(self.suspended):
            self._suspend(tenant)
        self.gone = [node for node in self.nodes if not node.alive]
        self.nodes = [node for node in self.nodes if node.alive]
        self.nodes.append(WorldNode("fresh", 3))

    @property
    def held(self) -> list[int]:
        """Leases whose slots are not free yet, on nodes that live."""
        dead = {node.node_id for node in self.gone}
        leases = self.books.meter.held.items()
        return [
            number
            for number, lease in leases
            if not lease.is_free and not {node for node, _ in lease.grant.agents} <= dead
        ]

    # --- people -----------------------------------------------------------------------------------

    def submit(self, tenant: str, late: bool = False) -> str:
        job_id = f"ftjob-{len(self.jobs)}"
        self.jobs[job_id] = tenant
        slots = self.random.randint(1, max(node.slots for node in self.nodes))
        count = None if late else self._tokens(slots)
        file_id = f"file-{job_id}"
        if late:
            self.files.append((tenant, file_id, slots))
        price = self.prices[tenant]
        # one row at a time cannot get smaller when memory runs out
        hyper = replace(HYPER, batch_size=1 if len(self.jobs) % 2 else 4)
        asked = submit(job_id, count, slots=slots, training_file=file_id, price=price, hyper=hyper)
        self.send("job", tenant, asked)
        return job_id

    def meddle(self) -> None:
        """One to three changes of mind about one job, in a row."""
        job_id = self.random.choice(sorted(self.jobs))
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.choice(
                (PauseJob, PauseJob, PauseJob, ResumeJob, ResumeJob, CancelJob)
            )
            self.send("job", self.jobs[job_id], kind(job_id=job_id))

    # --- time -------------------------------------------------------------------------------------

    def step(self) -> None:
        """Advance the time; every simulated part may act."""
        long = (10 * MINUTE, 25 * MINUTE) if self.chaos else ()
        self.at += self.random.choice((200, 5_000, MINUTE, *long))
        if self.chaos and self.random.random() < 0.02:
            self._sleep()
        if self.chaos:
            self._fail_together()
        due = next_tick(POOLS, self.pool.state)
        if due is not None and due[0] <= self.at:
            self.send("pool", POOL, Tick())
        while self.files and self.random.random() < 0.5:
            tenant, file_id, slots = self.files.pop()
            self.send("job", tenant, self._validated(file_id, slots))
        self._come_back()
        for node in self.nodes:
            self._act(node)
        if self.at >= self.away_until:
            self._watch()
        self.drain()

    def _fail_together(self) -> None:
        """A zone is lost, the log is away, or a plan changes while submissions are in flight."""
        self.prices |= self.new_prices
        if self.weather.random() < 0.01:
            self.faults["zone lost"] += 1
            for node in self.nodes:
                node.alive = False
        if self.at >= self.away_until and self.weather.random() < 0.02:
            self.faults["outage"] += 1
            self.away_until = self.at + self.weather.randrange(MINUTE, 2 * HOUR_MS)
        if self.weather.random() < 0.02:
            self.faults["plan changed"] += 1
            tenant, lane = self.weather.choice(TENANTS), self.weather.choice(LANES)
            self._change_plan(tenant, lane)
        tenant = self.operators.choice(TENANTS)
        if self.operators.random() < (0.2 if tenant in self.suspended else 0.01):
            self._suspend(tenant)

    def _change_plan(self, tenant: str, lane: Lane) -> None:
        """Another lane, perhaps another price book; the gateway knows of it one step later."""
        book = BOOKS[self.operators.choice(sorted(BOOKS))]
        if book.version != self.prices[tenant].version:
            self.faults["prices changed"] += 1
        self.new_prices[tenant] = lane_price(book, lane)
        self.send("job", tenant, limits(HARD_GPU_MS, lane=lane, price_version=book.version))

    def _suspend(self, tenant: str) -> None:
        """Suspend the tenant, or let it submit again."""
        self.suspended ^= {tenant}
        self.faults["tenant suspended"] += 1
        self.send("job", tenant, SetSuspension(suspended=tenant in self.suspended))

    def _come_back(self) -> None:
        """After an outage agents say what they kept; their heartbeats may be faster."""
        if self.at < self.away_until or not self.held_back:
            return
        if self.weather.random() < 0.5:
            for node in self.nodes:
                if node.agent is not None and node.alive:
                    self._beat(node, node.agent)
            self._watch()
        for body in self.held_back:
            self.send("pool", POOL, body)
        self.held_back = []

    def _report(self, body: Message) -> None:
        """What an agent says; it waits while the log is away."""
        if self.at < self.away_until:
            self.held_back.append(body)
        else:
            self.send("pool", POOL, body)

    def _tokens(self, slots: int) -> int:
        return slots * TOKENS_PER_SLOT + self.random.randrange(1_000, 6_000)

    def _validated(self, file_id: str, slots: int) -> RecordFile:
        accepted = not self.chaos or self.random.random() < 0.8
        counts = (tokens(self._tokens(slots)),) if accepted else ()
        return RecordFile(file_id=file_id, accepted=accepted, tokens=counts)

    def _watch(self) -> None:
        """The watcher: proof of life of those that live, silence of those that do not."""
        seen = tuple(
            sight
            for node in (*self.nodes, *self.gone)
            if node.agent is not None and not node.retired
            if node.alive or self.random.random() < 0.7
            if (sight := self._sight(node, node.agent.node.incarnation)) is not None
        )
        self.send("pool", POOL, ObserveNodes(seen=seen))

    def _sight(self, node: WorldNode, incarnation: str) -> NodeSeen | None:
        """As of the last heartbeat; before the first as of the registration, None before that."""
        last_seen, leases = node.last_seen, node.leases
        if (node.node_id, incarnation) not in self.beats:
            known = self.pool.state.get(POOL, Pool()).nodes.get(node.node_id)
            if known is None or known.description.incarnation != incarnation:
                return None
            last_seen, leases = known.last_seen, None
        return NodeSeen(
            node_id=node.node_id,
            incarnation=incarnation,
            last_seen=last_seen,
            silent=self.at - last_seen > TTL_MS,
            leases=leases,
        )

    def _act(self, node: WorldNode) -> None:
        agent = node.agent
        if agent is None or not node.alive:
            if not self.chaos or self.random.random() < 0.4:
                self._boot(node)
            return
        if self.chaos and self.random.random() < 0.06:
            node.alive = False  # -9; what runs is gone with it
            if self.random.random() < 0.3:
                self._report(agent.retire())
                node.retired = True
            return
        if node.taken_at is not None and self.at >= node.taken_at:
            node.alive = False  # whatever still runs is gone
            return
        self._beat(node, agent)
        if self.chaos and node.taken_at is None and self.clouds.random() < 0.02:
            self.faults["machine taken away"] += 1
            left_ms = self.clouds.choice((30_000, 120_000))
            node.taken_at = self.at + left_ms
            self._report(agent.notice(left_ms))
        running = agent.reconcile(takes_new=not node.leaving)
        if running and self.chaos and not node.leaving and self.operators.random() < 0.01:
            self.faults["loaded node left"] += 1
            self._report(agent.leave())
            node.leaving = True
        for attempt in running:
            attempt.harden(agent.target_of(attempt))
            if node.leaving:
                attempt.harden("drain")
            self._work(node, attempt)
        if node.leaving and not running:
            self._report(agent.retire())
            node.alive, node.retired = False, True

    def _boot(self, node: WorldNode) -> None:
        """A new incarnation; or, where it had only been silent, the same one again."""
        node.alive, node.leaving, agent = True, False, node.agent
        was_taken, node.taken_at = node.taken_at is not None, None
        may_return = agent and not node.retired and not was_taken
        if self.chaos and agent and may_return and self.random.random() < 0.3:
            self._beat(node, agent)
            return
        self.incarnations += 1
        described = NodeDescription(
            node_id=node.node_id,
            incarnation=f"i{self.incarnations}",
            slots=node.slots,
            device="cpu",
            memory_bytes=SLOT_BYTES * node.slots,
            fabric=True,
        )
        node.agent, node.retired = SimAgent(described, self.diaries), False
        self._beat(node, node.agent)
        self._report(node.agent.register())
        self._report(node.agent.join())

    def _beat(self, node: WorldNode, agent: SimAgent) -> None:
        if self.at < self.away_until:
            return
        beat = agent.heartbeat(self._now_ms(node))
        elapsed = dict(zip(beat.leases, beat.elapsed_ms, strict=True))
        node.last_seen = self.at
        prepared = dict(zip(beat.leases, beat.prepared_bytes, strict=True))
        node.leases = tuple(
            LeaseSeen(lease=n, elapsed_ms=ms, prepared_bytes=prepared[n])
            for n, ms in elapsed.items()
        )
        beats = self.beats.setdefault((node.node_id, agent.node.incarnation), [])
        beats.append(Beat(self.at, elapsed))

    def _sleep(self) -> None:
        """All machines sleep, for hours: a laptop's lid, a paused VM, a step of broker time."""
        asleep_ms = self.random.randrange(10 * MINUTE, 200 * MINUTE)
        self.at += asleep_ms
        for node in self.nodes:
            node.slept_ms += asleep_ms

    def _now_ms(self, node: WorldNode) -> int:
        """A machine's monotonic clock, which does not run quite as the broker's does."""
        return self.at - node.slept_ms + self.random.randint(-50, 50)

    def _work(self, node: WorldNode, attempt: SimAttempt) -> None:
        """One attempt moves on, unless its task is dead."""
        if attempt.is_over:
            if attempt.target == "kill":
                self._report(attempt.free())
            return
        if self.chaos and self.weather.random() < 0.01:
            self.faults["attempt task died"] += 1
            attempt.is_over = True
            return
        if attempt.diary.exited_ms is not None:
            self._report(attempt.free())
        elif attempt.diary.began_ms is None and attempt.target == "run":
            if self._prepares(attempt):
                return
            started = attempt.start(partial(self._now_ms, node), self._is_unreadable)
            self._report(started)
        elif attempt.diary.began_ms is None:
            self._exit(node, attempt, "not_started")
        elif attempt.target != "run":
            if attempt.target == "drain" and self.random.random() < 0.7:
                self._checkpoint(node, attempt)
            self._exit(node, attempt, "preempted")
        elif node.broken and self.chaos:
            self.faults["node failed by itself"] += 1
            self._exit(node, attempt, "failed", self.weather.choice(("bad_node", "platform")))
        elif self.chaos and attempt.grant.job_id.endswith(TOO_LARGE):
            self._exit(node, attempt, "failed", "oom")
        elif attempt.step < STEPS and self.random.random() < 0.5:
            self._checkpoint(node, attempt)
        elif self.chaos and self.random.random() < 0.15:
            self._exit(node, attempt, "failed", self.random.choice(CAUSES))
        elif attempt.step >= STEPS or attempt.grant.role == "eval" or self.random.random() < 0.3:
            self._exit(node, attempt, "succeeded")

    def _prepares(self, attempt: SimAttempt) -> bool:
        """Some read for long before they start, and a few read nothing any more."""
        disk = Random(f"{self.seed}/{attempt.incarnation}/{attempt.grant.token.lease}")
        kind = disk.choice(("slow", "slow", "dead", *["quick"] * 17)) if self.chaos else "quick"
        if kind == "quick" or attempt.prepared_bytes >= disk.randrange(2, 9):
            return False
        if kind == "slow" or attempt.prepared_bytes == 0:
            attempt.prepared_bytes += 1
        self.faults[f"{kind} disk"] += 1
        return True

    def _is_unreadable(self) -> bool:
        return self.chaos and self.random.random() < 0.1

    def _checkpoint(self, node: WorldNode, attempt: SimAttempt) -> None:
        """Captured a little ago: its upload took the time since then."""
        attempt.step += STEPS_PER_CHECKPOINT
        report = attempt.capture(self._now_ms(node) - self.random.randrange(3_000))
        if report is not None:
            self._report(report)

    def _exit(
        self,
        node: WorldNode,
        attempt: SimAttempt,
        outcome: AttemptOutcome,
        cause: FailureCause | None = None,
    ) -> None:
        noticed_late_ms = Random(f"{self.seed}/{self.at}").choice((0, 0, 0, 20 * MINUTE))
        began_ms = attempt.diary.began_ms
        ended_ms = self._now_ms(node) - (noticed_late_ms if self.chaos else 0)
        if began_ms is not None:
            ended_ms = max(began_ms, ended_ms)
        self._report(attempt.exit(ended_ms, outcome, cause))

    # --- what must hold at any prefix -------------------------------------------------------------

    def _check(self) -> None:
        for tenant in TENANTS:
            state = self.job.state.get(tenant)
            if state is None:
                continue
            month = month_of(self.at // HOUR_MS)
            used = state.used_gpu_ms.get(month, 0)
            assert min(state.used_gpu_ms.values(), default=0) >= 0, "a month is below zero"
            assert used + open_gpu_ms(state) <= HARD_GPU_MS, "the hard limit was passed"
        pool = self.pool.state.get(POOL)
        if pool is not None:
            waiting = {(w.placement.job_id, w.placement.attempt) for w in pool.waiting.values()}
            running = [(x.ref.job_id, x.ref.attempt) for x in pool.leases.values() if not x.closed]
            assert len(waiting | set(running)) == len(waiting) + len(running)
            per_job = Counter(job_id for job_id, _ in (*waiting, *running))
            assert all(count == 1 for count in per_job.values()), "two open placements of a job"
