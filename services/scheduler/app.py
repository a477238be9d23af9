"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from schemas.topics import JOB, POOL
from services.scheduler.domain.job.decide import decide as decide_job
from services.scheduler.domain.job.evolve import evolve as evolve_job
from services.scheduler.domain.job.state import INITIAL as NO_TENANTS
from services.scheduler.domain.job.state import Tenants
from services.scheduler.domain.pool.deadlines import earliest
from services.scheduler.domain.pool.decide import decide as decide_pool
from services.scheduler.domain.pool.evolve import evolve as evolve_pool
from services.scheduler.domain.pool.state import INITIAL as NO_POOLS
from services.scheduler.domain.pool.state import Pools
from services.scheduler.enrolling import reacting_with
from services.scheduler.figures import PoolMeter, count_jobs, job_figures, pool_figures
from services.scheduler.react import react_job
from services.scheduler.settings import SchedulerSettings
from services.scheduler.watch import Watcher
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.digests import Digests
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.ports import Runtime
from tunery.runtime.settings import load
from tunery.runtime.verbs import Aggregate, Deadline


def _deadline(state: Pools) -> Deadline | None:
    due = earliest(state)
    return None if due is None else Deadline(*due)


JOBS: Final = Aggregate(
    stream=JOB,
    fold_version=31,  # 31: variants; 30: nodes at fault; 29: anomalies
    initial=NO_TENANTS,
    state_type=Tenants,
    decide=decide_job,
    evolve=evolve_job,
)
POOLS: Final = Aggregate(
    stream=POOL,
    fold_version=31,  # 31: nodes at fault; 30: works of leases; 29: used invitations leave
    initial=NO_POOLS,
    state_type=Pools,
    decide=decide_pool,
    evolve=evolve_pool,
    deadline=_deadline,
)


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service, in the order in which they are stopped. Raises SettingsError."""
    settings = load(SchedulerSettings)
    jobs = AggregateHost(runtime, JOBS, on_settled=count_jobs)
    pools = AggregateHost(runtime, POOLS, on_settled=PoolMeter().count)
    runtime.figures.add(partial(job_figures, jobs))
    runtime.figures.add(partial(pool_figures, pools))
    owners = (jobs, pools)
    return (
        *owners,
        Digests(runtime, owners),
        Reactor(runtime, JOB, react_job),
        Reactor(runtime, POOL, reacting_with(runtime.keys)),
        Watcher(runtime, settings.node_ttl_ms, settings.poll_ms, settings.idle_ms_max),
    )
