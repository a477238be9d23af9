"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from schemas.topics import JOB, POOL, SESSION, STREAMS
from schemas.units import Ms
from services.scheduler.assigning import Assigning
from services.scheduler.domain.job.decide import decide as decide_job
from services.scheduler.domain.job.evolve import evolve as evolve_job
from services.scheduler.domain.job.state import INITIAL as NO_TENANTS
from services.scheduler.domain.job.state import Tenants
from services.scheduler.domain.pool.deadlines import DEADLINES
from services.scheduler.domain.pool.decide import decide as decide_pool
from services.scheduler.domain.pool.evolve import evolve as evolve_pool
from services.scheduler.domain.pool.state import INITIAL as NO_POOLS
from services.scheduler.domain.pool.state import Pools
from services.scheduler.domain.session.decide import decide as decide_session
from services.scheduler.domain.session.evolve import due_at, tenant_of
from services.scheduler.domain.session.evolve import evolve as evolve_session
from services.scheduler.domain.session.state import INITIAL as NO_SESSIONS
from services.scheduler.domain.session.state import Sessions
from services.scheduler.enrolling import reacting_with
from services.scheduler.figures import (
    PoolMeter,
    count_jobs,
    job_figures,
    pool_figures,
    session_figures,
)
from services.scheduler.react import react_job, react_session
from services.scheduler.settings import SchedulerSettings
from services.scheduler.watch import Watcher
from tunery.platform.ports import Runtime
from tunery.platform.settings import load
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.digests import Digests
from tunery.runtime.hosts.owner import Settled
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.journal.ports import JournalPorts
from tunery.runtime.verbs import Aggregate, deadlines_by_key


def _review_at(state: Tenants, tenant: str) -> Ms | None:
    return None if tenant not in state else state[tenant].review_at


JOBS: Final = Aggregate(
    stream=JOB,
    fold_version=40,  # 40: cost of trainings; 39: sessions that are raised
    initial=NO_TENANTS,
    state_type=Tenants,
    decide=decide_job,
    evolve=evolve_job,
    deadlines=deadlines_by_key(lambda state: state, _review_at),
)
POOLS: Final = Aggregate(
    stream=POOL,
    fold_version=42,  # 42: handovers of leases; 41: bounds of bills
    initial=NO_POOLS,
    state_type=Pools,
    decide=decide_pool,
    evolve=evolve_pool,
    deadlines=DEADLINES,
)
SESSIONS: Final = Aggregate(
    stream=SESSION,
    fold_version=4,  # 4: tokens by kind, bytes saved; 3: sessions that have ended
    initial=NO_SESSIONS,
    state_type=Sessions,
    decide=decide_session,
    evolve=evolve_session,
    deadlines=deadlines_by_key(lambda state: state, due_at),
    tenant_of=tenant_of,
)


def pool_owner(
    runtime: JournalPorts,
    *,
    on_settled: Callable[[Settled], None] = lambda _: None,
    **options: Any,
) -> tuple[AggregateHost[Pools], Assigning]:
    """The owner of pools, and what writes to their nodes. options: of an `AggregateHost`."""

    def settle(settled: Settled) -> None:
        on_settled(settled)
        assigning.note(settled)

    pools = AggregateHost(runtime, POOLS, on_settled=settle, **options)
    assigning = Assigning(runtime, lambda: pools.owners)
    return pools, assigning


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service, in the order in which they are stopped. Raises SettingsError."""
    settings = load(SchedulerSettings)
    jobs = AggregateHost(runtime, JOBS, on_settled=count_jobs)
    pools, assigning = pool_owner(runtime, on_settled=PoolMeter().count)
    runtime.figures.add(partial(job_figures, jobs))
    runtime.figures.add(partial(pool_figures, pools))
    sessions = AggregateHost(runtime, SESSIONS)
    runtime.figures.add(partial(session_figures, sessions))
    owners = (jobs, pools, sessions)
    return (
        *owners,
        assigning,
        Digests(runtime, owners),
        Reactor(runtime, JOB, react_job, streams=STREAMS),
        Reactor(runtime, POOL, reacting_with(runtime.keys), streams=STREAMS),
        Reactor(runtime, SESSION, react_session, streams=STREAMS),
        Watcher(runtime, settings.node_ttl_ms, settings.poll_ms, settings.idle_ms_max),
    )
