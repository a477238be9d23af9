"""What binds admissions beside the plan, in the stream `job`: suspension and monthly budgets."""

from typing import Final, TypeAlias

from schemas.answers import AnswerCost
from schemas.envelope import Message, Part
from schemas.units import GpuMs, Micro

TENANT_BUDGET: Final = "tenant"  # id of the budget of all that a tenant uses


class BudgetTerms(Part):
    """What jobs and answers may use in each calendar month (UTC). No admission passes it.

    budget_id: TENANT_BUDGET, or the API key whose jobs and answers it is of.
    currency: of the amount; jobs that are priced in another one are refused.
    max_gpu_ms: as GPU time, None: no such limit.
    max_amount_micro: as an amount, None: no such limit.
    """

    budget_id: str
    currency: str
    max_gpu_ms: GpuMs | None = None
    max_amount_micro: Micro | None = None


class BudgetUse(Part):
    """What a budget's jobs and answers have used in a month, and what open holds may add to it.

    used_gpu_ms: billable use of jobs and serving less credits.
    used_micro: its price, with that of answers.
    held_gpu_ms, held_micro: the unused rest of open holds.
    """

    used_gpu_ms: GpuMs
    held_gpu_ms: GpuMs
    used_micro: Micro
    held_micro: Micro


class BudgetAlert(Part):
    """A share of a monthly budget that is used or held.

    budget_id: the budget.
    month: the calendar month (UTC): "2026-11".
    percent: of the budget; one of 50, 80 and 100.
    """

    budget_id: str
    month: str
    percent: int


# --- commands
class SetSuspension(Message):
    """Whether the tenant may start jobs (reaction of account).

    suspended: it may not.
    """

    suspended: bool


class SetBudget(Message):
    """A monthly budget, in place of the one with its id.

    terms: the budget.
    """

    terms: BudgetTerms


class RemoveBudget(Message):
    """The budget shall bind no more admissions.

    budget_id: the budget.
    """

    budget_id: str


class RecordAnswers(Message):
    """What answers of a few seconds cost, for the month of `hour_utc` (reaction of account).

    hour_utc: hours since the epoch.
    costs: of each key.
    """

    hour_utc: int
    costs: tuple[AnswerCost, ...]


# --- events
class SuspensionSet(Message):
    """Whether the tenant may start jobs: submit new ones, resume paused ones, take holds.

    suspended: it may not.
    """

    suspended: bool


class BudgetSet(Message):
    """A monthly budget binds admissions, in place of the one with its id.

    terms: the budget.
    """

    terms: BudgetTerms


class BudgetRemoved(Message):
    """The budget binds no more admissions.

    budget_id: the budget.
    """

    budget_id: str


class BudgetCounted(Message):
    """What a budget has used and holds, after a change of it.

    budget_id: the budget.
    month: the calendar month (UTC) of the change: "2026-11".
    use: the totals.
    """

    budget_id: str
    month: str
    use: BudgetUse


class BudgetThresholdReached(Message):
    """So much of a budget is used or held; once for each budget, month and percent.

    alert: which, and how much.
    """

    alert: BudgetAlert


class AnswersCharged(Message):
    """Answers count in the calendar month of `hour_utc`.

    hour_utc, costs: as in `RecordAnswers`.
    """

    hour_utc: int
    costs: tuple[AnswerCost, ...]


AdmissionCommand: TypeAlias = SetSuspension | SetBudget | RemoveBudget | RecordAnswers
AdmissionEvent: TypeAlias = (
    SuspensionSet
    | BudgetSet
    | BudgetRemoved
    | BudgetCounted
    | BudgetThresholdReached
    | AnswersCharged
)
