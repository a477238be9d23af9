"""Both second books of a run, kept together: use and money by lease, limits and holds by tenant."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.errors import BUDGET_EXHAUSTED
from schemas.lease_keys import LeaseHolder, LeaseKeysRequested, LeaseKeysSealed
from schemas.pool import (
    LeaseAdmitted,
    LeaseGranted,
    LeaseKilled,
    NodesObserved,
    PlacementClosed,
    UsageCredited,
    UsageSliced,
)
from schemas.units import GpuMs, Ms
from simulator.control_plane.agent import Diary
from simulator.control_plane.quota_books import Quota
from simulator.control_plane.usage_books import ABOVE, WHOLE, Agent, Beat, Meter

# A second account of starts: no lease is ended while its agent is seen to prepare it.

LIMIT_MS: Final[Ms] = 600_000  # of the small base models that simulated jobs train
STILL_MS: Final[Ms] = 600_000
LAST_LIMIT_MS: Final[Ms] = 4 * LIMIT_MS


class StartLimits:
    """Entered event by event; `violations` is what did not hold."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._granted: dict[int, Ms] = {}
        self._progress: dict[int, tuple[int, Ms]] = {}  # by lease: bytes, and when they grew

    def enter(self, event: Any, at: Ms) -> None:
        """One more event of the pool."""
        match event:
            case LeaseGranted() | LeaseAdmitted():
                self._granted[event.lease.token.lease] = at
            case NodesObserved():
                for seen in (lease for node in event.seen for lease in node.leases or ()):
                    if seen.prepared_bytes > self._progress.get(seen.lease, (0, 0))[0]:
                        self._progress[seen.lease] = seen.prepared_bytes, at
            case LeaseKilled() if event.reason.code == "start_timeout":
                self._judge(event.lease.token.lease, at)
            case _:
                pass

    def _judge(self, lease: int, at: Ms) -> None:
        waited_ms = at - self._granted[lease]
        still_ms = at - self._progress.get(lease, (0, 0))[1]
        if waited_ms < LIMIT_MS or (still_ms < STILL_MS and waited_ms < LAST_LIMIT_MS):
            text = f"{waited_ms} ms after its grant, {still_ms} ms after its last progress"
            self.violations.append(f"start: lease {lease} is ended {text}")


# A second account of keys: only the agent that holds an open lease is given keys of it.


class KeyBooks:
    """Entered event by event; `violations` is what did not hold."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._holders: dict[int, frozenset[str]] = {}  # by lease: incarnations of its members
        self._leases: dict[tuple[str, int], int] = {}  # by job and attempt
        self._asked: set[LeaseHolder] = set()

    def enter(self, event: Any) -> None:
        """One more event of the pool."""
        match event:
            case LeaseGranted():
                lease = event.lease.token.lease
                self._holders[lease] = frozenset(member.incarnation for member in event.members)
                self._leases[event.lease.job_id, event.lease.attempt] = lease
            case PlacementClosed():
                self._holders.pop(self._leases.get((event.job_id, event.attempt), 0), None)
            case LeaseKeysRequested():
                self._judge(event.holder, "asks for")
                self._asked.add(event.holder)
            case LeaseKeysSealed():
                self._judge(event.holder, "is given")
                if event.holder not in self._asked:
                    self.violations.append(
                        f"keys: lease {event.holder.lease} has keys that were not requested"
                    )
            case _:
                pass

    def _judge(self, holder: LeaseHolder, does: str) -> None:
        lease, incarnation = holder.lease, holder.incarnation
        if incarnation not in self._holders.get(lease, frozenset()):
            self.violations.append(f"keys: {incarnation} {does} keys of lease {lease}, not its own")


@dataclass
class SecondBooks:
    """Entered decision by decision; `violations` is what did not hold at some prefix.

    beats: every heartbeat that is in the log, also of later, by agent.
    diaries: diaries of agents that ran leases, by incarnation and lease.
    net: billed to a job so far, credits taken off.
    starts: leases that ended before they had started.
    keys: agents that asked for keys of leases, and got them.
    """

    beats: Mapping[Agent, Sequence[Beat]]
    diaries: Mapping[tuple[str, int], Diary]
    meter: Meter = field(init=False)
    quota: Quota = field(default_factory=Quota)
    net: Counter[str] = field(default_factory=Counter)
    starts: StartLimits = field(default_factory=StartLimits)
    keys: KeyBooks = field(default_factory=KeyBooks)
    _violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.meter = Meter(self.beats, self.diaries)

    @property
    def violations(self) -> list[str]:
        own = (*self.starts.violations, *self.keys.violations, *self._violations)
        return [*self.meter.violations, *self.quota.violations, *own]

    def enter_pool(self, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of `pool`. The hold of what it bills is entered before it."""
        self.meter.enter(command, events, at)
        for event in events:
            self.starts.enter(event, at)
            self.keys.enter(event)
            if isinstance(event, UsageSliced):
                self._bill(event.lease.job_id, event.billable_gpu_ms)
            elif isinstance(event, UsageCredited):
                self._bill(event.lease.job_id, -event.lost_gpu_ms)

    def enter_job(self, tenant: str, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of `job`."""
        self.quota.enter(tenant, command, events, at)

    def _bill(self, job_id: str, gpu_ms: GpuMs) -> None:
        self.net[job_id] += gpu_ms
        hold = self.quota.held.get(job_id, 0)
        if not 0 <= self.net[job_id] <= hold:
            self._violations.append(f"hold: {job_id} is at {self.net[job_id]} of {hold} held")

    def violations_at_the_end(self) -> list[str]:
        """Return what does not hold once the run is idle.

        Every job has ended, every hold is released, every lease is closed, and the quota, the pool
        and the ledger agree on each bill.
        """
        meter, quota = self.meter, self.quota
        violations = [f"end: {job_id} never ended" for job_id in sorted(quota.open_jobs)]
        if meter.queued != meter.closed:
            violations.append(f"closed: {meter.queued - meter.closed} were never closed")
        if +quota.counted != +Counter(meter.net) or -quota.counted != -Counter(meter.net):
            violations.append(f"hold: quota counts {quota.counted}, the pool {dict(meter.net)}")
        for job_id, ended in quota.ended.items():
            said, truth = (ended.billable_gpu_ms, ended.lost_gpu_ms), meter.totals[job_id]
            before, hold = truth[0] - truth[1], quota.held.get(job_id, 0)
            # a refund of tokens alone has no time: lines of the ledger are compared with its tokens
            refunded = {
                cause: n for (job, cause), n in meter.refunded.items() if job == job_id and n
            }
            code = ended.failure.code if ended.failure else ""
            due, cause = before if code in WHOLE else 0, code
            if code == BUDGET_EXHAUSTED:
                due, cause = max(0, before - quota.estimated[job_id]), ABOVE
            if refunded != ({cause: due} if due else {}):
                violations.append(f"refund: {job_id} ended by {code!r}, {refunded} of {before}")
            net = before - sum(refunded.values())
            truth = truth[0], truth[0] - net
            if said != truth:
                violations.append(f"end: {job_id} ends with {said}, its leases cost {truth}")
            if net != self.net[job_id]:
                violations.append(f"end: {job_id} costs {net}, its lines sum to {self.net[job_id]}")
            if not 0 <= net <= hold:
                violations.append(f"hold: {job_id} costs {net} of {hold} held")
            if ended.released_gpu_ms != hold - before:
                released = ended.released_gpu_ms
                violations.append(f"hold: {job_id} used {before} and releases {released}")
        return [*violations, *self._violations_of_terms()]

    def _violations_of_terms(self) -> list[str]:
        """Terms of replicas whose end says another bill than their leases and lines."""
        violations = []
        for term_id, ended in self.quota.terms_ended.items():
            truth = self.meter.totals[term_id]
            said = (ended.end.billable_gpu_ms, ended.end.lost_gpu_ms)
            net, hold = truth[0] - truth[1], self.quota.held[term_id]
            if said != truth or net != self.net[term_id] or ended.released_gpu_ms != hold - net:
                violations.append(
                    f"term: {term_id} ends with {said} and releases {ended.released_gpu_ms} of "
                    f"{hold}; its leases cost {truth}, its lines sum to {self.net[term_id]}"
                )
        return violations
