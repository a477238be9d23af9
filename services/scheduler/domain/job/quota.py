"""Arithmetic of budgets: use of a month, what open holds may still use, what is left."""

from immutables import Map
from msgspec.structs import replace

from schemas.account import PlanTerms
from schemas.admission import TENANT_BUDGET, AnswersCharged, BudgetUse
from schemas.pool import Role
from schemas.units import PPM, GpuMs, Micro, Ms, hour_of, month_of
from services.scheduler.domain.job.state import Charge, MonthUse, OpenJob, OpenTerm, TenantJobs
from tunery.billing.periods import period_of
from tunery.plan.estimate import EVAL_SLOTS, eval_hold, is_bounded_by_training
from tunery.plan.price import job_cost


def terms_at(tenant: TenantJobs, at: Ms) -> PlanTerms | None:
    """Return the terms that bind admissions at a moment of the broker's clock."""
    scheduled = tenant.scheduled
    due = scheduled is not None and scheduled.effective_at <= at
    return scheduled.terms if scheduled is not None and due else tenant.terms


def next_turn(tenant: TenantJobs, at: Ms) -> Ms:
    """The first moment after `at` at which a month or another plan begins."""
    month_end = period_of(at).end_ms
    scheduled = tenant.scheduled
    if scheduled is None or scheduled.effective_at <= at:
        return month_end
    return min(month_end, scheduled.effective_at)


def running(tenant: TenantJobs, besides: str | None = None) -> int:
    """Jobs that count against the concurrency limit: wanted to run, or not stopped yet.

    `besides`: a job that does not count.
    """
    return sum(
        job.wanted == "run" or (job.open is not None and bool(job.open.node_ids))
        for job in tenant.jobs.values()
        if job.job_id != besides
    )


def rest_gpu_ms(job: OpenJob) -> GpuMs:
    """The unused rest of the job's hold."""
    return 0 if job.hold is None else max(0, job.hold.hold_gpu_ms - job.counted_gpu_ms)


def rest_micro(job: OpenJob) -> Micro:
    """Return the highest price of the unused rest of a job's hold."""
    if job.hold is None:
        return 0
    counted = job_cost(max(0, job.counted_micro_gpu_ms), job.counted_tokens, job.spec.price)
    return max(0, job.hold.price_max_micro - counted)


def term_rest_gpu_ms(term: OpenTerm) -> GpuMs:
    """The unused rest of the hold of a replica's term."""
    return max(0, term.hold_gpu_ms - term.counted_gpu_ms)


def term_rest_micro(term: OpenTerm) -> Micro:
    """Return the highest price of the unused rest of the hold of a replica's term."""
    return max(0, term.price_max_micro - job_cost(max(0, term.counted_micro_gpu_ms), 0, term.price))


def charged_micro(charge: Charge) -> Micro:
    """Return the charge of a job so far, rounded as on invoices: never above its hold's price."""
    return job_cost(max(0, charge.time), charge.tokens, charge.price)


def window_of(scope: str, hour_utc: int) -> str:
    """Key of the use of a tenant (TENANT_BUDGET) or an API key in the month of an hour."""
    return f"{scope}/{month_of(hour_utc)}"


def month_standing(tenant: TenantJobs, scope: str, currency: str, at: Ms) -> BudgetUse:
    """Return what a scope has used in the month of `at`, and what open holds may add to it.

    Every monthly limit is compared with this: the plan's, a key's cap, a budget.

    scope: TENANT_BUDGET for all jobs and answers, or the API key whose jobs and answers count.
    """
    use = tenant.use.get(window_of(scope, hour_of(at)), MonthUse())
    jobs = [job for job in tenant.jobs.values() if scope in (TENANT_BUDGET, job.key_id)]
    terms = [
        each for each in tenant.serving_terms.values() if scope in (TENANT_BUDGET, each.key_id)
    ]
    return BudgetUse(
        used_gpu_ms=use.gpu_ms,
        held_gpu_ms=sum(map(rest_gpu_ms, jobs)) + sum(map(term_rest_gpu_ms, terms)),
        used_micro=use.amounts.get(currency, 0),
        held_micro=sum(rest_micro(job) for job in jobs if job.spec.price.currency == currency)
        + sum(term_rest_micro(term) for term in terms if term.price.currency == currency),
    )


def with_use(
    tenant: TenantJobs, charge: Charge | None, hour_utc: int, gpu_ms: GpuMs, micro: Micro
) -> Map[str, MonthUse]:
    """The use of the tenant, and of the job's API key, after more of it; below 0: a credit."""
    use, key_id = tenant.use, None if charge is None else charge.key_id
    for scope in (TENANT_BUDGET,) if key_id is None else {TENANT_BUDGET, key_id}:
        window = window_of(scope, hour_utc)
        before = use.get(window, MonthUse())
        amounts = before.amounts
        if charge is not None and micro:
            currency = charge.price.currency
            amounts = amounts.set(currency, amounts.get(currency, 0) + micro)
        use = use.set(window, replace(before, gpu_ms=before.gpu_ms + gpu_ms, amounts=amounts))
    return use


def with_answers(tenant: TenantJobs, charged: AnswersCharged) -> Map[str, MonthUse]:
    """The use of the tenant, and of each API key, after answers; their fractions add up."""
    use = tenant.use
    for cost in charged.costs:
        for scope in (TENANT_BUDGET, cost.key_id):
            window, currency = window_of(scope, charged.hour_utc), cost.currency
            before = use.get(window, MonthUse())
            more, rest = divmod(before.millionths.get(currency, 0) + cost.millionths, PPM)
            amount = before.amounts.get(currency, 0) + cost.micro + more
            after = replace(
                before,
                amounts=before.amounts.set(currency, amount),
                millionths=before.millionths.set(currency, rest),
            )
            use = use.set(window, after)
    return use


def slots_of(job: OpenJob, role: Role) -> int:
    """Return the number of slots of an attempt of the job."""
    return job.spec.slots if role == "train" else EVAL_SLOTS


def attempt_gpu_ms_max(job: OpenJob, role: Role) -> GpuMs:
    """Cap of the job's next attempt: hold − billable + lost, less what evaluation will need.

    A whole number of milliseconds on every slot, so that all amounts of a lease are.
    """
    if job.hold is None:
        return 0
    left = job.hold.hold_gpu_ms - job.billable_gpu_ms + job.lost_gpu_ms
    if role == "train":
        left -= eval_hold(job.spec, job.hold)
    slots = slots_of(job, role)
    return left // slots * slots


def billed_gpu_ms_max(job: OpenJob, role: Role) -> GpuMs | None:
    """Most of the next attempt's use that is billed: evaluations cost no more than the training.

    None: no bound but its cap.
    """
    if role != "eval" or job.training_gpu_ms is None or not is_bounded_by_training(job.spec):
        return None
    evaluations = job.billable_gpu_ms - job.lost_gpu_ms - job.training_gpu_ms
    return max(0, job.training_gpu_ms - evaluations)
