"""Plays jobs on virtual time: they are submitted, planned, stopped for others, and end."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from time import perf_counter_ns
from typing import Final

from schemas.training import NodeConstraints
from schemas.units import Micro, Ms
from tunery.cli.simulate.spot import SAVING_MS, SpotScenario
from tunery.cli.simulate.trace_jobs import TraceJob
from tunery.plan.scheduling.plan import Plan, plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import Policy
from tunery.plan.scheduling.requests import (
    ANY_NODE,
    PlanNode,
    Request,
    RequestClass,
    Seats,
    granted,
    price_class_of,
)
from tunery.plan.spot import LOSSES_KEPT, bears_spot, kept_off_until, lifetime_ms

CHECKPOINT_MS: Final[Ms] = 1_800_000  # from one checkpoint of a lease to the next
# Events of one moment in order: slots are freed before anything is planned. The last four are of
# spot nodes, whose names are in the place of a job's.
ENDED, SAVED, SUBMITTED, RECONSIDERED, CHANGED, NOTICED, LOST, CAME = range(8)
SERIES_MAX: Final = 20  # rounds of a spot series, after which jobs that are left never end


@dataclass(slots=True)
class PlayedJob:
    """A job and what came of it."""

    job: TraceJob
    left_ms: Ms  # work that is in no checkpoint
    restart_ms: Ms = 0  # what its next start costs before it works
    lease: int = 0  # how often it was granted; its events carry that number
    started_at: Ms = -1  # its first start
    ends_at: Ms = -1  # when its last start ends, if nothing stops it
    preemptions: int = 0  # how often it was stopped for others
    interrupted_at: list[Ms] = field(default_factory=list)  # when it lost spot nodes
    lost_ms: int = 0  # slots × time that both cost

    @property
    def wait_ms(self) -> Ms:
        """From its submission to its first start."""
        return self.started_at - self.job.submitted_at


@dataclass(frozen=True, slots=True)
class QueueSample:
    """A moment after the planner has looked."""

    at: Ms
    waiting: int  # jobs in the queue
    used: int  # slots that leases hold
    slots: int  # those of nodes that are there


@dataclass(slots=True)
class SpotUse:
    """Usage of spot nodes."""

    lost: int = 0  # number of nodes taken away
    machine_ms: int = 0  # total time for which nodes existed
    cost_micro: Micro = 0  # cost of that time; 0 if the series has no prices


@dataclass(slots=True)
class Played:
    """A trace that was played."""

    jobs: list[PlayedJob]  # all of them
    plan_ns: list[int]  # the planner's time for each of its decisions
    samples: list[QueueSample]  # what waited and what was used, in order of time
    left_out: int = 0  # how many need more slots than there are
    # how many never got through, because their nodes were taken away again and again
    unfinished: int = 0
    spot: SpotUse | None = None  # what spot nodes did; None: there were none


def play(
    jobs: Sequence[TraceJob],
    policy: Policy,
    nodes: int,
    slots: int,
    exact: bool = False,
    spot: SpotScenario | None = None,
) -> Played:
    """Every job runs to its end. What needs more than all nodes have is left out.

    spot: spot machines among the nodes, and how they come and go.
    """
    fitting = [job for job in jobs if job.slots <= nodes * slots]
    played = _TracePlayer(fitting, policy, nodes, slots, exact, spot).run()
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
        spot: SpotScenario | None,
    ) -> None:
        self._size, self._fixed = slots, nodes - (spot.nodes if spot else 0)
        self._state = PlanningState(map(self._node, range(self._fixed)), policy)
        self._policy, self._exact = policy, exact
        self._checkpoint_ms = spot.saved_every_ms if spot else CHECKPOINT_MS
        self._jobs = {job.job_id: PlayedJob(job, job.duration_ms) for job in jobs}
        self._events = [(job.submitted_at, SUBMITTED, job.job_id, 0) for job in jobs]
        self._plan_ns: list[int] = []
        self._samples: list[QueueSample] = []
        heapify(self._events)
        self._left = len(self._jobs)
        self._begin = min((job.submitted_at for job in jobs), default=0)
        self._spot, self._used, self._up = spot, SpotUse(), 0
        self._lost: list[Ms] = []  # when spot nodes were, the newest ones
        self._came: dict[str, Ms] = {}  # spot nodes that are there, and since when
        if spot is not None:
            self._changes = spot.changes()
            self._foresee_change(self._begin)

    def run(self) -> Played:
        at = self._begin
        while self._events and self._left:
            at, is_changed = self._events[0][0], False
            while self._events and self._events[0][0] == at:
                is_changed |= self._happen(at)
            if is_changed and self._state.queue.requests:
                self._plan(at)
            if is_changed:
                used = sum(self._state.held.values())
                number = len(self._state.queue.requests)
                self._samples.append(QueueSample(at, number, used, self._slots()))
        for name in [*self._came]:
            self._take_away(name, at)
        jobs = [
            job for job in self._jobs.values() if job.job.job_id not in self._state.queue.requests
        ]
        played = Played(jobs, self._plan_ns, self._samples, unfinished=len(self._jobs) - len(jobs))
        played.spot = self._used if self._spot else None
        return played

    def _slots(self) -> int:
        return (self._fixed + len(self._came)) * self._size

    def _node(self, number: int) -> PlanNode:
        price_class = price_class_of(spot=number >= self._fixed, reserved=False)
        return PlanNode(f"n{number:05d}", self._size, "cuda", 0, price_class=price_class)

    def _happen(self, at: Ms) -> bool:
        """The next event; whether there is something to plan after it."""
        _, kind, job_id, lease = heappop(self._events)
        if kind >= CHANGED:
            return self._happen_to_spot(at, kind, job_id, lease)
        played = self._jobs[job_id]
        if kind == SUBMITTED:
            self._state.queue.add(self._request(played, at))
            return True
        if kind == RECONSIDERED:
            waits = lease == played.lease and job_id in self._state.queue.requests
            if waits:
                self._state.leave_queue(job_id)
                self._state.queue.add(self._request(played, at))
            return waits
        if lease != played.lease or job_id not in self._state.running:
            return False
        if kind == ENDED:
            self._state.end(job_id, at)
            self._left -= 1
            return True
        self._state.save(job_id, at)
        self._save_later(played, at)
        # A checkpoint is when a lease has the least to lose: those who may stop it check again.
        return bool(self._state.queue.requests)

    def _foresee_change(self, at: Ms) -> None:
        """The next change of the number of spot nodes, the notices before it among its events."""
        if self._spot is None:
            return
        since, up = next(self._changes)
        if since >= SERIES_MAX * self._spot.series.length_ms:
            return
        changes_at = self._begin + since
        heappush(self._events, (changes_at, CHANGED, "", 0))
        for number in range(min(up, self._up), max(up, self._up)):
            name = self._node(self._fixed + number).node_id
            if up > self._up:
                heappush(self._events, (changes_at, CAME, name, number))
            else:
                noticed_at = max(at, changes_at - self._spot.notice_ms)
                heappush(self._events, (noticed_at, NOTICED, name, changes_at))
                heappush(self._events, (changes_at, LOST, name, 0))
        self._up = up

    def _happen_to_spot(self, at: Ms, kind: int, name: str, number: int) -> bool:
        """A change of spot nodes; whether there is something to plan after it.

        number: number of the node that came, or the time when the one that was noticed is taken
          away.
        """
        if kind == CHANGED:
            self._foresee_change(at)
            return False
        if kind == CAME:
            self._came[name] = at
            self._state.put_node(self._node(self._fixed + number))
            return True
        self._state.remove_node(name)
        if kind == LOST:
            self._lost = [*self._lost, at][-LOSSES_KEPT:]
        if kind == NOTICED and number - at < SAVING_MS:
            return False
        for lease in [*self._state.leases_on(name)]:
            if kind == NOTICED:
                self._state.save(lease.key, at)
            self._jobs[lease.key].interrupted_at.append(at)
            self._stop(self._jobs[lease.key], at)
        if kind == LOST:
            self._used.lost += 1
            self._take_away(name, at)
        return True

    def _take_away(self, name: str, at: Ms) -> None:
        came = self._came.pop(name)
        self._used.machine_ms += at - came
        if self._spot is not None:
            began, ended = came - self._begin, at - self._begin
            self._used.cost_micro += self._spot.price_micro(began, ended)

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
                self._jobs[job_id].preemptions += 1
                self._stop(self._jobs[job_id], at)
        for start in planned.starts:
            self._start(self._jobs[start.request.job_id], start.request, start.seats, at)
        for each in planned.preemptions:
            self._state.bind(each.request.job_id, each.seats)

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
        """Interrupt a job and queue it again.

        Work since its last checkpoint is lost, and its next start takes the policy's `restart_ms`.
        """
        lease = self._state.end(played.job.job_id, at)
        saved_ms = lease.saved_at - lease.granted_at
        played.left_ms -= max(0, saved_ms - played.restart_ms)
        played.restart_ms = self._policy.restart_ms
        played.lost_ms += lease.slots * (at - lease.saved_at + self._policy.restart_ms)
        self._state.queue.add(self._request(played, at))
        until = kept_off_until(played.interrupted_at, at)
        if until is not None:
            heappush(self._events, (until, RECONSIDERED, played.job.job_id, played.lease))

    def _may_have_spot(self, played: PlayedJob, at: Ms) -> bool | None:
        """True if the product's rules allow a job on spot nodes; None: there are none."""
        if self._spot is None:
            return None
        lives_ms = lifetime_ms(self._spot.nodes, self._lost, at)
        bears_it = bears_spot(self._checkpoint_ms, lives_ms)
        return bears_it and kept_off_until(played.interrupted_at, at) is None

    def _request(self, played: PlayedJob, at: Ms) -> Request:
        job = played.job
        may_have_spot = self._may_have_spot(played, at)
        constraints = ANY_NODE if may_have_spot is None else NodeConstraints(spot=True)
        avoids_spot = may_have_spot is False
        expected_ms = job.duration_ms if self._exact else job.estimate_ms
        return Request(
            job_id=job.job_id,
            tenant=job.tenant,
            lane=job.lane,
            needs=RequestClass(
                job.slots, "cuda", 0, constraints=constraints, avoids_spot=avoids_spot
            ),
            submitted_at=job.submitted_at,
            queued_at=job.submitted_at if played.started_at < 0 else at,
            p50_ms=expected_ms,
            p90_ms=expected_ms,
            preemptions=played.preemptions,
        )
