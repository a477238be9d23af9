"""Usage, holds and limits of a tenant in the read models, and whether a job fits into them.

The decider of submissions has the last word: it knows what was decided a moment ago.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from schemas import errors
from schemas.admission import TENANT_BUDGET, BudgetTerms, BudgetUse
from schemas.envelope import Rejected
from schemas.reasons import refusing
from schemas.submission import Estimate, JobSpec
from schemas.units import HOUR_MS, GpuMs, Ms, hour_of, month_of
from services.gateway.jobs.domain.responses import cost_summary
from services.gateway.jobs.queue_reading import COUNTED
from services.gateway.views.ports import Buckets, IntRange, Views
from services.gateway.views.tables.accounts import BUDGETS, LIMITS, BudgetRow, LimitsRow
from services.gateway.views.tables.jobs import JOBS, USAGE, JobRow
from tunery.plan.estimate import over_budget
from tunery.plan.limits import over_hard_limit, over_month

HOURS_END: Final = 2**31
OPEN_JOBS_MAX: Final = 1_000
NO_USE: Final = BudgetUse(used_gpu_ms=0, held_gpu_ms=0, used_micro=0, held_micro=0)
OPEN: Final = ("validating", "queued", "provisioning", "running", "checkpointing", "evaluating")


@dataclass(frozen=True)
class Standing:
    """Use and limits of a tenant at a moment."""

    limits: LimitsRow | None  # None: there is no such tenant
    running: int  # jobs that count against the concurrency limit
    used_gpu_ms: GpuMs  # used in this month
    held_gpu_ms: GpuMs  # use that open jobs may add
    budgets: Sequence[BudgetRow]  # budgets of the tenant, and of the API key
    at: Ms

    @property
    def committed_gpu_ms(self) -> GpuMs:
        """GPU time of this month that is used, or held for open jobs."""
        return self.used_gpu_ms + self.held_gpu_ms


async def standing_of(views: Views, tenant: str, key_id: str, at: Ms) -> Standing:
    """Read where a tenant stands."""
    limits = await views.first(LIMITS, {"id": tenant})
    running = 0
    for wanted, phases in COUNTED.items():
        where = {"tenant": tenant, "wanted": wanted, "phase": phases}
        running += len(await views.page(JOBS, where, limit=OPEN_JOBS_MAX))
    first = _first_hour(at)
    used = await views.sums(
        USAGE,
        {"tenant": tenant, "hour_utc": IntRange(first, hour_of(at) + 1)},
        Buckets("hour_utc", first, hour_of(at) + 1, HOURS_END),
        by=(),
        of=("billable_gpu_ms",),
        limit=1,
    )
    budgets = [
        row
        for budget_id in (TENANT_BUDGET, key_id)
        if (row := await views.first(BUDGETS, {"tenant": tenant, "id": budget_id})) is not None
    ]
    return Standing(
        limits=limits,
        running=running,
        used_gpu_ms=sum(record["billable_gpu_ms"] for record in used),
        held_gpu_ms=await _held_gpu_ms(views, tenant),
        budgets=budgets,
        at=at,
    )


def _first_hour(at: Ms) -> int:
    """The first hour of the month of a moment, in UTC."""
    hour = hour_of(at)
    while month_of(hour - 1) == month_of(at // HOUR_MS):
        hour -= 1
    return hour


async def _held_gpu_ms(views: Views, tenant: str) -> GpuMs:
    """Return the GPU time that open jobs may still use: their holds less their use."""
    rows = await views.page(JOBS, {"tenant": tenant, "phase": OPEN}, limit=OPEN_JOBS_MAX)
    held = {row.id: row.hold.estimate.hold_gpu_ms for row in rows if row.hold is not None}
    if not held:
        return 0
    used = await views.sums(
        USAGE,
        {"tenant": tenant, "job_id": tuple(held)},
        Buckets("hour_utc", 0, HOURS_END, HOURS_END),
        by=("job_id",),
        of=("billable_gpu_ms",),
        limit=OPEN_JOBS_MAX,
    )
    by_job = {record["job_id"]: record["billable_gpu_ms"] for record in used}
    return sum(max(0, hold - by_job.get(job_id, 0)) for job_id, hold in held.items())


def standing_without(standing: Standing, job: JobRow, key_id: str | None) -> Standing:
    """Return where a tenant would stand without a job that waits: its hold is released.

    key_id: the key that has submitted it
    """
    counted = job.wanted == "run" or job.phase in COUNTED["paused"]
    running = standing.running - (1 if counted else 0)
    if job.hold is None:
        return replace(standing, running=running)
    needed, cost = job.hold.estimate, cost_summary(job)
    gpu_ms = max(0, needed.hold_gpu_ms - cost.billable_gpu_ms)
    micro = max(0, needed.price_max_micro - cost.amount_micro)
    return replace(
        standing,
        running=running,
        held_gpu_ms=max(0, standing.held_gpu_ms - gpu_ms),
        budgets=[
            budget
            if budget.use is None or budget.id not in (TENANT_BUDGET, key_id)
            else structs.replace(
                budget,
                use=structs.replace(
                    budget.use,
                    held_gpu_ms=max(0, budget.use.held_gpu_ms - gpu_ms),
                    held_micro=max(0, budget.use.held_micro - micro),
                ),
            )
            for budget in standing.budgets
        ],
    )


def refusals(standing: Standing, spec: JobSpec, needs: Estimate) -> list[Rejected]:
    """Everything for which a job would be refused now, with the reasons of the decider."""
    if standing.limits is None:
        return [Rejected(code=errors.NOT_FOUND, reason=refusing("limits_missing"))]
    problems: list[Rejected] = []
    if standing.limits.suspended:
        problems.append(Rejected(code=errors.SUSPENDED, reason=refusing("tenant_suspended")))
    limits = standing.limits.limits
    if limits.concurrency <= standing.running:
        full = refusing("jobs_at_most", limit=limits.concurrency)
        problems.append(Rejected(code=errors.CONCURRENCY_LIMIT, reason=full))
    if (refusal := over_hard_limit(limits, standing.committed_gpu_ms, needs)) is not None:
        problems.append(refusal)
    if (why := over_budget(spec.budget, needs)) is not None:
        problems.append(Rejected(code=errors.BUDGET_TOO_SMALL, reason=why, param="budget"))
    for budget in standing.budgets:
        problems += _over_month(budget, needs, standing.at)
    return problems


def _over_month(budget: BudgetRow, needs: Estimate, at: Ms) -> Iterator[Rejected]:
    """Why a monthly budget does not allow a job. Nothing is used yet in a month without a change,
    and what was held before is.
    """
    month, use = month_of(hour_of(at)), budget.use or NO_USE
    if budget.month != month:
        use = structs.replace(use, used_gpu_ms=0, used_micro=0)
    terms = BudgetTerms(
        budget_id=budget.id,
        currency=budget.currency,
        max_gpu_ms=budget.max_gpu_ms,
        max_amount_micro=budget.max_amount_micro,
    )
    return over_month(terms, use, month, needs)
