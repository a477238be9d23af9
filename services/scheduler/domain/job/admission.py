"""Admission: reserve what a job may use (its hold), if the limits of the month allow it."""

from collections.abc import Sequence

from msgspec.structs import replace

from schemas import errors
from schemas.admission import TENANT_BUDGET
from schemas.dataset import SPLIT_SEED, BaseTokens, MixedFile, PinTerms, PrepareSpec, no_rows
from schemas.envelope import Rejected
from schemas.job import DatasetBound, Event, HoldTaken, PhaseSet, PinsWanted
from schemas.model import Base
from schemas.reasons import refusing, waiting
from schemas.submission import Estimate, JobSpec, KeyCap
from schemas.units import Ms
from services.scheduler.domain.job.budgets import over_month
from services.scheduler.domain.job.quota import month_standing, terms_at
from services.scheduler.domain.job.state import OpenJob, TenantJobs
from tunery.plan.estimate import estimate, over_budget
from tunery.plan.limits import over_hard_limit
from tunery.plan.methods import ROWS_OF_METHOD


def tokens_of(accepted: bool, counts: Sequence[BaseTokens], base: Base) -> BaseTokens | None:
    """Return the file's token counts under a base; None: the file cannot be used with it."""
    if not accepted:
        return None
    return next((count for count in counts if count.base_id == base.base_id), None)


def take_hold(
    tenant: TenantJobs, job: OpenJob, tokens: BaseTokens, at: Ms
) -> tuple[Event, ...] | Rejected:
    """The hold and what follows from it, or why there is none.

    The use of a month is what was billed plus what open holds have not used yet, so that the hard
    limit holds in whatever order jobs are admitted and billed.
    """
    spec = job.spec
    hold = reserve(tenant, job, spec, tokens, at)
    if isinstance(hold, Rejected):
        return hold
    reason = waiting("inputs_preparation")
    phase = PhaseSet(job_id=job.job_id, phase="validating", reason=reason)
    if (spec.evaluation is None and spec.session is None) or spec.training_file:
        return (hold, _pins(job), phase)
    prepared = None if spec.evaluation is None else spec.evaluation.prepared
    bound = DatasetBound(job_id=job.job_id, prepared=prepared or no_rows())
    return (hold, bound, _pins(job), phase)


def reserve(
    tenant: TenantJobs, job: OpenJob, spec: JobSpec, tokens: BaseTokens, at: Ms
) -> HoldTaken | Rejected:
    """Return the hold of a job by this specification, or why there is none.

    Where the job has one already, the limits are compared with what is held besides.
    """
    terms = terms_at(tenant, at)
    if terms is None:
        return Rejected(code=errors.NOT_FOUND, reason=refusing("limits_missing"))
    if tenant.suspended:
        return Rejected(code=errors.SUSPENDED, reason=refusing("tenant_suspended"))
    needs = more = estimate(spec, tokens)
    if job.hold is not None:
        more = replace(
            needs,
            hold_gpu_ms=needs.hold_gpu_ms - job.hold.hold_gpu_ms,
            price_max_micro=needs.price_max_micro - job.hold.price_max_micro,
        )
    use = month_standing(tenant, TENANT_BUDGET, needs.currency, at)
    window = use.used_gpu_ms + use.held_gpu_ms
    if (refusal := over_hard_limit(terms.limits, window, more)) is not None:
        return refusal
    if (why := over_budget(spec.budget, needs)) is not None:
        return Rejected(code=errors.BUDGET_TOO_SMALL, reason=why, param="budget")
    if job.cap is not None and (refusal := over_cap(tenant, job.cap, more, at)) is not None:
        return refusal
    if (refusal := over_month(tenant, job.key_id, more, at)) is not None:
        return refusal
    return HoldTaken(
        job_id=job.job_id,
        tokens=tokens,
        estimate=needs,
        overage=window + more.hold_gpu_ms > terms.limits.soft_gpu_ms,
        session=None if job.hold is None else spec.session,
    )


def over_cap(tenant: TenantJobs, cap: KeyCap, needs: Estimate, at: Ms) -> Rejected | None:
    """Why the cap of an API key does not allow a hold now; None: it does."""
    if cap.currency not in ("", needs.currency):
        other = refusing("key_cap_currency", currency=needs.currency, limit_currency=cap.currency)
        return Rejected(code=errors.SPEND_CAP, reason=other)
    use = month_standing(tenant, cap.key_id, needs.currency, at)
    left = cap.spend_cap_micro - use.used_micro - use.held_micro
    if needs.price_max_micro <= left:
        return None
    above = refusing(
        "key_cap",
        price_max_micro=needs.price_max_micro,
        currency=needs.currency,
        left_micro=max(0, left),
        limit_micro=cap.spend_cap_micro,
    )
    return Rejected(code=errors.SPEND_CAP, reason=above)


def _pins(job: OpenJob) -> PinsWanted:
    spec = job.spec
    prepare = PrepareSpec(
        base_id=spec.base.base_id,
        base_sha256=spec.base.sha256,
        max_length=spec.hyper.max_length,
        length_policy=spec.length_policy,
        validation_fraction_ppm=spec.validation_fraction_ppm,
        seed=SPLIT_SEED,
        rows=ROWS_OF_METHOD.get(spec.hyper.method, "answers"),
        reasoning=spec.reasoning,
        chat=spec.chat,
    )
    terms = PinTerms(
        training_file=spec.training_file,
        validation_file=spec.validation_file,
        spec=prepare,
        mixture=tuple(
            MixedFile(file_id=mixed.file_id, weight_ppm=mixed.weight_ppm) for mixed in spec.mixture
        ),
    )
    return PinsWanted(job_id=job.job_id, terms=terms)
