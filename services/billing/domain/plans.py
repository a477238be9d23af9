"""Plans over time: what binds a tenant's admissions now and from the next month on; suspension."""

from typing import assert_never

from schemas import errors
from schemas.account import (
    Event,
    Limits,
    PlanChange,
    PlanScheduled,
    PlanSet,
    ResumeTenant,
    SetPlan,
    SuspendTenant,
    TenantResumed,
    TenantSuspended,
)
from schemas.envelope import Context, Rejected
from schemas.reasons import refusing
from services.billing.domain.state import AccountState
from tunery.billing.periods import period_of


def decide(
    tenant: AccountState, command: SetPlan | SuspendTenant | ResumeTenant, ctx: Context
) -> tuple[Event, ...]:
    """What follows from an operator's command about what the tenant may do."""
    match command:
        case SetPlan():
            return _set_plan(tenant, command, ctx)
        case SuspendTenant():
            return () if tenant.suspended else (TenantSuspended(),)
        case ResumeTenant():
            return (TenantResumed(),) if tenant.suspended else ()
        case _:
            assert_never(command)


def due_plan(tenant: AccountState, ctx: Context) -> tuple[PlanSet, ...]:
    """The scheduled plan, once its moment has come."""
    scheduled = tenant.scheduled
    if scheduled is None or ctx.at < scheduled.effective_at:
        return ()
    return (PlanSet(terms=scheduled.terms),)


def wrong_limits(limits: Limits) -> tuple[Rejected, ...]:
    """The refusal of limits that contradict each other."""
    if limits.concurrency < 1:
        below = refusing("concurrency_below_one")
        param = "limits.concurrency"
        return (Rejected(code=errors.MALFORMED, reason=below, param=param),)
    if not 0 <= limits.soft_gpu_ms <= limits.hard_gpu_ms:
        disorder = refusing("limits_out_of_order")
        param = "limits.soft_gpu_ms"
        return (Rejected(code=errors.MALFORMED, reason=disorder, param=param),)
    return ()


def _set_plan(tenant: AccountState, command: SetPlan, ctx: Context) -> tuple[Event, ...]:
    """The last change counts. One that is due takes effect before it is replaced."""
    terms = command.terms
    if wrong := wrong_limits(terms.limits):
        return wrong
    due = due_plan(tenant, ctx)
    now = due[0].terms if due else tenant.terms
    pending = None if due else tenant.scheduled
    match command.start:
        case "now":
            unchanged = terms == now and pending is None
            return due if unchanged else (PlanSet(terms=terms),)
        case "next_month":
            change = PlanChange(terms=terms, effective_at=period_of(ctx.at).end_ms)
            return due if change == pending else (*due, PlanScheduled(change=change))
        case _:
            assert_never(command.start)
