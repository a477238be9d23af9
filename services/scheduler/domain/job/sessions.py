"""Caps of sessions: their raise, and the end of a session that waits at its cap."""

from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Context, Rejected, reject
from schemas.job import Event, RaiseSession, RecordSessionEnding
from schemas.reasons import Failure, refusing
from services.scheduler.domain.job import steps
from services.scheduler.domain.job.admission import reserve
from services.scheduler.domain.job.evolve import evolve_job
from services.scheduler.domain.job.policy import budget_exhausted
from services.scheduler.domain.job.state import OpenJob, TenantJobs
from tunery.plan.estimate import without_rows


def raise_session(tenant: TenantJobs, command: RaiseSession, ctx: Context) -> tuple[Event, ...]:
    """Raise the hold. A session at its cap goes on; a running lease keeps its cap."""
    job = tenant.jobs.get(command.job_id)
    terms = None if job is None else job.spec.session
    if job is None or terms is None:
        return reject(errors.NOT_FOUND, refusing("session_missing", session_id=command.job_id))
    if command.max_tokens < terms.max_tokens or command.max_ms < terms.max_ms:
        lower = refusing("session_lowered", max_tokens=terms.max_tokens, max_ms=terms.max_ms)
        return reject(errors.MALFORMED, lower)
    raised = replace(terms, max_tokens=command.max_tokens, max_ms=command.max_ms)
    if raised == terms:
        return ()
    spec = replace(job.spec, session=raised)
    held = reserve(tenant, job, spec, without_rows(spec.base), ctx.at)
    if isinstance(held, Rejected):
        return (held,)
    has_waited = _waits(job)
    job = evolve_job(job, held)
    if has_waited and job.wanted == "run":
        return (held, *steps.place_attempt(job, "train"))
    if raised.max_tokens > terms.max_tokens and spec.price.token_micro_per_million:
        # its lease would not bill more tokens than it was granted for
        return (held, *steps.close_placement(job, "drain", "cap_raised"))
    return (held,)


def end_waiting_session(tenant: TenantJobs, command: RecordSessionEnding) -> tuple[Event, ...]:
    """End a session that has no process: one at its cap, or paused."""
    job = tenant.jobs.get(command.job_id)
    if job is None or not _waits(job):
        return ()
    if job.wanted == "paused":
        return (steps.end_job(job, "cancelled"),)
    used_up = budget_exhausted()
    return (steps.fail_job(job, Failure(code=used_up.code, reason=used_up.reason)),)


def _waits(job: OpenJob) -> bool:
    """Return whether a session has its inputs and no placement."""
    return job.phase == "queued" and job.open is None
