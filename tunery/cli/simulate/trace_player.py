"""Plays jobs on virtual time: they are submitted, planned, stopped for others, and end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from time import perf_counter_ns
from typing import Final

from schemas.units import Ms
from tunery.cli.simulate.trace_jobs import TraceJob
from tunery.plan.scheduling.plan import Plan, Preemption, Start, plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import Policy
from tunery.plan.scheduling.requests import (
    PlanNode,
    Request,
    RequestClass,
    Seats,
    granted,
)

CHECKPOINT_MS: Final[Ms] = 1_800_000  # from one checkpoint of a lease to the next
# Events of one moment in order: slots are freed before anything is planned.
ENDED, SAVED, SUBMITTED = 0, 1, 2


@dataclass(slots=True)
class PlayedJob:
    """A job and what came of it.

    left_ms: work that is in no checkpoint.
    restart_ms: what its next start costs before it works.
    lease: how often it was granted; its events carry that number.
    started_at: its first start.
    ends_at: when its last start ends, if nothing stops it.
    preemptions: how often it was stopped.
    lost_ms: slots × time that this cost.
    """

    job: TraceJob
    left_ms: Ms
    restart_ms: Ms = 0
    lease: int = 0
    started_at: Ms = -1
    ends_at: Ms = -1
    preemptions: int = 0
    lost_ms: int = 0

    @property
    def wait_ms(self) -> Ms:
        """From its submission to its first start."""
        return self.started_at - self.job.submitted_at


@dataclass(frozen=True, slots=True)
class QueueSample:
    """A moment after the planner has looked.

    at: when.
    waiting: jobs in the queue.
    used: slots that leases hold.
    """

    at: Ms
    waiting: int
    used: int


@dataclass(slots=True)
class Played:
    """A trace that was played.

    jobs: all of them.
    plan_ns: the planner's time for each of its decisions.
    samples: what waited and what was used, in order of time.
    left_out: how many need more slots than there are.
    """

    jobs: list[PlayedJob]
    plan_ns: list[int]
    samples: list[QueueSample]
    left_out: int = 0


def play(
    jobs: Sequence[TraceJob],
    policy: Policy,
    nodes: int,
    slots: int,
    exact: bool = False,
    checkpoint_ms: Ms = CHECKPOINT_MS,
) -> Played:
    """Every job runs to its end. What needs more than all nodes have is left out."""
    fitting = [job for job in jobs if job.slots <= nodes * slots]
    played = _TracePlayer(fitting, policy, nodes, slots, exact, checkpoint_ms).run()
    played.left_out = len(jobs) - len(fitting)
    return played


class _TracePlayer:
    def __init__(
        self,
        jobs: Sequence[TraceJob],
        policy: Policy,
        nodes: int,
        slots: int,
        exact: bool,
        checkpoint_ms: Ms,
    ) -> None:
        alike = [PlanNode(f"n{number:05d}", slots, "cuda", 0) for number in range(nodes)]
        self._state = PlanningState(alike, policy)
        self._policy, self._exact, self._checkpoint_ms = policy, exact, checkpoint_ms
        self._jobs = {job.job_id: PlayedJob(job, job.duration_ms) for job in jobs}
        self._events = [(job.submitted_at, SUBMITTED, job.job_id, 0) for job in jobs]
        self._plan_ns: list[int] = []
        self._samples: list[QueueSample] = []
        heapify(self._events)

    def run(self) -> Played:
        while self._events:
            at, is_changed = self._events[0][0], False
            while self._events and self._events[0][0] == at:
                is_changed |= self._happen(at)
            if is_changed and self._state.queue.requests:
                self._plan(at)
            if is_changed:
                used = sum(self._state.held.values())
                self._samples.append(QueueSample(at, len(self._state.queue.requests), used))
        return Played(list(self._jobs.values()), self._plan_ns, self._samples)

    def _happen(self, at: Ms) -> bool:
        """The next event; whether there is something to plan after it."""
        _, kind, job_id, lease = heappop(self._events)
        played = self._jobs[job_id]
        if kind == SUBMITTED:
            self._state.queue.add(self._request(played))
            return True
        if lease != played.lease or job_id not in self._state.running:
            return False
        if kind == ENDED:
            self._state.end(job_id)
            return True
        self._state.save(job_id, at)
        self._save_later(played, at)
        # A checkpoint is when a lease has the least to lose: whoever may stop it looks again.
        return any(self._state.queue.lanes[: self._policy.preempting])

    def _plan(self, at: Ms) -> None:
        more = True
        while more:
            began = perf_counter_ns()
            planned = plan(self._state, at)
            self._plan_ns.append(perf_counter_ns() - began)
            self._apply(planned, at)
            more = planned.more or bool(planned.preemptions)

    def _apply(self, planned: Plan, at: Ms) -> None:
        for preemption in planned.preemptions:
            for job_id in preemption.keys:
                self._stop(self._jobs[job_id], at)
        decided: list[Start | Preemption] = [*planned.starts, *planned.preemptions]
        for start in decided:
            self._start(self._jobs[start.request.job_id], start.request, start.seats, at)

    def _start(self, played: PlayedJob, request: Request, seats: Seats, at: Ms) -> None:
        job_id = request.job_id
        self._state.leave_queue(job_id)
        lease = granted(request, seats, at, job_id)
        self._state.start(replace(lease, started_at=at, saved_at=at))
        played.lease += 1
        played.ends_at = at + played.restart_ms + played.left_ms
        if played.started_at < 0:
            played.started_at = at
        heappush(self._events, (played.ends_at, ENDED, job_id, played.lease))
        if self._policy.preempting and request.lane > 0:
            self._save_later(played, at)

    def _save_later(self, played: PlayedJob, at: Ms) -> None:
        next_at = at + self._checkpoint_ms
        if next_at < played.ends_at:
            heappush(self._events, (next_at, SAVED, played.job.job_id, played.lease))

    def _stop(self, played: PlayedJob, at: Ms) -> None:
        """It loses what it did since its last checkpoint, and its next start costs time."""
        lease = self._state.end(played.job.job_id)
        saved_ms = lease.saved_at - lease.granted_at
        played.left_ms -= max(0, saved_ms - played.restart_ms)
        played.restart_ms = self._policy.restart_ms
        played.lost_ms += lease.slots * (at - lease.saved_at + self._policy.restart_ms)
        played.preemptions += 1
        self._state.queue.add(self._request(played))

    def _request(self, played: PlayedJob) -> Request:
        job = played.job
        expected_ms = job.duration_ms if self._exact else job.estimate_ms
        return Request(
            job_id=job.job_id,
            tenant=job.tenant,
            lane=job.lane,
            needs=RequestClass(job.slots, "cuda", 0),
            submitted_at=job.submitted_at,
            p50_ms=expected_ms,
            p90_ms=expected_ms,
            preemptions=played.preemptions,
        )
