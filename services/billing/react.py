"""What other streams hear of `account`: `job` admits by the limits that are in force."""

from schemas.account import Event, PlanSet, TenantCreated
from schemas.envelope import Header
from schemas.job import SetLimits
from tunery.runtime.verbs import Send


def react_account(header: Header, event: Event) -> tuple[Send, ...]:
    match event:
        case TenantCreated() | PlanSet():
            limits = SetLimits(
                lane=event.plan, limits=event.limits, price_version=event.price_version
            )
            return (Send("job", header.key, header.tenant, limits),)
        case _:
            return ()
