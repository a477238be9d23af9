"""Limits of admission besides the plan, in the stream `job`: suspension, monthly budgets."""

from typing import Final, TypeAlias

from schemas.answers import AnswerCost
from schemas.envelope import Message, Part
from schemas.units import GpuMs, Micro

TENANT_BUDGET: Final = "tenant"  # id of the budget of all that a tenant uses


class BudgetTerms(Part):
    """Limits that a budget sets for jobs and answers in each calendar month (UTC)."""

    budget_id: str  # TENANT_BUDGET, or the API key whose jobs and answers the budget limits
    currency: str  # currency of the amount; jobs that are priced in another one are refused
    max_gpu_ms: GpuMs | None = None  # limit of GPU time, None: no such limit
    max_amount_micro: Micro | None = None  # limit of the amount, None: no such limit


class BudgetUse(Part):
    """Usage of a budget in a month, and the part of open holds that may still be used."""

    used_gpu_ms: GpuMs  # billable use of jobs and serving less credits
    # held_gpu_ms, held_micro: the unused rest of open holds
    held_gpu_ms: GpuMs
    used_micro: Micro  # price of that use and of answers
    held_micro: Micro


class BudgetAlert(Part):
    """A share of a monthly budget that is used or held."""

    budget_id: str
    month: str  # the calendar month (UTC): "2026-11"
    percent: int  # share of the budget; one of 50, 80 and 100


# --- commands
class SetSuspension(Message):
    """Suspend or resume a tenant; a suspended one cannot start jobs (reaction of account)."""

    suspended: bool  # the tenant may not start jobs


class SetBudget(Message):
    """A monthly budget, in place of the one with its id."""

    terms: BudgetTerms  # the budget


class RemoveBudget(Message):
    """Remove a budget: it binds no more admissions."""

    budget_id: str


class RecordAnswers(Message):
    """Record the cost of answers in the month of `hour_utc` (reaction of account)."""

    hour_utc: int  # hours since the epoch
    costs: tuple[AnswerCost, ...]  # one cost for each API key and currency


# --- events
class AdmissionsReviewed(Message):
    """A month or a plan has begun: what waits for room was tried again."""


class SuspensionSet(Message):
    """A tenant was suspended (it may not submit or resume jobs, or take holds) or resumed."""

    suspended: bool  # the tenant may not start jobs


class BudgetSet(Message):
    """A monthly budget binds admissions, in place of the one with its id."""

    terms: BudgetTerms  # the budget


class BudgetRemoved(Message):
    """The budget binds no more admissions."""

    budget_id: str


class BudgetCounted(Message):
    """Total usage and open holds of a budget after a change."""

    budget_id: str
    month: str  # the calendar month (UTC) of the change: "2026-11"
    use: BudgetUse  # the totals


class BudgetThresholdReached(Message):
    """A percentage of a budget is used or held; once for each budget, month and percentage."""

    alert: BudgetAlert  # the budget, its month and the share


class AnswersCharged(Message):
    """Answers count in the calendar month of `hour_utc`."""

    # hour_utc, costs: see `RecordAnswers`
    hour_utc: int
    costs: tuple[AnswerCost, ...]


AdmissionCommand: TypeAlias = SetSuspension | SetBudget | RemoveBudget | RecordAnswers
AdmissionEvent: TypeAlias = (
    AdmissionsReviewed
    | SuspensionSet
    | BudgetSet
    | BudgetRemoved
    | BudgetCounted
    | BudgetThresholdReached
    | AnswersCharged
)
