"""Commands to other streams that follow from `account`: `job` gets the limits in force."""

from schemas.account import Event, PlanSet, TenantCreated
from schemas.envelope import Header
from schemas.job import SetLimits
from tunery.runtime.verbs import Send


def react_account(header: Header, event: Event) -> tuple[Send, ...]:
    """The limits of a tenant, for `job`, whenever they change."""
    match event:
        case TenantCreated() | PlanSet():
            return (Send("job", header.key, header.tenant, SetLimits(terms=event.terms)),)
        case _:
            return ()
