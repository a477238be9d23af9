"""An independent meter: what every lease must have cost by decision 0005.

It reads the pool's accepted events, the commands they decide, heartbeats and the times that
attempts recorded, and uses no state and no arithmetic of the scheduler.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from schemas.envelope import Rejected
from schemas.node import NodeDescription, NodeResized
from schemas.pool import (
    CheckpointAccepted,
    ConfirmFreed,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseMember,
    LeaseStarted,
    MemberFreed,
    NodeRegistered,
    NodesObserved,
    Placement,
    PlacementClosed,
    PlacementQueued,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    Token,
    UsageCredited,
    UsageSliced,
)
from schemas.training import Checkpoint, LeaseHardware
from schemas.units import GpuMs, Ms
from simulator.control_plane.agent import Diary
from simulator.control_plane.true_usage import hours, lost_by_hour, newest_first, unusable_ms
from tunery.plan.price import billed_lease

AttemptKey: TypeAlias = tuple[str, int]  # job, attempt
Agent: TypeAlias = tuple[str, str]  # node, incarnation
PLATFORM: Final = ("platform", "bad_node", None)
WHOLE: Final = ("platform_error", "attempts_exhausted")  # ends of jobs that cost nothing
ABOVE: Final = "estimate_exceeded"  # the end of one that costs its estimate at most


class Beat(NamedTuple):
    """A heartbeat: when the broker took it, and the elapsed time of each lease that it lists."""

    at: Ms
    elapsed_ms: Mapping[int, Ms]


class LedgerLine(Struct, frozen=True, kw_only=True):
    """A row that billing's ledger must have; fields are named as its columns."""

    tenant: str
    job_id: str
    attempt: int
    role: str
    lane: str
    price_version: str
    lease: int
    hour_utc: int
    kind: str
    cause: str
    used_gpu_ms: GpuMs
    gpu_ms: GpuMs
    device: str
    accelerator: str
    spot: bool
    tokens: int


@dataclass(frozen=True)
class Granted:
    """A lease, with what its placement asked for. The first of its members reports for all."""

    token: Token
    job_id: str
    attempt: int
    members: tuple[LeaseMember, ...]
    slots: int
    max_gpu_ms: GpuMs
    billed_gpu_ms_max: GpuMs
    checkpoints: tuple[Checkpoint, ...]

    @property
    def first(self) -> str:
        """Incarnation of the agent of the first member."""
        return self.members[0].incarnation

    @property
    def agents(self) -> tuple[Agent, ...]:
        """Node id and incarnation of each member's agent."""
        return tuple((member.node_id, member.incarnation) for member in self.members)

    def on(self, node_id: str) -> int:
        """Slots that it has of a node."""
        return sum(member.slots for member in self.members if member.node_id == node_id)


@dataclass
class LeaseBook:
    grant: Granted
    started_at: Ms | None = None
    alive_at: Ms = 0  # started, and elapsed time that the agents of all members have proved
    proofs: dict[Agent, Ms] = field(default_factory=dict)  # of each member
    seen_at: dict[Agent, Ms] = field(default_factory=dict)  # the node of each lived then
    captured_ms: Ms = 0
    killed_at: Ms | None = None
    author: str | None = None  # of the first order to end it
    slices: dict[int, tuple[GpuMs, GpuMs]] = field(default_factory=dict)  # hour → used, billable
    skipped: dict[int, GpuMs] = field(default_factory=dict)  # hour → owed for lost checkpoints
    credited: Counter[int] = field(default_factory=Counter)  # hour → given back
    corrected: Counter[int] = field(default_factory=Counter)  # hour → sliced, and did not run
    closed: bool = False
    freed: set[str] = field(default_factory=set)  # nodes

    @property
    def is_free(self) -> bool:
        """True if the nodes of all members are freed."""
        return self.freed >= {member.node_id for member in self.grant.members}


@dataclass
class Meter:
    """`net`: by job and hour, credits taken off.

    `beats`: every heartbeat that is in the log, by agent and in the order of the log.

    `held`: leases whose money or slots are open.
    """

    beats: Mapping[Agent, Sequence[Beat]]
    diaries: Mapping[tuple[str, int], Diary]
    violations: list[str] = field(default_factory=list)
    leases: dict[int, LeaseBook] = field(default_factory=dict)
    held: dict[int, LeaseBook] = field(default_factory=dict)
    placements: dict[AttemptKey, Placement] = field(default_factory=dict)
    nodes: dict[str, NodeDescription] = field(default_factory=dict)
    queued: Counter[AttemptKey] = field(default_factory=Counter)
    closed: Counter[AttemptKey] = field(default_factory=Counter)
    net: dict[tuple[str, str, int], GpuMs] = field(default_factory=lambda: defaultdict(int))
    totals: dict[str, tuple[GpuMs, GpuMs]] = field(
        default_factory=lambda: defaultdict(lambda: (0, 0))
    )
    # by job and role, credits taken off
    of_role: dict[tuple[str, str], GpuMs] = field(default_factory=lambda: defaultdict(int))
    refunded: Counter[tuple[str, str]] = field(default_factory=Counter)  # by job and cause
    lines: Counter[LedgerLine] = field(default_factory=Counter)
    _registered: dict[Agent, set[Ms]] = field(default_factory=dict)

    def enter(self, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of the pool."""
        self._check_token(command, events)
        for event in events:
            self._enter(event, at)
            if isinstance(event, PlacementClosed):
                self._close(event, command, at)

    def _say(self, invariant: str, text: str) -> None:
        self.violations.append(f"{invariant}: {text}")

    # --- tokens -----------------------------------------------------------------------------------

    def _check_token(self, command: Any, events: tuple[Any, ...]) -> None:
        """Check that an accepted report belongs to the open lease that its token names."""
        if not isinstance(command, ReportStarted | ReportCheckpoint | ReportExit):
            return
        number = command.token.lease
        changed = {
            event.lease.token.lease
            for event in events
            if isinstance(event, LeaseStarted | CheckpointAccepted | UsageSliced | UsageCredited)
        }
        if not events or isinstance(events[0], Rejected):
            return
        lease, name = self.leases.get(number), f"{type(command).__name__} of lease {number}"
        agents = () if lease is None else [of for _, of in lease.grant.agents]
        if lease is None or lease.closed or command.incarnation not in agents:
            self._say("token", f"{name} was accepted and is not of an open lease")
        elif changed - {number}:
            self._say("token", f"{name} changed lease {changed - {number}}")

    # --- facts ------------------------------------------------------------------------------------

    def _enter(self, event: Any, at: Ms) -> None:
        match event:
            case NodeRegistered():
                self.nodes[event.node.node_id] = event.node
                agent = event.node.node_id, event.node.incarnation
                self._registered.setdefault(agent, set()).add(at)
            case NodeResized():
                node = self.nodes[event.node_id]
                self.nodes[event.node_id] = replace(node, slots=event.slots)
            case NodesObserved():
                self._observe(event, at)
            case PlacementQueued():
                placement = event.placement
                self.placements[placement.job_id, placement.attempt] = placement
                self.queued[placement.job_id, placement.attempt] += 1
            case LeaseGranted():
                self._grant(event)
            case UsageSliced():
                self._slice(event)
            case UsageCredited():
                self._credit(event)
            case MemberFreed():
                self.leases[event.lease.token.lease].freed.add(event.node_id)
                self._let_go(event.lease.token.lease)
            case LeaseStarted() | CheckpointAccepted() | LeaseDraining() | LeaseKilled():
                self._follow(self.leases[event.lease.token.lease], event, at)
            case _:
                pass

    def _observe(self, event: NodesObserved, at: Ms) -> None:
        for seen in event.seen:
            agent = (seen.node_id, seen.incarnation)
            elapsed = {lease.lease: lease.elapsed_ms for lease in seen.leases or ()}
            if not self._is_proven(agent, seen.last_seen, None if seen.leases is None else elapsed):
                self._say("proof", f"{seen} is not in any heartbeat")
            for lease in self.held.values():
                if agent in lease.grant.agents and lease.started_at is not None:
                    # where broker time steps back, it lived when it was seen before all the same
                    seen_at = max(lease.seen_at.get(agent, 0), min(seen.last_seen, at))
                    ran_until = lease.started_at + elapsed.get(lease.grant.token.lease, 0)
                    lease.seen_at[agent] = seen_at
                    lease.proofs[agent] = min(ran_until, seen_at)
                    held = [each for each in lease.grant.agents if each[0] not in lease.freed]
                    proofs = (lease.proofs.get(each, 0) for each in held)
                    lease.alive_at = max(lease.alive_at, min(proofs, default=0))

    def _is_proven(self, agent: Agent, last_seen: Ms, elapsed: Mapping[int, Ms] | None) -> bool:
        """The times are those of one heartbeat, and no heartbeat before it was seen later.

        Broker time may step back between two heartbeats; then the first was seen last.
        """
        was_seen = last_seen in self._registered.get(agent, ())
        if was_seen and not elapsed:
            return True
        has_times = False
        for beat in reversed(self.beats.get(agent, ())):  # the newest is the one, nearly always
            has_times |= (elapsed is None or beat.elapsed_ms == elapsed) and beat.at <= last_seen
            was_seen |= has_times and beat.at == last_seen
            if has_times and was_seen:
                return True
        return False

    def _grant(self, event: LeaseGranted) -> None:
        grant = self._granted(event)
        number = grant.token.lease
        if number in self.leases:
            self._say("slots", f"lease {number} was granted twice")
        self.leases[number] = self.held[number] = LeaseBook(grant)
        for node_id, incarnation in grant.agents:
            node = self.nodes.get(node_id)
            used = sum(
                lease.grant.on(node_id)
                for lease in self.held.values()
                if node_id not in lease.freed
            )
            if node is None or node.incarnation != incarnation or used > node.slots:
                self._say("slots", f"lease {number} makes it {used} slots in use of {node}")

    def _let_go(self, number: int) -> None:
        lease = self.leases[number]
        if lease.closed and lease.is_free:
            self.held.pop(number, None)

    def _granted(self, event: LeaseGranted) -> Granted:
        lease = event.lease
        placement = self.placements[lease.job_id, lease.attempt]
        members = event.members
        slots = {(member.node_id, device) for member in members for device in member.devices}
        parts = [member.slots for member in members if member.slots == len({*member.devices})]
        is_whole = sum(parts) == placement.slots == len(slots)
        if not is_whole or len({member.node_id for member in members}) != len(members):
            self._say("slots", f"{lease.token} has {members}, asked were {placement.slots} slots")
        bounds = [placement.max_gpu_ms]
        if placement.billed_gpu_ms_max is not None:
            bounds.append(placement.billed_gpu_ms_max)
        return Granted(
            token=lease.token,
            job_id=lease.job_id,
            attempt=lease.attempt,
            members=members,
            slots=placement.slots,
            max_gpu_ms=placement.max_gpu_ms,
            billed_gpu_ms_max=min(bounds),
            checkpoints=placement.checkpoints,
        )

    def _follow(
        self,
        lease: LeaseBook,
        event: LeaseStarted | CheckpointAccepted | LeaseDraining | LeaseKilled,
        at: Ms,
    ) -> None:
        match event:
            case LeaseStarted():
                lease.started_at = lease.alive_at = at
                if event.start.skipped:
                    unusable = unusable_ms(lease.grant.checkpoints, event.start.loaded)
                    paid = {
                        h: n for (_, job, h), n in self.net.items() if job == lease.grant.job_id
                    }
                    lease.skipped = newest_first(paid, lease.grant.slots * unusable)
            case CheckpointAccepted():
                self._checkpoint(lease, event.checkpoint, at)
            case LeaseDraining():
                lease.author = lease.author or event.ended_by
            case LeaseKilled():
                lease.killed_at = at
                lease.author = lease.author or event.ended_by

    def _checkpoint(self, lease: LeaseBook, checkpoint: Checkpoint, at: Ms) -> None:
        """Captured when its agent says, within the lease and below the cap.

        A session says of its newest one again, as long as it does nothing.
        """
        if lease.started_at is None:
            self._say("token", f"checkpoint of {lease.grant.token} before its start")
            return
        diary = self.diaries[lease.grant.first, lease.grant.token.lease]
        said_ms = diary.captured.get(checkpoint.manifest_sha256)
        if not said_ms:
            self._say("token", f"{lease.grant.token} has a checkpoint of another lease")
            return
        cap_ms = lease.grant.max_gpu_ms // lease.grant.slots
        latest_ms = min(at - lease.started_at, cap_ms)
        times_ms = {min(max(each, lease.captured_ms), latest_ms) for each in said_ms}
        if checkpoint.captured_ms not in times_ms:
            self._say("token", f"{lease.grant.token} has {checkpoint} of a time that nobody said")
        lease.captured_ms = checkpoint.captured_ms
        lease.alive_at = max(lease.alive_at, lease.started_at + lease.captured_ms)

    # --- money ------------------------------------------------------------------------------------

    def _slice(self, event: UsageSliced) -> None:
        ref, hour = event.lease, event.hour_utc
        lease = self.leases[ref.token.lease]
        used, billable = lease.slices.get(hour, (0, 0))
        if lease.closed or (used and event.used_gpu_ms):  # tokens may follow alone
            self._say("ledger", f"hour {hour} of {ref.token} is billed twice, or too late")
        lease.slices[hour] = (used + event.used_gpu_ms, billable + event.billable_gpu_ms)
        self.net[ref.tenant, ref.job_id, hour] += event.billable_gpu_ms
        self.of_role[ref.job_id, ref.role] += event.billable_gpu_ms
        self._line(event, "usage", "", event.used_gpu_ms, event.billable_gpu_ms)

    def _credit(self, event: UsageCredited) -> None:
        ref = event.lease
        lease = self.leases[ref.token.lease]
        if event.cause in (*WHOLE, ABOVE):
            self.refunded[ref.job_id, event.cause] += event.lost_gpu_ms
        elif lease.closed:
            self._say("ledger", f"{ref.token} is credited after its end")
        kept = lease.corrected if event.cause == "correction" else lease.credited
        kept[event.hour_utc] += event.lost_gpu_ms
        self.net[ref.tenant, ref.job_id, event.hour_utc] -= event.lost_gpu_ms
        self.of_role[ref.job_id, ref.role] -= event.lost_gpu_ms
        is_empty = event.lost_gpu_ms < 0 or event.lost_gpu_ms == event.lost_tokens == 0
        if is_empty or self.net[ref.tenant, ref.job_id, event.hour_utc] < 0:
            self._say("ledger", f"{event} leaves less than nothing in its hour")
        self._line(event, "credit", event.cause, 0, -event.lost_gpu_ms)

    def _line(
        self, event: UsageSliced | UsageCredited, kind: str, cause: str, used: GpuMs, net: GpuMs
    ) -> None:
        lease = billed_lease(event)
        hardware = lease.hardware or LeaseHardware()
        line = LedgerLine(
            tenant=lease.tenant,
            job_id=lease.job_id,
            attempt=lease.attempt,
            role=lease.role,
            lane=lease.lane,
            price_version=lease.price_version,
            lease=lease.token.lease,
            hour_utc=event.hour_utc,
            kind=kind,
            cause=cause,
            used_gpu_ms=used,
            gpu_ms=net,
            device=hardware.device,
            accelerator=hardware.accelerator,
            spot=hardware.spot,
            tokens=event.tokens if isinstance(event, UsageSliced) else -event.lost_tokens,
        )
        self.lines[line] += 1

    def _close(self, event: PlacementClosed, command: Any, at: Ms) -> None:
        placement = (event.job_id, event.attempt)
        self.closed[placement] += 1
        if self.closed[placement] > self.queued[placement]:
            self._say("closed", f"{placement} was closed more often than it was queued")
        leases = [
            lease
            for lease in self.held.values()
            if (lease.grant.job_id, lease.grant.attempt) == placement and not lease.closed
        ]
        billable, lost = self.totals[event.job_id]
        self.totals[event.job_id] = (
            billable + event.end.billable_gpu_ms,
            lost + event.end.lost_gpu_ms,
        )
        for lease in leases:
            lease.closed = True
            self._settle(lease, event, command, at)
            self._let_go(lease.grant.token.lease)
        trained, evaluated = ((event.job_id, role) for role in ("train", "eval"))
        if trained in self.of_role and self.of_role[evaluated] > self.of_role[trained]:
            # no job of the world asks for prompts or measures of its own
            text = f"{self.of_role[evaluated]}, and its training {self.of_role[trained]}"
            self._say("ledger", f"the evaluation of {event.job_id} is billed {text}")
        if not leases and (event.end.billable_gpu_ms, event.end.lost_gpu_ms) != (0, 0):
            self._say("ledger", f"{placement} had no lease and costs {event}")

    def _settle(self, lease: LeaseBook, event: PlacementClosed, command: Any, at: Ms) -> None:
        """Compare slices, credits and totals with the expected amounts."""
        end, grant = event.end, lease.grant
        name = f"lease {grant.token.lease} ({end.outcome}, by {end.ended_by})"
        elapsed_ms = self._elapsed_ms(lease, command, at)
        truth = hours(lease.started_at or 0, elapsed_ms, grant.slots, grant.billed_gpu_ms_max)
        billed = {h: (n, b - lease.corrected[h]) for h, (n, b) in lease.slices.items()}
        if grant.slots * elapsed_ms < sum(used for used, _ in lease.slices.values()):
            billed = {h: (truth.get(h, (0, 0))[0], net) for h, (_, net) in billed.items()}
        billed = {h: entry for h, entry in billed.items() if entry != (0, 0)}  # tokens alone
        if billed != truth:
            self._say("ledger", f"{name} is billed {billed}, the truth is {truth}")
        platforms = (
            end.outcome == "lost"
            or (end.outcome == "preempted" and lease.author != "tenant")
            or (end.outcome == "failed" and end.cause in PLATFORM)
        )
        owed = Counter(lease.skipped)
        if event.role == "serve":  # what was answered is not lost
            owed = Counter()
        elif end.outcome == "failed" and end.cause == "oom":
            owed += lost_by_hour(truth, 0)
        elif platforms:
            owed += lost_by_hour(truth, grant.slots * lease.captured_ms)
        if +lease.credited != +owed:
            self._say("ledger", f"{name} is credited {lease.credited}, owed are {owed}")
        said = (end.used_gpu_ms, end.billable_gpu_ms, end.lost_gpu_ms)
        billable = sum(billable for _, billable in lease.slices.values())
        if said != (grant.slots * elapsed_ms, billable, (owed + lease.corrected).total()):
            self._say("ledger", f"{name} closes with {said}; {elapsed_ms} ms, {billable}, {owed}")

    def _elapsed_ms(self, lease: LeaseBook, command: Any, at: Ms) -> Ms:
        """Elapsed time as the agent reported it, else until the kill, else the last heartbeat.

        Never before what is captured, never after now, nothing for what never started.
        """
        if lease.started_at is None:
            return 0
        number = lease.grant.token.lease
        if isinstance(command, ReportExit) and command.token.lease == number:
            diary = self.diaries[command.incarnation, number]
            if (diary.began_ms, diary.exited_ms) == (None, None) or command.elapsed_ms != (
                (diary.exited_ms or 0) - (diary.began_ms or 0)
            ):
                self._say("proof", f"lease {number} reports {command.elapsed_ms} ms; {diary}")
            end_ms = command.elapsed_ms
        else:
            end_ms = self._last_sign(lease, command) - lease.started_at
        return min(max(end_ms, lease.captured_ms), at - lease.started_at)

    def _last_sign(self, lease: LeaseBook, command: Any) -> Ms:
        killed_at = lease.killed_at
        alone = type(command).__name__ == "Tick" or isinstance(command, ConfirmFreed)
        if killed_at is not None and (
            alone or max((lease.alive_at, *lease.seen_at.values())) >= killed_at
        ):
            return min(killed_at, lease.alive_at)
        return lease.alive_at
