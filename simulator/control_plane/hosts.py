"""The hosts of a simulated process: scheduler and billing, as in production."""

from typing import Any, Final

from schemas.topics import ACCOUNT, JOB, POOL, SESSION, STREAMS
from services.billing.app import ACCOUNTS, LEDGER
from services.billing.react import react_account
from services.scheduler.app import JOBS, pool_owner
from services.scheduler.app import SESSIONS as SESSION_OWNER
from services.scheduler.react import react_job, react_pool, react_session
from services.scheduler.watch import Watcher
from simulator.control_plane.plan import Size
from simulator.engine.cluster import Cluster, Process
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.journal.ports import HostLimits

NODE_TTL_MS: Final = 18_000
LOOK_MS: Final = 2_800
IDLE_MS_MAX: Final = 40_000


def limits(size: Size) -> HostLimits:
    return HostLimits(
        standby=False,  # the scenario of the core has them
        idle_wait_ms=60_000,
        trim_every_ms=30_000,
        snapshot_every=size.snapshot_every,
        back_off_ms_max=4_000,
        retry_ms=500,
        commit_every_ms=2_000,
    )


def hosts(size: Size, cluster: Cluster, process: Process, *, sessions: bool) -> tuple[Host, ...]:
    """Owners and reactors in every process; one watcher and one projector among them all.

    Several of these would do the same, and their polling would be most of a run.
    """
    scheduler, billing = process.runtime("scheduler"), process.runtime("billing")

    bounds = limits(size)

    def owner(runtime: Any, aggregate: Any) -> AggregateHost[Any]:
        return AggregateHost(
            runtime, aggregate, owner=process.name, fresh_id=process.fresh_id, limits=bounds
        )

    every: tuple[Host, ...] = (
        owner(scheduler, JOBS),
        *pool_owner(scheduler, owner=process.name, fresh_id=process.fresh_id, limits=bounds),
        owner(billing, ACCOUNTS),
        Reactor(scheduler, JOB, react_job, streams=STREAMS, limits=bounds),
        Reactor(scheduler, POOL, react_pool, streams=STREAMS, limits=bounds),
        Reactor(billing, ACCOUNT, react_account, streams=STREAMS, limits=bounds),
    )
    if sessions:
        react = Reactor(scheduler, SESSION, react_session, streams=STREAMS, limits=bounds)
        every = (*every, owner(scheduler, SESSION_OWNER), react)
    if any(isinstance(host, Watcher) for other in cluster.processes for host in other.hosts):
        return every
    watcher = Watcher(scheduler, NODE_TTL_MS, LOOK_MS, IDLE_MS_MAX)
    return (*every, watcher, Projector(billing, LEDGER))
