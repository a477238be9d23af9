"""`/v1/sweeps`: many configurations under one budget. The stream `job` decides what runs when."""

from typing import Annotated, Final

from fastapi import Depends, Request, Response

from schemas import errors, ids
from schemas.ids import JOB as JOB_PREFIX
from schemas.ids import derived_id
from schemas.records import build_from
from schemas.sweep import CancelSweep, SubmitSweep, SweepRun, SweepTerms
from schemas.topics import JOB
from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.domain.requested import budget_of
from services.gateway.jobs.domain.resolve import Facts, Resolved, resolve
from services.gateway.jobs.domain.sweep_responses import SweepResponse, sweep_response
from services.gateway.jobs.domain.sweep_turns import check_turns
from services.gateway.jobs.submission import Intent, Submissions, intent_of
from services.gateway.jobs.sweep_bodies import SweepRequest, configurations, rungs_of, with_values
from services.gateway.views.tables.jobs import JOBS
from services.gateway.views.tables.sweeps import SKIPPED_RUNS, SWEEPS, SweepRow
from services.gateway.web.deps import Caller, Deps, Principal
from services.gateway.web.domain.errors import ApiError, invalid
from services.gateway.web.resources import Resource, each_in_turn
from services.gateway.web.routing import new_router
from tunery.plan.sweeps import Values, survivors

LIMIT: Final = 20
LIMIT_MAX: Final = 100
RUNS_MAX: Final = 512
router = new_router("sweeps", "/v1/sweeps")


async def _respond(deps: Deps, row: SweepRow) -> SweepResponse:
    """A sweep with its jobs as they are now."""
    ids = tuple(run.job_id for runs in row.terms.trials for run in runs)
    jobs = await deps.views.page(JOBS, {"tenant": row.tenant, "id": ids}, limit=RUNS_MAX)
    where = {"tenant": row.tenant, "sweep_id": row.id}
    skipped = await deps.views.page(SKIPPED_RUNS, where, limit=RUNS_MAX)
    return sweep_response(
        row, {job.id: job for job in jobs}, {run.id: run.reason for run in skipped}
    )


SWEEP: Final = Resource(
    noun="sweep",
    table=SWEEPS,
    response=SweepResponse,
    respond=each_in_turn(_respond),
    limit=LIMIT,
    limit_max=LIMIT_MAX,
)
SWEEP.add_list(router, "", "list_sweeps", "List sweeps, newest first.")
SWEEP.add_retrieve(router, "/{sweep_id}", "retrieve_sweep")


@router.post("")
async def create_sweep(
    body: SweepRequest,
    request: Request,
    response: Response,
    deps: WithJobDeps,
    caller: Caller,
    intent: Annotated[Intent, Depends(intent_of)],
) -> SweepResponse:
    """Submit a sweep. Its jobs are submitted one after another, as its budget and the tenant's
    limits allow. It is refused where its first job would be.
    """
    submissions: Submissions = request.app.state.submissions
    sweep_id = deps.fresh(ids.SWEEP)
    facts = await submissions.gather(caller, body.job, sweep_id)
    command = SubmitSweep(terms=sweep_terms(caller, body, facts))
    outcome = await deps.decide(
        caller,
        JOB,
        command,
        idempotency=submissions.idempotency(caller, body, intent),
    )
    if outcome.repeated_of is None:
        return await SWEEP.retrieve(deps, caller.rows, sweep_id)
    response.headers["idempotent-replayed"] = "true"
    where = {"tenant": caller.tenant, "command_id": outcome.repeated_of}
    row = await deps.views.first(SWEEPS, where)
    if row is None:
        text = "The first request with this Idempotency-Key was refused. Send it with a new key."
        raise ApiError(409, errors.IDEMPOTENCY_CONFLICT, text, "Idempotency-Key")
    return await _respond(deps, row)


@router.post("/{sweep_id}/cancel")
async def cancel_sweep(sweep_id: str, deps: WithJobDeps, caller: Caller) -> SweepResponse:
    """Submit no more jobs of a sweep, and cancel those that are open. It can be repeated."""
    row = await SWEEP.find(deps, caller.rows, sweep_id)
    if row.status in ("running", "cancelling"):
        command = CancelSweep(sweep_id=sweep_id)
        await deps.decide(caller, JOB, command)
    return await SWEEP.retrieve(deps, caller.rows, sweep_id)


def sweep_terms(caller: Principal, body: SweepRequest, facts: Facts) -> SweepTerms:
    """Resolve each job of a sweep. Raises ApiError. `facts.job_id`: the sweep's id."""
    sweep_id, rungs, configured = facts.job_id, rungs_of(body), configurations(body)
    trials: list[tuple[SweepRun, ...]] = []
    every: list[Resolved] = []
    for number, values in enumerate(configured):
        runs = []
        for rung, steps in enumerate(rungs or (None,)):
            job_id = JOB_PREFIX + derived_id(sweep_id, str(number), str(rung))
            whole = values if steps is None else {**values, "max_steps": steps}
            resolved = _resolved(body, whole, facts, job_id)
            every.append(resolved)
            runs.append(build_from(SweepRun, resolved.spec, job_id=job_id))
        trials.append(tuple(runs))
    first = every[0]
    if first.tokens is None:
        text = "its rows are being checked: wait until the file is processed"
        raise invalid(text, "job.training_file", errors.ILLEGAL_STATE)
    if first.spec.validation_file is None and not first.spec.validation_fraction_ppm:
        text = "a sweep compares losses on validation rows: keep some, or name a validation_file"
        raise invalid(text, "job.eval.validation_fraction")
    if body.colocate > 1:
        check_turns(every, body.colocate)
    return build_from(
        SweepTerms,
        caller,
        first,
        body,
        sweep_id=sweep_id,
        trials=tuple(trials),
        survivors=survivors(len(trials), len(rungs), body.factor) if rungs else (),
        budget=budget_of(body.budget),
    )


def _resolved(body: SweepRequest, values: Values, facts: Facts, job_id: str) -> Resolved:
    """A job with these values. Raises ApiError that names them."""
    try:
        request = with_values(body.job, values)
        return resolve(request, facts.of_job(job_id))
    except ApiError as error:
        named = ", ".join(f"{name} {value}" for name, value in values.items())
        message = f"With {named}: {error.message}"
        raise ApiError(error.status, error.code, message, error.param, error.headers) from error
