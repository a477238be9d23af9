"""Monthly budgets: how they are set, what they refuse, and which thresholds are announced."""

from collections.abc import Iterator
from typing import Final, TypeAlias

from schemas import errors
from schemas.admission import (
    TENANT_BUDGET,
    AnswersCharged,
    BudgetAlert,
    BudgetCounted,
    BudgetRemoved,
    BudgetSet,
    BudgetTerms,
    BudgetThresholdReached,
    BudgetUse,
    RemoveBudget,
    SetBudget,
)
from schemas.envelope import Context, Rejected
from schemas.job import Event, HoldTaken, JobEnded, UsageCounted
from schemas.reasons import refusing
from schemas.serving import ServingTermBegun, ServingTermEnded
from schemas.submission import Estimate
from schemas.units import Ms, hour_of, month_of
from services.scheduler.domain.job.ended import ended_job
from services.scheduler.domain.job.evolve import evolve_tenant
from services.scheduler.domain.job.quota import month_standing
from services.scheduler.domain.job.state import TenantJobs
from tunery.plan import limits

BUDGETS_MAX: Final = 1_000
THRESHOLDS: Final = (50, 80, 100)  # percent of a budget
Counting: TypeAlias = (  # what moves totals
    HoldTaken
    | UsageCounted
    | JobEnded
    | BudgetSet
    | ServingTermBegun
    | ServingTermEnded
    | AnswersCharged
)


def change_budget(tenant: TenantJobs, command: SetBudget | RemoveBudget) -> tuple[Event, ...]:
    """Set a budget, or reject it."""
    if isinstance(command, RemoveBudget):
        if command.budget_id in tenant.budgets:
            return (BudgetRemoved(budget_id=command.budget_id),)
        missing = refusing("budget_missing", budget_id=command.budget_id)
        return (Rejected(code=errors.NOT_FOUND, reason=missing, param="id"),)
    terms = command.terms
    bounds = [most for most in (terms.max_gpu_ms, terms.max_amount_micro) if most is not None]
    if not bounds or min(bounds) < 1:
        return (Rejected(code=errors.MALFORMED, reason=refusing("budget_empty")),)
    if terms.budget_id not in tenant.budgets and len(tenant.budgets) >= BUDGETS_MAX:
        full = refusing("budgets_at_most", limit=BUDGETS_MAX)
        return (Rejected(code=errors.ILLEGAL_STATE, reason=full),)
    return () if tenant.budgets.get(terms.budget_id) == terms else (BudgetSet(terms=terms),)


def over_month(tenant: TenantJobs, key_id: str | None, needs: Estimate, at: Ms) -> Rejected | None:
    """Why the budgets of the tenant and of an API key do not allow a hold; None: they do."""
    for budget_id in (TENANT_BUDGET, key_id):
        terms = None if budget_id is None else tenant.budgets.get(budget_id)
        if terms is None:
            continue
        use = budget_use(tenant, terms, at)
        for refusal in limits.over_month(terms, use, month_of(hour_of(at)), needs):
            return refusal
    return None


def budget_use(tenant: TenantJobs, terms: BudgetTerms, at: Ms) -> BudgetUse:
    """Return what a budget has used in the month of `at`, and what open holds may add."""
    return month_standing(tenant, terms.budget_id, terms.currency, at)


def follow_budgets(
    tenant: TenantJobs, events: tuple[Event, ...], ctx: Context
) -> tuple[Event, ...]:
    """New totals of the budgets that these events change, and the thresholds that they reach."""
    if not (tenant.budgets or any(isinstance(event, BudgetSet) for event in events)):
        return ()
    if not any(isinstance(event, Counting) for event in events):
        return ()
    after = tenant
    for event in events:
        after = evolve_tenant(after, event, ctx)
    month, follow_ups = month_of(hour_of(ctx.at)), list[Event]()
    for budget_id in sorted(_affected(tenant, after, events)):
        terms = after.budgets.get(budget_id)
        if terms is None:
            continue
        use = budget_use(after, terms, ctx.at)
        known = tenant.budgets.get(budget_id) == terms
        if not known or use != budget_use(tenant, terms, ctx.at):
            follow_ups.append(BudgetCounted(budget_id=budget_id, month=month, use=use))
            follow_ups.extend(_thresholds(after, terms, use, month))
    return tuple(follow_ups)


def _affected(before: TenantJobs, after: TenantJobs, events: tuple[Event, ...]) -> set[str]:
    """Ids of the budgets that these events may change: of the tenant, and of API keys."""
    budget_ids: set[str | None] = set()
    for event in events:
        if isinstance(event, BudgetSet):
            budget_ids.add(event.terms.budget_id)
        elif isinstance(event, AnswersCharged):
            budget_ids |= {TENANT_BUDGET, *(cost.key_id for cost in event.costs)}
        elif isinstance(event, ServingTermBegun):
            budget_ids |= {TENANT_BUDGET, event.key_id}
        elif isinstance(event, ServingTermEnded):
            term = before.serving_terms.get(event.term_id)
            budget_ids |= {TENANT_BUDGET, None if term is None else term.key_id}
        elif isinstance(event, Counting):
            term = after.serving_terms.get(event.job_id)
            job, ended = after.jobs.get(event.job_id), ended_job(after, event.job_id)
            charge = None if ended is None else ended.charge
            budget_ids |= {
                TENANT_BUDGET,
                None if job is None else job.key_id,
                None if charge is None else charge.key_id,
                None if term is None else term.key_id,
            }
    return {budget_id for budget_id in budget_ids if budget_id is not None}


def _thresholds(
    tenant: TenantJobs, terms: BudgetTerms, use: BudgetUse, month: str
) -> Iterator[BudgetThresholdReached]:
    """Yield the thresholds first reached in this month. Holds count: they may keep other jobs
    out.
    """
    last = tenant.alerts.get(terms.budget_id)
    known_percent = last.percent if last is not None and last.month == month else 0
    shares = (
        (use.used_gpu_ms + use.held_gpu_ms, terms.max_gpu_ms),
        (use.used_micro + use.held_micro, terms.max_amount_micro),
    )
    reached = max(committed * 100 // most for committed, most in shares if most is not None)
    for percent in THRESHOLDS:
        if known_percent < percent <= reached:
            alert = BudgetAlert(budget_id=terms.budget_id, month=month, percent=percent)
            yield BudgetThresholdReached(alert=alert)
