"""Checks of a job against the monthly limits of its tenant.

Used by the decider of admissions, and by the gateway before a submission, so that both agree.
"""

from collections.abc import Iterator

from schemas import errors
from schemas.account import Limits
from schemas.admission import BudgetTerms, BudgetUse
from schemas.envelope import Rejected
from schemas.reasons import refusing
from schemas.submission import Estimate
from schemas.units import GpuMs


def over_hard_limit(limits: Limits, committed: GpuMs, needs: Estimate) -> Rejected | None:
    """Return why a hold does not fit with what the month has used and holds; None: it does."""
    if committed + needs.hold_gpu_ms <= limits.hard_gpu_ms:
        return None
    above = refusing(
        "hard_limit",
        hold_gpu_ms=needs.hold_gpu_ms,
        left_gpu_ms=max(0, limits.hard_gpu_ms - committed),
        limit_gpu_ms=limits.hard_gpu_ms,
    )
    return Rejected(code=errors.HARD_LIMIT, reason=above)


def over_month(
    terms: BudgetTerms, use: BudgetUse, month: str, needs: Estimate
) -> Iterator[Rejected]:
    """Every reason for which a monthly budget, of which `use` is gone or held, refuses a job."""
    hours, amount = terms.max_gpu_ms, terms.max_amount_micro
    if hours is not None and use.used_gpu_ms + use.held_gpu_ms + needs.hold_gpu_ms > hours:
        above = refusing(
            "month_budget_gpu_hours",
            budget=terms.budget_id,
            month=month,
            hold_gpu_ms=needs.hold_gpu_ms,
            used_gpu_ms=use.used_gpu_ms,
            held_gpu_ms=use.held_gpu_ms,
            limit_gpu_ms=hours,
        )
        yield Rejected(code=errors.BUDGET_EXCEEDED, reason=above)
    if amount is None:
        return
    if needs.currency != terms.currency:
        other = refusing(
            "month_budget_currency",
            budget=terms.budget_id,
            currency=needs.currency,
            limit_currency=terms.currency,
        )
        yield Rejected(code=errors.BUDGET_EXCEEDED, reason=other)
    elif use.used_micro + use.held_micro + needs.price_max_micro > amount:
        above = refusing(
            "month_budget_amount",
            budget=terms.budget_id,
            month=month,
            price_max_micro=needs.price_max_micro,
            currency=needs.currency,
            used_micro=use.used_micro,
            held_micro=use.held_micro,
            limit_micro=amount,
        )
        yield Rejected(code=errors.BUDGET_EXCEEDED, reason=above)
