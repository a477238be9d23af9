"""Sweeps: the next job once there is room for it, the next rung, the end, and their budget.

All open sweeps of a tenant are looked through after each of its commands: no list of what may make
room has to be kept.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from immutables import Map
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Context, Reason, Rejected
from schemas.job import Event, SubmitJob
from schemas.reasons import refusing
from schemas.submission import Estimate, Variant
from schemas.sweep import (
    SubmitSweep,
    SweepEnded,
    SweepOutcome,
    SweepRun,
    SweepRungBegun,
    SweepRunSkipped,
    SweepSubmitted,
    SweepTerms,
    SweepWaiting,
)
from services.scheduler.domain.job.evolve import evolve_tenant
from services.scheduler.domain.job.state import OpenSweep, TenantJobs
from services.scheduler.domain.job.submitting import submit_job
from tunery.billing.periods import period_of
from tunery.plan.estimate import estimate
from tunery.plan.micro_batches import rows_at_once
from tunery.plan.sweeps import groups, ranked

SWEEPS_MAX: Final = 16  # of a tenant at once
#: reasons why what is left of a sweep is not what its tenant has agreed to
CHANGED: Final = ("prices_changed", "plan_changed")


def submit_sweep(tenant: TenantJobs, command: SubmitSweep, ctx: Context) -> tuple[Event, ...]:
    """A sweep with its first job, or why there is none. Refused where that job would be."""
    terms = command.terms
    rungs = {len(runs) for runs in terms.trials}
    if rungs != {len(terms.survivors) + 1} or min(terms.at_once, terms.colocate) < 1:
        return (Rejected(code=errors.MALFORMED, reason=refusing("sweep_empty")),)
    if terms.sweep_id in tenant.sweeps:
        exists = refusing("sweep_exists", sweep_id=terms.sweep_id)
        return (Rejected(code=errors.ALREADY_EXISTS, reason=exists),)
    if len(tenant.sweeps) >= SWEEPS_MAX:
        full = refusing("sweeps_at_most", limit=SWEEPS_MAX)
        return (Rejected(code=errors.CONCURRENCY_LIMIT, reason=full),)
    submitted = SweepSubmitted(terms=terms)
    opened = evolve_tenant(tenant, submitted, ctx)
    sweep = opened.sweeps[terms.sweep_id]
    first = _try(opened, sweep, _pending(sweep)[0], ctx)
    refusal = _refusal(first)
    if refusal is not None and refusal.code != errors.CONCURRENCY_LIMIT:
        return (refusal,)
    return (submitted,)


def follow_sweeps(tenant: TenantJobs, events: Sequence[Event], ctx: Context) -> tuple[Event, ...]:
    """Return the events that follow for the sweeps of a tenant: their next jobs, rungs and ends."""
    after = _after(tenant, events, ctx)
    follow_ups: list[Event] = []
    for sweep_id in sorted(after.sweeps):
        while (sweep := after.sweeps.get(sweep_id)) is not None:
            step = _next_step(after, sweep, ctx)
            if not step:
                break
            follow_ups.extend(step)
            after = _after(after, step, ctx)
    return tuple(follow_ups)


def _after(tenant: TenantJobs, events: Iterable[Event], ctx: Context) -> TenantJobs:
    for event in events:
        tenant = evolve_tenant(tenant, event, ctx)
    return tenant


def _next_step(tenant: TenantJobs, sweep: OpenSweep, ctx: Context) -> tuple[Event, ...]:
    """The next step of a sweep; nothing while it waits. Each step brings it nearer to its
    end, so there is a last one.
    """
    pending = _pending(sweep)
    if not pending:
        return () if sweep.open_runs else _end_rung(sweep)
    if len(sweep.open_runs) >= sweep.terms.at_once:
        return ()
    decided = _try(tenant, sweep, pending[0], ctx)
    refusal = _refusal(decided)
    if refusal is None:
        return decided
    if sweep.open_runs:  # whose end may leave more
        return ()
    reason = refusal.reason or Reason(code=refusal.code)
    if reason.code in CHANGED:
        return (_end(sweep, "stopped", reason),)
    if refusal.code == errors.SUSPENDED or _fits_an_empty_month(tenant, sweep, pending[0], ctx):
        waiting = SweepWaiting(sweep_id=sweep.terms.sweep_id, reason=reason)
        return () if sweep.waits_for == reason.code else (waiting,)
    return tuple(
        SweepRunSkipped(sweep_id=sweep.terms.sweep_id, job_id=run.job_id, reason=reason)
        for run in pending[0]
    )


def _pending(sweep: OpenSweep) -> list[tuple[SweepRun, ...]]:
    """Jobs of the present rung that are neither submitted nor skipped, each by its runs."""
    if sweep.is_cancelled:
        return []
    known = {*sweep.open_runs, *sweep.ended_runs, *sweep.skipped}
    runs = [sweep.terms.trials[trial][sweep.rung] for trial in sweep.trials]
    jobs = groups(runs, sweep.terms.colocate)
    return [job for job in jobs if job[0].job_id not in known]


def _refusal(decided: Sequence[Event]) -> Rejected | None:
    return next((event for event in decided if isinstance(event, Rejected)), None)


def _try(
    tenant: TenantJobs, sweep: OpenSweep, runs: Sequence[SweepRun], ctx: Context
) -> tuple[Event, ...]:
    """A job of a sweep as if its tenant submitted it now."""
    command = _submission(sweep.terms, runs)
    if command.tokens is not None and sweep.terms.budget is not None:
        needs = estimate(command.spec, command.tokens)
        reason = _over_budget(tenant, sweep, needs)
        if reason is not None:
            return (Rejected(code=errors.BUDGET_TOO_SMALL, reason=reason, param="budget"),)
    return submit_job(tenant, command, ctx)


def _fits_an_empty_month(
    tenant: TenantJobs, sweep: OpenSweep, runs: Sequence[SweepRun], ctx: Context
) -> bool:
    """Return whether a refused job would fit into a month in which its tenant has nothing else.

    A scheduled plan with other prices stops the sweep when it comes into force, not before.
    """
    alone = replace(tenant, jobs=Map(), serving_terms=Map(), suspended=False)
    next_month = replace(ctx, at=period_of(ctx.at).end_ms)
    refusal = _refusal(_try(alone, sweep, runs, next_month))
    return refusal is None or (refusal.reason is not None and refusal.reason.code in CHANGED)


def _submission(terms: SweepTerms, runs: Sequence[SweepRun]) -> SubmitJob:
    """A job with the ids of its first run; of several it trains each."""
    first, shares = runs[0], terms.colocate > 1
    shown = max(runs, key=lambda run: rows_at_once(run.hyper)) if shares else first
    spec = replace(
        terms.spec,
        hyper=shown.hyper,
        auto=shown.auto,
        model_id=first.model_id,
        configuration="" if shares else first.configuration,
        sweep_id=terms.sweep_id,
        variants=tuple(_variant(run) for run in runs) if shares else (),
    )
    return SubmitJob(
        job_id=first.job_id, spec=spec, tokens=terms.tokens, cap=terms.cap, key_id=terms.key_id
    )


def _variant(run: SweepRun) -> Variant:
    return Variant(
        run_id=run.job_id, hyper=run.hyper, auto=run.auto, configuration=run.configuration
    )


def _over_budget(tenant: TenantJobs, sweep: OpenSweep, needs: Estimate) -> Reason | None:
    """Why the budget of a sweep does not allow one more job: what has ended counts with its use,
    what is open with its whole hold, which its use never passes.
    """
    budget = sweep.terms.budget
    if budget is None:
        return None
    ended = sweep.ended_runs.values()
    held = [
        job.hold
        for job_id in sweep.open_runs
        if (job := tenant.jobs.get(job_id)) is not None and job.hold is not None
    ]
    used_gpu_ms, held_gpu_ms = sum(run.gpu_ms for run in ended), sum(h.hold_gpu_ms for h in held)
    hours, amount = budget.max_gpu_ms, budget.max_amount_micro
    if hours is not None and used_gpu_ms + held_gpu_ms + needs.hold_gpu_ms > hours:
        return refusing(
            "sweep_budget_gpu_hours",
            hold_gpu_ms=needs.hold_gpu_ms,
            used_gpu_ms=used_gpu_ms,
            held_gpu_ms=held_gpu_ms,
            limit_gpu_ms=hours,
        )
    used_micro, held_micro = sum(run.micro for run in ended), sum(h.price_max_micro for h in held)
    if amount is not None and used_micro + held_micro + needs.price_max_micro > amount:
        return refusing(
            "sweep_budget_amount",
            price_max_micro=needs.price_max_micro,
            currency=needs.currency,
            used_micro=used_micro,
            held_micro=held_micro,
            limit_micro=amount,
        )
    return None


def _end_rung(sweep: OpenSweep) -> tuple[Event, ...]:
    """The next rung with the best configurations of this one, or the end of the sweep."""
    terms, rung = sweep.terms, sweep.rung
    best = _ranked(sweep, rung)
    if rung < len(terms.survivors) and best and not sweep.is_cancelled:
        chosen = tuple(best[: terms.survivors[rung]])
        return (SweepRungBegun(sweep_id=terms.sweep_id, rung=rung + 1, trials=chosen),)
    return (_end(sweep, "cancelled" if sweep.is_cancelled else "completed"),)


def _end(sweep: OpenSweep, outcome: SweepOutcome, reason: Reason | None = None) -> SweepEnded:
    terms = sweep.terms
    ranked_runs = (
        sweep.ended_runs[terms.trials[trial][last].job_id]
        for last in range(sweep.rung, -1, -1)
        for trial in _ranked(sweep, last)
    )
    return SweepEnded(
        sweep_id=terms.sweep_id,
        outcome=outcome,
        best_job_id=next((run.published_by for run in ranked_runs if run.published_by), None),
        reason=reason,
    )


def _ranked(sweep: OpenSweep, rung: int) -> list[int]:
    """Configurations whose loss was measured in a rung, the lowest first."""
    losses = {
        trial: run.loss_ppm
        for trial, runs in enumerate(sweep.terms.trials)
        if (run := sweep.ended_runs.get(runs[rung].job_id)) is not None and run.loss_ppm is not None
    }
    return ranked(losses)
