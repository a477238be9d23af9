"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence

from schemas.topics import ACCOUNT, POOL
from services.billing.domain.decide import decide
from services.billing.domain.evolve import evolve
from services.billing.domain.state import NOBODY, Tenants
from services.billing.project import LEDGER_DDL, TENANTS_DDL, project_ledger, project_tenants
from services.billing.react import react_account
from tunery.runtime.journal.aggregate import AggregateHost
from tunery.runtime.journal.reactor import Reactor
from tunery.runtime.process import Host, Runtime
from tunery.runtime.verbs import Aggregate
from tunery.runtime.work.digests import Digests
from tunery.runtime.work.projector import Projection, Projector

ACCOUNTS = Aggregate(
    stream=ACCOUNT,
    fold_version=3,  # 3: scopes of keys
    initial=NOBODY,
    state_type=Tenants,
    decide=decide,
    evolve=evolve,
)
LEDGER = Projection(
    name="ledger",
    version=1,
    streams=(POOL,),
    project=project_ledger,
    ddl=LEDGER_DDL,
    tables=("ledger",),
    rebuilds=False,  # money: a journal that is not the one it came from wants a person
)
TENANTS = Projection(
    name="tenants",
    version=1,
    streams=(ACCOUNT,),
    project=project_tenants,
    ddl=TENANTS_DDL,
    tables=("tenants",),
)


async def build(runtime: Runtime) -> Sequence[Host]:
    owner = AggregateHost(runtime, ACCOUNTS)
    return (
        owner,
        Digests(runtime, (owner,)),
        Reactor(runtime, ACCOUNT, react_account),
        Projector(runtime, LEDGER),
        Projector(runtime, TENANTS),
    )
