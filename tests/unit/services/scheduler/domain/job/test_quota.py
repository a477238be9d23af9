"""No order of commands passes a monthly limit; what is reserved, settled and free is the limit."""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.admission import (
    TENANT_BUDGET,
    BudgetCounted,
    BudgetTerms,
    BudgetThresholdReached,
    RemoveBudget,
    SetBudget,
)
from schemas.job import (
    CancelJob,
    Event,
    HoldTaken,
    JobEnded,
    JobSubmitted,
    RecordUsage,
    SubmitJob,
    UsageCounted,
)
from schemas.submission import Estimate
from schemas.units import DAY_MS, HOUR_MS, GpuMs, Micro, hour_of, month_of
from simulator.control_plane.samples import limits, submit
from tests.unit.services.scheduler.fold import Decider, of
from tests.unit.services.scheduler.lives import TENANT, new_tenant

SCOPES = (TENANT_BUDGET, "key_1", "key_2")
RATE = submit().spec.price.gpu_hour_micro
HOLD = of(new_tenant().accept(limits()).when(submit()), HoldTaken).estimate
HARD_GPU_MS = 4 * HOLD.hold_gpu_ms


def cost(gpu_ms: GpuMs) -> Micro:
    return round(Fraction(gpu_ms * RATE, HOUR_MS))  # half to even, as invoices do


@dataclass
class Books:
    """Independent accounts of scopes and months, from events alone."""

    keys: dict[str, str | None] = field(default_factory=dict)
    holds: dict[str, Estimate] = field(default_factory=dict)
    net: Counter[str] = field(default_factory=Counter)
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    spent: Counter[tuple[str, str]] = field(default_factory=Counter)
    alerts: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def enter(self, event: Event) -> None:
        match event:
            case JobSubmitted():
                self.keys[event.job_id] = event.key_id
            case HoldTaken():
                self.holds[event.job_id] = event.estimate
            case JobEnded():
                self.holds.pop(event.job_id, None)
            case UsageCounted():
                before = self.net[event.job_id]
                self.net[event.job_id] += event.gpu_ms
                for scope in {TENANT_BUDGET, self.keys[event.job_id]} - {None}:
                    window = str(scope), month_of(event.hour_utc)
                    self.used[window] += event.gpu_ms
                    self.spent[window] += cost(self.net[event.job_id]) - cost(before)
            case BudgetThresholdReached(alert=alert):
                self.alerts[alert.budget_id, alert.month, alert.percent] += 1
            case _:
                pass

    def held(self, scope: str) -> tuple[GpuMs, Micro]:
        rests = [
            (hold.hold_gpu_ms - self.net[job], hold.price_max_micro - cost(self.net[job]))
            for job, hold in self.holds.items()
            if scope in (TENANT_BUDGET, self.keys[job])
        ]
        return sum(gpu_ms for gpu_ms, _ in rests), sum(micro for _, micro in rests)

    def committed(self, scope: str, month: str) -> tuple[GpuMs, Micro]:
        gpu_ms, micro = self.held(scope)
        return self.used[scope, month] + gpu_ms, self.spent[scope, month] + micro


class Tenant:
    """One decider, driven by random steps, beside the books."""

    def __init__(self) -> None:
        self.decider: Decider = new_tenant().accept(limits(HARD_GPU_MS))
        self.books, self.submitted = Books(), 0

    @property
    def month(self) -> str:
        return month_of(hour_of(self.decider.at))

    @property
    def budgets(self) -> dict[str, BudgetTerms]:
        return dict(self.decider.state[TENANT].budgets)

    def when(self, command: SubmitJob | SetBudget | RemoveBudget | CancelJob | RecordUsage) -> None:
        events = self.decider.when(command)
        for event in events:
            self.books.enter(event)
        self.check(events)

    def check(self, events: tuple[Event, ...]) -> None:
        """Nothing is admitted above a limit, and each statement adds up to its budget."""
        admitted = [event.job_id for event in events if isinstance(event, HoldTaken)]
        for job_id in admitted:
            assert self.books.committed(TENANT_BUDGET, self.month)[0] <= HARD_GPU_MS
            for scope in (TENANT_BUDGET, self.books.keys[job_id]):
                terms = self.budgets.get(scope or "")
                if terms is None:
                    continue
                gpu_ms, micro = self.books.committed(terms.budget_id, self.month)
                assert terms.max_gpu_ms is None or gpu_ms <= terms.max_gpu_ms
                assert terms.max_amount_micro is None or micro <= terms.max_amount_micro
        for event in events:
            if isinstance(event, BudgetCounted):
                scope, use = event.budget_id, event.use
                assert event.month == self.month
                assert (use.held_gpu_ms, use.held_micro) == self.books.held(scope)
                assert use.used_gpu_ms == self.books.used[scope, self.month]
                assert use.used_micro == self.books.spent[scope, self.month]
        assert max(self.books.alerts.values(), default=1) == 1, "an alert was told twice"

    def step(self, kind: str, number: int, share: int) -> None:
        running = sorted(self.books.holds)
        job_id = running[number % len(running)] if running else "ftjob-none"
        match kind:
            case "submit":
                self.submitted += 1
                job = submit(f"ftjob-{self.submitted}")
                self.when(replace(job, key_id=(None, "key_1", "key_2")[number % 3]))
            case "budget":
                most = share * HOLD.hold_gpu_ms // 20 + 1
                micro = share * HOLD.price_max_micro // 25 + 1
                self.when(
                    SetBudget(
                        terms=BudgetTerms(
                            budget_id=SCOPES[number % 3],
                            currency="EUR",
                            max_gpu_ms=None if number % 2 else most,
                            max_amount_micro=micro if number % 4 else None,
                        )
                    )
                )
            case "remove":
                self.when(RemoveBudget(budget_id=SCOPES[number % 3]))
            case "use" if running:
                rest = self.books.holds[job_id].hold_gpu_ms - self.books.net[job_id]
                self.use(job_id, rest * share // 100)
            case "credit" if running:
                self.use(job_id, -(self.books.net[job_id] * share // 100))
            case "cancel":
                self.when(CancelJob(job_id=job_id))
            case _:
                self.decider.at += share * DAY_MS // 5

    def use(self, job_id: str, gpu_ms: GpuMs) -> None:
        hour = hour_of(self.decider.at)
        self.when(RecordUsage(job_id=job_id, attempt=1, hour_utc=hour, gpu_ms=gpu_ms))


KINDS = st.sampled_from(
    (
        "submit",
        "submit",
        "submit",
        "budget",
        "budget",
        "remove",
        "use",
        "use",
        "credit",
        "cancel",
        "wait",
    )
)


@given(st.lists(st.tuples(KINDS, st.integers(0, 11), st.integers(0, 100)), max_size=40))
def test_money_no_admission_passes_a_limit_and_what_is_held_used_and_free_is_the_limit(
    steps: list[tuple[str, int, int]],
) -> None:
    tenant = Tenant()
    for step in steps:
        tenant.step(*step)
    assert tenant.decider.refolded() == tenant.decider.state


def test_money_a_credit_after_the_end_of_a_job_goes_back_to_its_key_and_month() -> None:
    tenant = Tenant()
    tenant.when(replace(submit("ftjob-1"), key_id="key_1"))
    terms = BudgetTerms(budget_id="key_1", currency="EUR", max_amount_micro=10**9)
    tenant.when(SetBudget(terms=terms))
    tenant.use("ftjob-1", HOLD.hold_gpu_ms // 2)
    tenant.when(CancelJob(job_id="ftjob-1"))
    tenant.use("ftjob-1", -HOLD.hold_gpu_ms // 2)
    state = tenant.decider.state[TENANT]
    for scope in (TENANT_BUDGET, "key_1"):
        window = state.use[f"{scope}/{tenant.month}"]
        assert (window.gpu_ms, dict(window.amounts)) == (0, {"EUR": 0})
