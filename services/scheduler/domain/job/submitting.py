"""Submission of a job: conditions and hold."""

from schemas import errors
from schemas.envelope import Context, Rejected, reject
from schemas.job import Event, JobSubmitted, PhaseSet, SubmitJob
from schemas.reasons import refusing, waiting
from schemas.records import build_from
from services.scheduler.domain.job.admission import take_hold, tokens_of
from services.scheduler.domain.job.ended import ended_job
from services.scheduler.domain.job.evolve import evolve_tenant
from services.scheduler.domain.job.quota import running, terms_at
from services.scheduler.domain.job.state import TenantJobs


def submit_job(tenant: TenantJobs, command: SubmitJob, ctx: Context) -> tuple[Event, ...]:
    """Accept a job with its hold, or reject it."""
    terms, spec = terms_at(tenant, ctx.at), command.spec
    if terms is None:
        return reject(errors.NOT_FOUND, refusing("limits_missing"))
    if tenant.suspended:
        return reject(errors.SUSPENDED, refusing("tenant_suspended"))
    if command.job_id in tenant.jobs or ended_job(tenant, command.job_id) is not None:
        return reject(errors.ALREADY_EXISTS, refusing("job_exists", job_id=command.job_id))
    if spec.slots < 1:
        return reject(errors.MALFORMED, refusing("slots_below_one"), "slots")
    if spec.price.version != terms.price_version:
        return reject(errors.ILLEGAL_STATE, refusing("prices_changed"))
    if (lane := spec.price.lane) is not None and lane != terms.lane:
        changed = refusing("plan_changed", lane=lane, plan=terms.lane)
        return reject(errors.ILLEGAL_STATE, changed)
    if (limit := terms.limits.concurrency) <= running(tenant):
        return reject(errors.CONCURRENCY_LIMIT, refusing("jobs_at_most", limit=limit))
    submitted = build_from(JobSubmitted, command, terms, spec=spec)
    admitted = _admit(tenant, submitted, command, ctx)
    refused = any(isinstance(event, Rejected) for event in admitted)
    return () if command.dry_run and not refused else admitted


def _admit(
    tenant: TenantJobs, submitted: JobSubmitted, command: SubmitJob, ctx: Context
) -> tuple[Event, ...]:
    """The hold at once where the tokens are known, else when the validation arrives."""
    job = evolve_tenant(tenant, submitted, ctx).jobs[command.job_id]
    tokens = command.tokens
    if tokens is None:
        verdict = next((f for f in tenant.files if f.file_id == command.spec.training_file), None)
        if verdict is None:
            reason = waiting("file_validation")
            return (submitted, PhaseSet(job_id=job.job_id, phase="validating", reason=reason))
        tokens = tokens_of(verdict.accepted, verdict.tokens, command.spec.base)
        if tokens is None:
            code = verdict.code or errors.FILE_REJECTED
            return reject(code, refusing("file_rejected"), "training_file")
    held = take_hold(tenant, job, tokens, ctx.at)
    return (held,) if isinstance(held, Rejected) else (submitted, *held)
