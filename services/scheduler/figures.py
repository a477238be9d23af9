"""Metrics of the scheduler: its states as gauges, and what its decisions did as counters.

No label names a tenant or a job, so a thousand tenants make no more series than one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, get_args

from schemas.admission import BudgetThresholdReached
from schemas.job import JobEnded
from schemas.pool import (
    CreditCause,
    LeaseGranted,
    PlacementClosed,
    PlacementQueued,
    UsageCredited,
    UsageSliced,
)
from schemas.streams import GLOBAL
from schemas.units import Ms
from services.scheduler.domain.job.budgets import THRESHOLDS
from services.scheduler.domain.job.state import Tenants
from services.scheduler.domain.pool.state import Lease, Node, Pool, Pools
from services.scheduler.domain.session.state import Sessions
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.owner import Settled
from tunery.runtime.telemetry.catalogue import Metric, computed, counter, histogram
from tunery.runtime.telemetry.figures import StateValue

WAITING: Final = computed(
    "tunery_pool_waiting", "Placements in the queue, by lane", ("pool", "lane")
)
LACKING: Final = computed(
    "tunery_pool_slots_lacking",
    "Slots (GPUs) that placements in the queue ask for, by lane and kind of device",
    ("pool", "lane", "device_kind"),
)
OLDEST_WAIT: Final = computed(
    "tunery_pool_oldest_submitted_timestamp_seconds",
    "When the job that waits longest in a lane was submitted, as a Unix time",
    ("pool", "lane"),
    "seconds",
)
LEASES: Final = computed(
    "tunery_pool_leases",
    "Leases: granted (not begun), started, draining, killed, closed (slots not free yet)",
    ("pool", "state"),
)
NODES: Final = computed(
    "tunery_pool_nodes",
    "Nodes: up, joining, leaving, noticed (taken away soon), cordoned, lost",
    ("pool", "state"),
)
SLOTS: Final = computed(
    "tunery_pool_slots",
    "Slots (GPUs) of nodes that are up: offered (they work), and leased by works that hold them",
    ("pool", "state"),
)
FAULTY: Final = computed(
    "tunery_pool_devices_faulty",
    "Devices of nodes that are up and get no new leases, by what is wrong with them",
    ("pool", "cause"),
)
JOBS: Final = computed("tunery_jobs_open", "Jobs that have not ended, by phase", ("phase",))
HELD: Final = computed(
    "tunery_held_gpu_seconds",
    "Holds of open jobs, less what they have used of them",
    unit="gpu-seconds",
)
SESSIONS: Final = computed(
    "tunery_sessions_open", "Sessions that have not ended: open, ending", ("state",)
)
COMMANDS_WAITING: Final = computed(
    "tunery_session_commands_waiting",
    "Commands of sessions that are not answered, also where the session waits for its slot",
)
TENANTS: Final = computed("tunery_tenants", "Tenants: active, suspended", ("state",))

JOBS_ENDED: Final = counter("tunery_jobs_ended_total", "Jobs that ended, by outcome", ("outcome",))
ATTEMPTS_ENDED: Final = counter(
    "tunery_attempts_ended_total",
    "Attempts that ended, by outcome and cause (empty where nothing failed)",
    ("outcome", "cause"),
)
WAIT_SECONDS: Final = histogram(
    "tunery_pool_wait_seconds",
    "Time of a placement in the queue until its grant, by the pool's clock. Of placements that "
    "were queued before this process took over there is no value",
    ("lane",),
    (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 57_600),
)
BILLED: Final = counter(
    "tunery_billed_gpu_seconds_total", "Use that is billed, before credits", unit="gpu-seconds"
)
CREDITED: Final = counter(
    "tunery_credited_gpu_seconds_total",
    "Use that is given back, by cause",
    ("cause",),
    "gpu-seconds",
)


BUDGETS_REACHED: Final = counter(
    "tunery_budget_thresholds_total",
    "Monthly budgets that use and holds have reached a share of, in percent",
    ("percent",),
)
for _percent in THRESHOLDS:
    BUDGETS_REACHED.labels(str(_percent))  # 0: so that the first is seen as growth


class PoolMeter:
    """Counts what decisions of `pool` did. Each is counted by the process that made it."""

    def __init__(self) -> None:
        self._queued: dict[str, tuple[str, Ms]] = {}  # job id → lane, time; one open for each job
        for cause in get_args(CreditCause):
            CREDITED.labels(cause)  # 0: so that the first is seen as growth

    def count(self, settled: Settled) -> None:
        """Count the events of a decision that was read back."""
        for event in settled.events:
            match event:
                case PlacementQueued(placement=placement):
                    self._queued[placement.job_id] = (placement.lane, settled.at)
                case LeaseGranted(lease=lease):
                    self._observe_wait(lease.job_id, settled.at)
                case PlacementClosed(job_id=job_id, end=end):
                    self._queued.pop(job_id, None)
                    ATTEMPTS_ENDED.labels(end.outcome, end.cause or "").inc()
                case UsageSliced(billable_gpu_ms=gpu_ms):
                    BILLED.inc(gpu_ms / 1_000)
                case UsageCredited(lost_gpu_ms=gpu_ms, cause=cause):
                    CREDITED.labels(cause).inc(gpu_ms / 1_000)
                case _:
                    pass

    def _observe_wait(self, job_id: str, at: Ms) -> None:
        queued = self._queued.pop(job_id, None)
        if queued is not None:
            lane, since = queued
            WAIT_SECONDS.labels(lane).observe((at - since) / 1_000)


def count_jobs(settled: Settled) -> None:
    """Count jobs that a decision of `job` ended, and budgets that it filled."""
    for event in settled.events:
        match event:
            case JobEnded(outcome=outcome):
                JOBS_ENDED.labels(outcome).inc()
            case BudgetThresholdReached(alert=alert):
                BUDGETS_REACHED.labels(str(alert.percent)).inc()
            case _:
                pass


def job_figures(host: AggregateHost[Tenants]) -> Iterator[StateValue]:
    """Yield the figures of the partitions of `job` that this process owns."""
    for state in host.settled_states():
        yield from figures_of_tenants(state)


def pool_figures(host: AggregateHost[Pools]) -> Iterator[StateValue]:
    """Yield the figures of the partitions of `pool` that this process owns."""
    for state in host.settled_states():
        yield from figures_of_pools(state)


def session_figures(host: AggregateHost[Sessions]) -> Iterator[StateValue]:
    """Yield the figures of the partitions of `session` that this process owns."""
    for state in host.settled_states():
        yield from figures_of_sessions(state)


def figures_of_sessions(sessions: Sessions) -> Iterator[StateValue]:
    """Sessions of one partition that have not ended."""
    still_open = [each for each in sessions.values() if each.closed_at is None]
    states = Counter("ending" if each.ending else "open" for each in still_open)
    yield from _counted(SESSIONS, states)
    yield StateValue(COMMANDS_WAITING, (), sum(each.waiting for each in still_open))


def figures_of_pools(pools: Pools) -> Iterator[StateValue]:
    """Yield the figures of pools that jobs run in. `GLOBAL` is none: it has data for all pools."""
    for name, pool in pools.items():
        if name != GLOBAL:
            yield from figures_of_pool(name, pool)


def figures_of_tenants(tenants: Tenants) -> Iterator[StateValue]:
    """Jobs and money of one partition."""
    phases: Counter[str] = Counter()
    standings: Counter[str] = Counter()
    held_gpu_ms = 0
    for tenant in tenants.values():
        standings["suspended" if tenant.suspended else "active"] += 1
        for job in tenant.jobs.values():
            phases[job.phase] += 1
            if job.hold is not None:
                held_gpu_ms += max(0, job.hold.hold_gpu_ms - job.counted_gpu_ms)
    yield from _counted(JOBS, phases)
    yield from _counted(TENANTS, standings)
    yield StateValue(HELD, (), held_gpu_ms / 1_000)


def figures_of_pool(name: str, pool: Pool) -> Iterator[StateValue]:
    """Queue, leases and nodes of one pool."""
    waiting: Counter[str] = Counter()
    lacking: Counter[tuple[str, str]] = Counter()
    oldest: dict[str, float] = {}
    for each in pool.waiting.values():
        lane, at = each.placement.lane, each.placement.first_submitted_at / 1_000
        waiting[lane] += 1
        lacking[lane, each.placement.device] += each.placement.slots
        oldest[lane] = min(at, oldest.get(lane, at))
    yield from _counted(WAITING, waiting, name)
    yield from (StateValue(LACKING, (name, *of), slots) for of, slots in lacking.items())
    yield from (StateValue(OLDEST_WAIT, (name, lane), at) for lane, at in oldest.items())
    leases = tuple(pool.leases.values())
    yield from _counted(LEASES, Counter(map(lease_state, leases)), name)
    nodes = [node for node in pool.nodes.values() if node.standing != "retired"]
    yield from _counted(NODES, Counter(map(node_state, nodes)), name)
    up = [node for node in nodes if node.standing == "up"]
    yield StateValue(SLOTS, (name, "offered"), sum(len(node.devices) for node in up))
    faults = Counter(fault.reason.code for node in up for fault in node.faults)
    yield from _counted(FAULTY, faults, name)
    yield StateValue(SLOTS, (name, "leased"), sum(slots_held(leases)))


def slots_held(leases: Iterable[Lease]) -> Iterator[int]:
    """Slots of the members of leases that are not free again."""
    for lease in leases:
        freed = frozenset(lease.freed)
        yield sum(member.slots for member in lease.members if member.node_id not in freed)


def lease_state(lease: Lease) -> str:
    """Return the state in the life of a lease."""
    if lease.closed:
        return "closed"
    if lease.killed_at is not None:
        return "killed"
    if lease.draining:
        return "draining"
    return "granted" if lease.started_at is None else "started"


def node_state(node: Node) -> str:
    """The first that keeps work from a node; "up" if nothing does."""
    if node.standing != "up":
        return node.standing
    signs = {
        "leaving": node.leaving,
        "noticed": node.ends_at is not None,
        "cordoned": node.cordon is not None,
        "joining": node.joining,
    }
    return next((sign for sign, shown in signs.items() if shown), "up")


def _counted(metric: Metric, counts: Mapping[str, int], *before: str) -> Iterator[StateValue]:
    return (StateValue(metric, (*before, value), count) for value, count in counts.items())
