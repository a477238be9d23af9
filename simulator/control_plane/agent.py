"""A node agent and what it runs, as state and messages: no task, no clock, no waiting.

Two seeded worlds drive it: `nodes.py` as tasks on virtual time, and the world of the scheduler's
unit tests step by step. Agents fold what they are assigned with the production fold.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from schemas.assignments import Assigned
from schemas.lease_keys import RequestLeaseKeys
from schemas.node import JoinNode, LeaveNode, NodeDescription, NoticeNode
from schemas.pool import (
    ConfirmFreed,
    RegisterNode,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    RetireNode,
)
from schemas.reasons import skipping
from schemas.telemetry import Heartbeat
from schemas.training import AttemptOutcome, AttemptStart, FailureCause, SkippedCheckpoint
from schemas.units import Ms
from services.trainer.domain.evolve import HARDNESS, evolve
from services.trainer.domain.state import Grant, NodeState, TargetState
from simulator.control_plane.samples import POOL, checkpoint, result_of

STEPS: Final = 40
STEPS_PER_CHECKPOINT: Final = 10


@dataclass
class Diary:
    """Times that an attempt keeps about itself, in its agent's monotonic time."""

    began_ms: Ms | None = None
    exited_ms: Ms | None = None
    # manifest → elapsed at its capture, and later times at which nothing had changed
    captured: dict[str, set[Ms]] = field(default_factory=lambda: defaultdict(set))


LeaseDiaries = dict[tuple[str, int], Diary]  # by incarnation and lease; agents come and go


class SimAttempt:
    """A simulated process under one lease, and the reports that its agent sends about it."""

    def __init__(self, grant: Grant, incarnation: str, diary: Diary) -> None:
        self.grant, self.incarnation, self.diary = grant, incarnation, diary
        self.target: TargetState = "run"
        self.step = 0
        self.prepared_bytes = 0  # what it has read for its start
        self.still_since_ms: Ms | None = None  # set while its process does nothing
        self.is_over = False  # its agent has nothing more to do for it

    def idle_ms(self, now_ms: Ms) -> Ms:
        """How long its process has done nothing."""
        return 0 if self.still_since_ms is None else now_ms - self.still_since_ms

    def elapsed_ms(self, now_ms: Ms) -> Ms:
        """Since it began, until its process ended."""
        if self.diary.began_ms is None:
            return 0
        end_ms = now_ms if self.diary.exited_ms is None else self.diary.exited_ms
        return max(0, end_ms - self.diary.began_ms)

    def harden(self, target: TargetState) -> bool:
        """Request a target state. False when it is no harder than the present one."""
        if HARDNESS[target] <= HARDNESS[self.target]:
            return False
        self.target = target
        return True

    def request_keys(self) -> RequestLeaseKeys:
        """Build the request for the lease's keys, sent before anything is prepared."""
        return RequestLeaseKeys(
            lease=self.grant.token.lease,
            incarnation=self.incarnation,
            public_key=f"{self.grant.token.lease:064x}",
        )

    def start(self, now_ms: Callable[[], Ms], is_unreadable: Callable[[], bool]) -> ReportStarted:
        """Begin at the newest checkpoint that can be read."""
        skipped: list[SkippedCheckpoint] = []
        named = list(self.grant.checkpoints)
        while named and is_unreadable():
            bad = named.pop(0).manifest_sha256
            skipped.append(SkippedCheckpoint(manifest_sha256=bad, reason=skipping("blob_corrupt")))
        loaded = named[0] if named else None
        self.step = loaded.step if loaded else 0
        self.diary.began_ms = now_ms()
        start = AttemptStart(
            loaded=loaded.manifest_sha256 if loaded else None,
            loaded_step=self.step,
            skipped=tuple(skipped),
            total_steps=STEPS,
        )
        return ReportStarted(token=self.grant.token, incarnation=self.incarnation, start=start)

    def capture(self, now_ms: Ms) -> ReportCheckpoint | None:
        """The report of a checkpoint at the present step; None where it makes no checkpoints."""
        if self.grant.role == "eval" or self.diary.began_ms is None:
            return None
        captured_ms = max(0, now_ms - self.diary.began_ms)
        mark = f"{int(self.grant.job_id.rpartition('-')[2]):x}f"
        grant = self.grant
        captured = checkpoint(self.step, grant.attempt, captured_ms, mark, grant.tenant)
        self.diary.captured[captured.manifest_sha256].add(captured_ms)
        return ReportCheckpoint(
            token=self.grant.token, incarnation=self.incarnation, checkpoint=captured
        )

    def exit(
        self,
        now_ms: Ms,
        outcome: AttemptOutcome,
        cause: FailureCause | None = None,
        *,
        keyless: bool = False,
        faulty_node: str | None = None,
    ) -> ReportExit:
        """The end of its process, with the time since it began."""
        self.diary.exited_ms = now_ms
        began_ms = self.diary.began_ms
        result = result_of(self.grant.role, self.grant.tenant)
        return ReportExit(
            token=self.grant.token,
            incarnation=self.incarnation,
            outcome=outcome,
            elapsed_ms=0 if began_ms is None else now_ms - began_ms,
            cause=cause,
            result=result if outcome == "succeeded" else None,
            keyless=keyless,
            faulty_node=faulty_node,
        )

    def free(self) -> ConfirmFreed:
        """Build the report that no process of the attempt runs any more."""
        return ConfirmFreed(
            token=self.grant.token, node_id=self.grant.node_id, incarnation=self.incarnation
        )


class SimAgent:
    """One incarnation of a node's agent. `attempts` by lease."""

    def __init__(self, node: NodeDescription, diaries: LeaseDiaries) -> None:
        self.node, self._diaries = node, diaries
        self.state = NodeState(node_id=node.node_id, incarnation=node.incarnation)
        self.attempts: dict[int, SimAttempt] = {}

    def register(self) -> RegisterNode:
        """Build the command that registers the node, the first of an agent."""
        return RegisterNode(node=self.node, joins=True)

    def join(self) -> JoinNode:
        """Build the command that joins the pool, sent once the pool has accepted the node."""
        return JoinNode(node_id=self.node.node_id, incarnation=self.node.incarnation)

    def leave(self) -> LeaveNode:
        """Build the command that leaves the pool, sent when the agent is asked to stop."""
        return LeaveNode(node_id=self.node.node_id, incarnation=self.node.incarnation)

    def notice(self, left_ms: Ms) -> NoticeNode:
        """Build the notice that the cloud takes the machine away in `left_ms`."""
        node = self.node
        return NoticeNode(node_id=node.node_id, incarnation=node.incarnation, left_ms=left_ms)

    def retire(self) -> RetireNode:
        """Build the command that retires the node, the last of an agent."""
        return RetireNode(node_id=self.node.node_id, incarnation=self.node.incarnation)

    def take(self, record: Assigned) -> None:
        """Take in what the pool says to its nodes."""
        self.state = evolve(self.state, record)

    def reconcile(self, takes_new: bool = True) -> tuple[SimAttempt, ...]:
        """Make attempts agree with the assignments; those that it runs, oldest lease first."""
        for lease, assignment in self.state.assignments.items():
            if lease not in self.attempts and takes_new:
                diary = self._diaries.setdefault((self.node.incarnation, lease), Diary())
                self.attempts[lease] = SimAttempt(assignment.grant, self.node.incarnation, diary)
        assigned = sorted(lease for lease in self.state.assignments if lease in self.attempts)
        return tuple(self.attempts[lease] for lease in assigned)

    def target_of(self, attempt: SimAttempt) -> TargetState:
        """Return the target state that the pool assigns to an attempt of this node."""
        return self.state.assignments[attempt.grant.token.lease].target

    def has_keys(self, attempt: SimAttempt) -> bool:
        """True if the pool has sent sealed keys for an attempt of this agent."""
        assignment = self.state.assignments.get(attempt.grant.token.lease)
        return assignment is not None and bool(assignment.sealed_keys)

    def heartbeat(self, now_ms: Ms) -> Heartbeat:
        """Build the periodic heartbeat, with the times and prepared bytes of running leases."""
        running = {
            lease: attempt
            for lease, attempt in self.attempts.items()
            if lease in self.state.assignments and not attempt.is_over
        }
        leases = tuple(sorted(running))
        return Heartbeat(
            pool=POOL,
            node_id=self.node.node_id,
            incarnation=self.node.incarnation,
            leases=leases,
            idle_ms=tuple(running[lease].idle_ms(now_ms) for lease in leases),
            elapsed_ms=tuple(running[lease].elapsed_ms(now_ms) for lease in leases),
            prepared_bytes=tuple(running[lease].prepared_bytes for lease in leases),
        )
