"""Commands to other streams that follow from `account`: `job` gets the limits in force."""

from schemas.account import (
    Event,
    PlanScheduled,
    PlanSet,
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
from tunery.runtime.verbs import Send


def react_account(header: Header, event: Event) -> tuple[Send, ...]:
    """What binds a tenant's admissions, for `job`, whenever it changes."""
    match event:
        case TenantCreated() | PlanSet():
            return (Send("job", header.key, header.tenant, SetLimits(terms=event.terms)),)
        case PlanScheduled(change=change):
            later = SetLimits(terms=change.terms, effective_at=change.effective_at)
            return (Send("job", header.key, header.tenant, later),)
        case TenantSuspended() | TenantResumed():
            suspension = SetSuspension(suspended=isinstance(event, TenantSuspended))
            return (Send("job", header.key, header.tenant, suspension),)
        case _:
            return ()
