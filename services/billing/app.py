"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence
from functools import partial

from schemas.topics import ACCOUNT, DATASET, MODEL, POOL, SESSION, STREAMS
from schemas.units import Ms
from services.billing.adapters.ledger import PostgresBooks
from services.billing.adapters.prices import PriceImport, read_imports
from services.billing.domain import batches, statements
from services.billing.domain.decide import decide
from services.billing.domain.evolve import evolve
from services.billing.domain.state import INITIAL, Accounts
from services.billing.effect import close, destroy_key
from services.billing.figures import account_figures
from services.billing.giving import give_keys, project_lease_keys
from services.billing.project import (
    ANSWERS_DDL,
    LEDGER_DDL,
    STORAGE_DDL,
    TENANTS_DDL,
    project_ledger,
    project_storage,
    project_tenants,
)
from services.billing.react import react_account
from services.billing.reports import LEDGER_VIEWS, STORAGE_VIEWS, TENANTS_VIEWS
from services.billing.settings import BillingSettings
from tunery.platform.ports import Runtime
from tunery.platform.settings import load
from tunery.platform.store.postgres import pool_of
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.digests import Digests
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projection, Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.verbs import Aggregate, deadlines_by_key


def _deadline_of(state: Accounts, tenant: str) -> Ms | None:
    account = state.tenants.get(tenant)
    if account is None:
        return None
    moments = (statements.deadline_of(account), batches.deadline_of(account))
    return min((moment for moment in moments if moment is not None), default=None)


ACCOUNTS = Aggregate(
    stream=ACCOUNT,
    fold_version=21,  # 21: imports; 20: batches; 18: prices of plans
    initial=INITIAL,
    state_type=Accounts,
    decide=decide,
    evolve=evolve,
    deadlines=deadlines_by_key(lambda state: state.tenants, _deadline_of),
)
LEDGER = Projection(
    name="ledger",
    version=1,
    streams=(POOL,),
    project=project_ledger,
    ddl=LEDGER_DDL,
    once_built=LEDGER_VIEWS,
    tables=("ledger",),
    rebuilds=False,  # money: a journal that is not the one it came from needs an operator
)
STORAGE = Projection(
    name="storage",
    version=2,  # 2: what sessions saved
    streams=(DATASET, MODEL, SESSION),
    project=project_storage,
    ddl=STORAGE_DDL,
    once_built=STORAGE_VIEWS,
    tables=("storage",),
)
TENANTS = Projection(
    name="tenants",
    version=8,  # 8: price books of answers and storage; 7: months from which terms hold
    streams=(ACCOUNT,),
    project=project_tenants,
    ddl=TENANTS_DDL + ANSWERS_DDL,
    once_built=TENANTS_VIEWS,
    tables=(
        *("tenants", "statements", "adjustments", "billing_terms", "credit_notes", "prices"),
        *("answers", "held_books"),
    ),
)
LEASE_KEYS = Projection(name="lease_keys", version=1, streams=(POOL,), project=project_lease_keys)


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service, in the order in which they are stopped. Raises SettingsError."""
    owner = AggregateHost(runtime, ACCOUNTS)
    runtime.figures.add(partial(account_figures, owner))
    settings = load(BillingSettings)
    books = PostgresBooks(runtime.store, pool_of(runtime.store), settings.seller)
    tenants = Projector(runtime, TENANTS)
    return (
        owner,
        Digests(runtime, (owner,)),
        Reactor(runtime, ACCOUNT, react_account, streams=STREAMS),
        Projector(runtime, LEDGER),
        Projector(runtime, STORAGE),
        Projector(runtime, LEASE_KEYS),
        tenants,
        PriceImport(runtime, tenants, read_imports(settings.prices_dir)),
        EffectHost(
            runtime,
            (
                close(runtime.log, books),
                destroy_key(runtime.seal),
                give_keys(runtime.seal),
            ),
        ),
    )
