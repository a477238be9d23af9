"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence

from schemas.topics import ACCOUNT, POOL
from services.billing.adapters.ledger import PostgresBooks
from services.billing.adapters.prices import read_books
from services.billing.domain.decide import decide
from services.billing.domain.evolve import evolve
from services.billing.domain.state import INITIAL, Tenants
from services.billing.domain.statements import earliest
from services.billing.effect import close
from services.billing.project import LEDGER_DDL, TENANTS_DDL, project_ledger, project_tenants
from services.billing.react import react_account
from services.billing.settings import BillingSettings
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.digests import Digests
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projection, Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.ports import Runtime
from tunery.runtime.settings import load
from tunery.runtime.store.postgres import pool_of
from tunery.runtime.verbs import Aggregate, Deadline


def _deadline(state: Tenants) -> Deadline | None:
    due = earliest(state)
    return None if due is None else Deadline(*due)


ACCOUNTS = Aggregate(
    stream=ACCOUNT,
    fold_version=7,  # 7: limits of months, billing terms, issued invoices
    initial=INITIAL,
    state_type=Tenants,
    decide=decide,
    evolve=evolve,
    deadline=_deadline,
)
LEDGER = Projection(
    name="ledger",
    version=1,
    streams=(POOL,),
    project=project_ledger,
    ddl=LEDGER_DDL,
    tables=("ledger",),
    rebuilds=False,  # money: a journal that is not the one it came from needs an operator
)
TENANTS = Projection(
    name="tenants",
    version=3,  # 3: months that have ended, billing terms, credit notes
    streams=(ACCOUNT,),
    project=project_tenants,
    ddl=TENANTS_DDL,
    tables=("tenants", "statements", "adjustments", "billing_terms", "credit_notes"),
)


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service, in the order in which they are stopped. Raises SettingsError."""
    owner = AggregateHost(runtime, ACCOUNTS)
    settings = load(BillingSettings)
    books = PostgresBooks(
        runtime.store,
        pool_of(runtime.store),
        read_books(settings.prices_dir),
        settings.seller,
    )
    return (
        owner,
        Digests(runtime, (owner,)),
        Reactor(runtime, ACCOUNT, react_account),
        Projector(runtime, LEDGER),
        Projector(runtime, TENANTS),
        EffectHost(runtime, (close(runtime.log, books),)),
    )
