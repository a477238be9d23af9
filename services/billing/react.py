"""Commands that follow from `account`: limits for `job`, price books for all partitions."""

from schemas.account import (
    PRICES_PARTITION,
    Event,
    ImportPrices,
    PlanScheduled,
    PlanSet,
    PricesImported,
    TenantCreated,
    TenantResumed,
    TenantSuspended,
)
from schemas.admission import (
    SetSuspension,
)
from schemas.envelope import Header
from schemas.job import (
    SetLimits,
)
from schemas.model import GLOBAL
from schemas.topics import PARTITIONS
from tunery.runtime.verbs import Send


def react_account(header: Header, event: Event) -> tuple[Send, ...]:
    """What binds a tenant's admissions, for `job`, whenever it changes; books for everybody."""
    match event:
        case TenantCreated() | PlanSet():
            return (Send("job", header.key, header.tenant, SetLimits(terms=event.terms)),)
        case PlanScheduled(change=change):
            later = SetLimits(terms=change.terms, effective_at=change.effective_at)
            return (Send("job", header.key, header.tenant, later),)
        case TenantSuspended() | TenantResumed():
            suspension = SetSuspension(suspended=isinstance(event, TenantSuspended))
            return (Send("job", header.key, header.tenant, suspension),)
        case PricesImported() if header.partition == PRICES_PARTITION:
            command = ImportPrices(book=event.book, sha256=event.sha256)
            others = (number for number in range(PARTITIONS) if number != PRICES_PARTITION)
            return tuple(
                Send("account", GLOBAL, GLOBAL, command, partition=number) for number in others
            )
        case _:
            return ()
