"""Sweeps as responses: their configurations, each with its jobs."""

from collections.abc import Mapping
from typing import Any, Literal

from schemas.envelope import Reason
from schemas.sweep import SweepRun, SweepTerms
from schemas.units import HOUR_MS
from services.gateway.jobs.domain.responses import cost_summary
from services.gateway.jobs.domain.statuses import JobStatus, job_status
from services.gateway.jobs.domain.variant_responses import (
    differing_values,
    loss_of,
    loss_of_variant,
)
from services.gateway.views.tables.jobs import JobRow
from services.gateway.views.tables.sweeps import SweepRow, SweepStatus
from services.gateway.web.domain.responses import ListItem, Response, seconds, seconds_or_none
from services.gateway.wording import refusal_words


class SweepJobResponse(Response):
    """The job of a configuration in a rung.

    `status`: null before its turn. `validation_loss`: in nats per token, from its evaluation, or
    from the last evaluation during the training if the job trains several configurations.
    `configurations`: how many its job trains; `amount_micro` is then the cost of all of them.
    `skipped`: why it was not submitted.
    """

    job_id: str
    rung: int
    status: JobStatus | None
    validation_loss: float | None
    fine_tuned_model: str | None
    amount_micro: int
    configurations: int
    skipped: str | None


class SweepTrialResponse(Response):
    """A configuration: its values of what the sweep tries, and its job in each rung."""

    trial: int
    values: dict[str, Any]
    jobs: list[SweepJobResponse]


class SweepResponse(ListItem):
    """A sweep. `rung`: the present one, from 0; `rungs`: optimizer steps of each. `best_job_id`:
    the job with the lowest validation loss in the highest rung. `colocate`: how many
    configurations one job trains in turns at most. `reason`: why it waits with no job open, or
    why it was stopped. Amounts in millionths.
    """

    id: str
    object: Literal["sweep"] = "sweep"
    created_at: int
    ended_at: int | None
    status: SweepStatus
    reason: str | None
    method: str
    model: str
    training_file: str
    at_once: int
    colocate: int
    rung: int
    rungs: list[int]
    max_gpu_hours: float | None
    max_amount_micro: int | None
    best_job_id: str | None
    currency: str
    amount_micro: int
    trials: list[SweepTrialResponse]


def sweep_response(
    row: SweepRow, jobs: Mapping[str, JobRow], skipped: Mapping[str, Reason]
) -> SweepResponse:
    """A sweep with its jobs, and why others were not submitted, both by the ids of jobs."""
    terms = row.terms
    in_turns = {variant.run_id: job for job in jobs.values() for variant in job.spec.variants}
    jobs_of_runs = {**jobs, **in_turns}
    trials = [
        SweepTrialResponse(
            trial=number,
            values=values,
            jobs=[
                _job(run, rung, jobs_of_runs.get(run.job_id), skipped.get(run.job_id))
                for rung, run in enumerate(runs)
            ],
        )
        for number, (runs, values) in enumerate(zip(terms.trials, tried_values(terms), strict=True))
    ]
    budget = terms.budget
    hours = None if budget is None else budget.max_gpu_ms
    has_rungs = bool(terms.survivors)
    return SweepResponse.of(
        row,
        terms,
        created_at=seconds(row.created_at),
        ended_at=seconds_or_none(row.ended_at),
        reason=None if row.reason is None else refusal_words(row.reason),
        model=terms.spec.base.base_id,
        training_file=terms.spec.training_file,
        rung=row.rung or 0,
        rungs=[run.hyper.max_steps for run in terms.trials[0]] if has_rungs else [],
        max_gpu_hours=None if hours is None else hours / HOUR_MS,
        max_amount_micro=None if budget is None else budget.max_amount_micro,
        best_job_id=row.best_job_id or _best(trials, row.rung or 0),
        currency=terms.spec.price.currency,
        amount_micro=sum(cost_summary(job).amount_micro for job in jobs.values()),
        trials=trials,
    )


def tried_values(terms: SweepTerms) -> list[dict[str, Any]]:
    """Return the hyper-parameters of each configuration that are not the same in all of them."""
    return differing_values([runs[0].hyper for runs in terms.trials])


def _job(run: SweepRun, rung: int, row: JobRow | None, skipped: Reason | None) -> SweepJobResponse:
    runs = () if row is None else tuple(variant.run_id for variant in row.spec.variants)
    number = runs.index(run.job_id) if runs else None
    left = None if row is None or row.variant != number else row.model_id
    return SweepJobResponse(
        job_id=run.job_id if row is None else row.id,
        rung=rung,
        status=None if row is None else job_status(row.wanted, row.phase, row.outcome),
        validation_loss=None if row is None else _loss(row, number),
        fine_tuned_model=left,
        amount_micro=0 if row is None else cost_summary(row).amount_micro,
        configurations=max(1, len(runs)),
        skipped=None if skipped is None else refusal_words(skipped),
    )


def _loss(row: JobRow, number: int | None) -> float | None:
    """Return the validation loss of a job, or of one of its variants; None: not known."""
    if number is not None:
        return loss_of_variant(row, number)
    return None if row.gate is None else loss_of(row.gate.adapter_loss_ppm)


def _best(trials: list[SweepTrialResponse], rung: int) -> str | None:
    """The job with the lowest loss so far, in the present rung."""
    measured = [
        (job.validation_loss, trial.trial, job.job_id)
        for trial in trials
        for job in trial.jobs
        if job.rung == rung and job.validation_loss is not None
    ]
    return min(measured)[2] if measured else None
