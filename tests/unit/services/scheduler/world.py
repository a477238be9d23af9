"""Both deciders, their reactions, and everybody they talk to, in one seeded loop.

No clock but `at`, no hosts: commands wait in one queue per stream and are decided in order, as on
the log. Agents start, checkpoint, succeed, fail, vanish and come back at random; every command may
come twice. After each decision `Books` checks what must hold at any prefix.
"""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from schemas.account import Announce, Lane, WebhookEvent
from schemas.dataset import PinDataset, UnpinDataset
from schemas.envelope import Header, Message, Rejected, Tick
from schemas.job import (
    CancelJob,
    HoldTaken,
    JobEnded,
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
from schemas.pool import (
    ConfirmFreed,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseRef,
    MemberFreed,
    NodeDescription,
    NodeRegistered,
    NodeSeen,
    ObserveNodes,
    Placement,
    PlacementClosed,
    PlacementQueued,
    RegisterNode,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    RetireNode,
    Role,
    UsageCredited,
    UsageSliced,
)
from schemas.reasons import skipping
from schemas.training import AttemptStart, Checkpoint, FailureCause, SkippedCheckpoint
from schemas.units import HOUR_MS
from services.scheduler.app import JOBS, POOLS
from services.scheduler.domain.job.quota import month_of, open_gpu_ms
from services.scheduler.domain.pool.deadlines import earliest
from services.scheduler.react import react_job, react_pool
from simulator.control_plane.samples import (
    BASE,
    MINUTE,
    POOL,
    PREPARED,
    SCORED,
    T0,
    TRAINED,
    checkpoint,
    limits,
    submit,
    tokens,
)
from tests.unit.services.scheduler.fold import Decider
from tests.unit.services.scheduler.lives import PASSED

TENANTS: Final = ("acme", "globex")
LANES: Final[tuple[Lane, ...]] = ("premium", "standard", "free")
HARD_GPU_MS: Final = 5 * HOUR_MS
TTL_MS: Final = 10_000
STEPS_MAX: Final = 4_000
CAUSES: Final[tuple[FailureCause, ...]] = (
    "oom",
    "divergence",
    "bad_data",
    "bad_node",
    "user",
    "platform",
)


@dataclass
class Running:
    """What an agent knows of one lease."""

    lease: LeaseRef
    placement: Placement
    started_at: int | None = None
    step: int = 0
    target: str = "run"
    closed: bool = False


@dataclass
class Agent:
    """A node agent. It follows the pool's journal for its own incarnation."""

    node_id: str
    slots: int
    placements: dict[str, Placement]
    incarnation: str = ""
    alive: bool = False
    last_seen: int = 0
    leases: dict[int, Running] = field(default_factory=dict)

    def follow(self, event: Any) -> None:
        match event:
            case PlacementQueued():
                self.placements[event.placement.job_id] = event.placement
            case LeaseGranted() if event.members[0].incarnation == self.incarnation:
                placement = self.placements[event.lease.job_id]
                self.leases[event.lease.token.lease] = Running(event.lease, placement)
            case LeaseDraining() if event.lease.token.lease in self.leases:
                self.leases[event.lease.token.lease].target = "drain"
            case LeaseKilled() if event.lease.token.lease in self.leases:
                self.leases[event.lease.token.lease].target = "kill"
            case PlacementClosed():
                for running in self.leases.values():
                    if (running.lease.job_id, running.lease.attempt) == (
                        event.job_id,
                        event.attempt,
                    ):
                        running.closed = True
            case MemberFreed():
                self.leases.pop(event.lease.token.lease, None)
            case _:
                pass


class Books:
    """Kept from journal events alone, beside the deciders, and compared with them."""

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.held: dict[int, tuple[str, int]] = {}
        self.queued: Counter[tuple[str, int]] = Counter()
        self.closed: Counter[tuple[str, int]] = Counter()
        self.billed: Counter[str] = Counter()  # per job, less credits
        self.months: Counter[tuple[str, str]] = Counter()
        self.slices: Counter[tuple[int, int]] = Counter()
        self.leases: Counter[int] = Counter()
        self.holds: dict[str, int] = {}
        self.ended: dict[str, JobEnded] = {}
        self.totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))

    def enter(self, event: Any) -> None:
        match event:
            case LeaseGranted():
                number, (member,) = event.lease.token.lease, event.members
                self.leases[number] += 1
                assert self.leases[number] == 1, "a token was given twice"
                self.held[number] = (member.node_id, member.slots)
                used = sum(n for node, n in self.held.values() if node == member.node_id)
                assert used <= self.slots[member.node_id], "a slot was given twice"
            case MemberFreed():
                del self.held[event.lease.token.lease]
            case PlacementQueued():
                self.queued[event.placement.job_id, event.placement.attempt] += 1
            case PlacementClosed():
                self.closed[event.job_id, event.attempt] += 1
                assert self.closed[event.job_id, event.attempt] == 1, "closed twice"
                assert self.queued[event.job_id, event.attempt] == 1
                billable, lost = self.totals[event.job_id]
                self.totals[event.job_id] = (
                    billable + event.end.billable_gpu_ms,
                    lost + event.end.lost_gpu_ms,
                )
                assert 0 <= event.end.billable_gpu_ms <= event.end.used_gpu_ms
            case UsageSliced():
                key = event.lease.token.lease, event.hour_utc
                self.slices[key] += 1
                assert self.slices[key] == 1, "an hour was sliced twice"
                self._bill(event.lease, event.hour_utc, event.billable_gpu_ms)
            case UsageCredited():
                assert event.lost_gpu_ms > 0
                self._bill(event.lease, event.hour_utc, -event.lost_gpu_ms)
            case HoldTaken():
                self.holds[event.job_id] = event.estimate.hold_gpu_ms
            case JobEnded():
                assert event.job_id not in self.ended, "ended twice"
                self.ended[event.job_id] = event
            case NodeRegistered():
                self.slots[event.node.node_id] = event.node.slots
            case _:
                pass

    def _bill(self, lease: LeaseRef, hour_utc: int, gpu_ms: int) -> None:
        self.billed[lease.job_id] += gpu_ms
        self.months[lease.tenant, month_of(hour_utc)] += gpu_ms
        assert 0 <= self.billed[lease.job_id] <= self.holds[lease.job_id], "a hold was passed"


class World:
    def __init__(self, seed: int, nodes: int = 2, chaos: bool = True) -> None:
        self.random, self.chaos = Random(seed), chaos
        self.at = T0 + self.random.randrange(HOUR_MS)
        self.job = Decider(JOBS, "", self.at)
        self.pool = Decider(POOLS, POOL, self.at)
        self.queues: dict[str, deque[tuple[str, Message]]] = {"job": deque(), "pool": deque()}
        self.placements: dict[str, Placement] = {}  # by job, as every agent has them
        self.agents = [
            Agent(f"n{i}", self.random.randint(1, 3), self.placements) for i in range(nodes)
        ]
        self.gone: list[Agent] = []
        self.books, self.incarnations = Books(), 0
        self.jobs: dict[str, str] = {}  # job → tenant
        self.announced: list[WebhookEvent] = []
        self.unpinned: list[str] = []
        self.files: list[tuple[str, str]] = []
        self.rejected: Counter[str] = Counter()
        for number, tenant in enumerate(TENANTS):
            self.send("job", tenant, limits(HARD_GPU_MS, lane=LANES[number]))

    # --- the log ----------------------------------------------------------------------------------

    def send(self, stream: str, key: str, body: Message) -> None:
        """Clients and effects may send twice; nobody's order is changed."""
        self.queues[stream].append((key, body))
        if self.chaos and self.random.random() < 0.05:
            self.queues[stream].append((key, body))

    def drain(self) -> None:
        """Decide all that waits; which stream goes first is anybody's guess."""
        while waiting := [name for name, queue in self.queues.items() if queue]:
            name = self.random.choice(waiting)
            key, body = self.queues[name].popleft()
            decider = self.job if name == "job" else self.pool
            decider.at = max(decider.at, self.at)
            self._follow(name, key, decider.when(body, key))
            self._check()

    def _follow(self, stream: str, key: str, events: tuple[Any, ...]) -> None:
        header = Header(
            stream=stream,
            partition=0,
            offset=0,
            at=self.at,
            key=key,
            tenant=key,
            seq=0,
            command_id="0" * 32,
            incarnation=0,
        )
        react = react_job if stream == "job" else react_pool
        for event in events:
            if isinstance(event, Rejected):
                self.rejected[event.code] += 1
            self.books.enter(event)
            if stream == "pool":
                for agent in self.agents:
                    agent.follow(event)
            if isinstance(event, VerdictDue):
                self.send("job", key, RecordVerdict(job_id=event.job_id, summary=PASSED))
            for send in react(header, event):
                if send.stream in self.queues:
                    self.queues[send.stream].append((send.key, send.body))
                else:
                    self._elsewhere(key, send.body)

    def _elsewhere(self, tenant: str, body: Message) -> None:
        """The other services, which answer at once."""
        match body:
            case PinDataset():
                done = RecordDataset(job_id=body.job_id, prepared=PREPARED)
                self.send("job", tenant, done)
            case PinBase():
                self.send("job", tenant, RecordBase(job_id=body.job_id, base=BASE))
            case RegisterVersion():
                job_id = body.lineage.job_id
                done_too = RecordRegistered(job_id=job_id, model_id=body.model_id)
                self.send("job", tenant, done_too)
            case Announce():
                self.announced.append(body.event)
            case UnpinDataset():
                self.unpinned.append(body.job_id)
            case _:
                raise AssertionError(f"nobody takes {body}")

    def calm(self) -> None:
        """From now on nothing fails: what is dead stays dead, and one node is new to every job."""
        self.chaos = False
        self.gone = [agent for agent in self.agents if not agent.alive]
        self.agents = [agent for agent in self.agents if agent.alive]
        self.agents.append(Agent("fresh", 3, self.placements))

    @property
    def held(self) -> list[int]:
        """Leases whose slots are not free yet, on nodes that live."""
        dead = {agent.node_id for agent in self.gone}
        return [lease for lease, (node, _) in self.books.held.items() if node not in dead]

    # --- people -----------------------------------------------------------------------------------

    def submit(self, tenant: str, late: bool = False) -> str:
        job_id = f"ftjob-{len(self.jobs)}"
        self.jobs[job_id] = tenant
        slots = self.random.randint(1, max(agent.slots for agent in self.agents))
        count = None if late else self.random.randrange(1_000, 60_000)
        file_id = f"file-{job_id}"
        if late:
            self.files.append((tenant, file_id))
        self.send("job", tenant, submit(job_id, count, slots=slots, training_file=file_id))
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
        """Time passes, everybody does something."""
        long = (10 * MINUTE, 25 * MINUTE) if self.chaos else ()
        self.at += self.random.choice((200, 5_000, MINUTE, *long))
        due = earliest(self.pool.state)
        if due is not None and due[0] <= self.at:
            self.send("pool", POOL, Tick())
        while self.files and self.random.random() < 0.5:
            tenant, file_id = self.files.pop()
            self.send("job", tenant, self._validated(file_id))
        for agent in self.agents:
            self._act(agent)
        self._watch()
        self.drain()

    def _validated(self, file_id: str) -> RecordFile:
        accepted = not self.chaos or self.random.random() < 0.8
        counts = (tokens(self.random.randrange(1_000, 60_000)),) if accepted else ()
        return RecordFile(file_id=file_id, accepted=accepted, tokens=counts)

    def _watch(self) -> None:
        """The watcher: proof of life of those that live, silence of those that do not."""
        seen = tuple(
            NodeSeen(
                node_id=agent.node_id,
                incarnation=agent.incarnation,
                last_seen=agent.last_seen,
                silent=self.at - agent.last_seen > TTL_MS,
            )
            for agent in (*self.agents, *self.gone)
            if agent.incarnation and (agent.alive or self.random.random() < 0.7)
        )
        self.send("pool", POOL, ObserveNodes(seen=seen))

    def _act(self, agent: Agent) -> None:
        if not agent.alive:
            if not self.chaos or self.random.random() < 0.4:
                self._boot(agent)
            return
        if self.chaos and self.random.random() < 0.06:
            agent.alive = False  # -9; what runs is gone with it
            if self.random.random() < 0.3:
                retire = RetireNode(node_id=agent.node_id, incarnation=agent.incarnation)
                self.send("pool", POOL, retire)
                agent.incarnation = ""
            return
        agent.last_seen = self.at
        for number in sorted(agent.leases):
            self._work(agent, agent.leases[number])

    def _boot(self, agent: Agent) -> None:
        """A new incarnation; or, where it had only been silent, the same one again."""
        if self.chaos and agent.incarnation and self.random.random() < 0.3:
            agent.alive, agent.last_seen = True, self.at
            return
        self.incarnations += 1
        agent.incarnation, agent.leases = f"i{self.incarnations}", {}
        agent.alive, agent.last_seen = True, self.at
        node = NodeDescription(
            node_id=agent.node_id,
            incarnation=agent.incarnation,
            slots=agent.slots,
            device="cpu",
            memory_bytes=1,
        )
        self.send("pool", POOL, RegisterNode(node=node))

    def _work(self, agent: Agent, running: Running) -> None:
        """One lease moves on."""
        if running.closed:
            freed = ConfirmFreed(
                token=running.lease.token,
                node_id=agent.node_id,
                incarnation=agent.incarnation,
            )
            self.send("pool", POOL, freed)
        elif running.started_at is None:
            self._start(agent, running)
        elif running.target != "run":
            if running.target == "drain" and self.random.random() < 0.7:
                self._checkpoint(agent, running)
            self._exit(agent, running, "preempted")
        elif running.step < 40 and self.random.random() < 0.5:
            self._checkpoint(agent, running)
        elif self.chaos and self.random.random() < 0.15:
            self._exit(agent, running, "failed", self.random.choice(CAUSES))
        elif running.step >= 40 or running.lease.role == "eval" or self.random.random() < 0.3:
            self._exit(agent, running, "succeeded")

    def _start(self, agent: Agent, running: Running) -> None:
        named = list(running.placement.checkpoints)
        skipped: list[SkippedCheckpoint] = []
        while named and self.chaos and self.random.random() < 0.1:
            bad = named.pop(0)
            skipped.append(
                SkippedCheckpoint(
                    manifest_sha256=bad.manifest_sha256, reason=skipping("blob_corrupt")
                )
            )
        loaded: Checkpoint | None = named[0] if named else None
        running.started_at, running.step = self.at, loaded.step if loaded else 0
        start = AttemptStart(
            loaded=loaded.manifest_sha256 if loaded else None,
            loaded_step=running.step,
            skipped=tuple(skipped),
            total_steps=40,
        )
        report = ReportStarted(
            token=running.lease.token, incarnation=agent.incarnation, start=start
        )
        self.send("pool", POOL, report)

    def _checkpoint(self, agent: Agent, running: Running) -> None:
        if running.lease.role == "eval" or running.started_at is None:
            return
        running.step += 10
        captured_ms = self.at - running.started_at - self.random.randrange(3_000)
        state = checkpoint(
            running.step,
            running.lease.attempt,
            captured_ms,
            mark=running.lease.job_id.removeprefix("ftjob-") + "f",
        )
        self.send(
            "pool",
            POOL,
            ReportCheckpoint(
                token=running.lease.token, incarnation=agent.incarnation, checkpoint=state
            ),
        )

    def _exit(
        self, agent: Agent, running: Running, outcome: Any, cause: FailureCause | None = None
    ) -> None:
        role: Role = running.lease.role
        elapsed_ms = self.at - (running.started_at or self.at) + self.random.randint(-50, 50)
        report = ReportExit(
            token=running.lease.token,
            incarnation=agent.incarnation,
            outcome=outcome,
            elapsed_ms=elapsed_ms,
            cause=cause,
            result=(TRAINED if role == "train" else SCORED) if outcome == "succeeded" else None,
        )
        self.send("pool", POOL, report)

    # --- what must hold at any prefix -------------------------------------------------------------

    def _check(self) -> None:
        for tenant in TENANTS:
            state = self.job.state.get(tenant)
            if state is None:
                continue
            month = month_of(self.at // HOUR_MS)
            used = state.used_gpu_ms.get(month, 0)
            assert used + open_gpu_ms(state) <= HARD_GPU_MS, "the hard limit was passed"
        pool = self.pool.state.get(POOL)
        if pool is not None:
            assert all(w.reason for w in pool.waiting.values()), "no reason"
            waiting = {(w.placement.job_id, w.placement.attempt) for w in pool.waiting.values()}
            running = [(x.ref.job_id, x.ref.attempt) for x in pool.leases.values() if not x.closed]
            assert len(waiting | set(running)) == len(waiting) + len(running)
            per_job = Counter(job_id for job_id, _ in (*waiting, *running))
            assert all(count == 1 for count in per_job.values()), "two open placements of a job"
