"""Independent accounts of limits, holds and ends of jobs, from events of `job` alone."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from schemas import errors
from schemas.account import Limits
from schemas.admission import (
    TENANT_BUDGET,
    BudgetAlert,
    BudgetCounted,
    BudgetSet,
    BudgetTerms,
    BudgetThresholdReached,
)
from schemas.dataset import BaseTokens
from schemas.envelope import Rejected
from schemas.job import (
    FileNoted,
    HoldTaken,
    JobEnded,
    JobSubmitted,
    LimitsSet,
    ResumeJob,
    SubmitJob,
    UsageCounted,
    WantedSet,
)
from schemas.submission import JobSpec, KeyCap
from schemas.units import HOUR_MS, GpuMs, Micro, Ms
from tunery.plan.estimate import estimate


@dataclass
class Charged:
    """What a job has used of its tenant's budget, and of its API key's cap."""

    key_id: str | None
    gpu_hour_micro: Micro
    gpu_ms: GpuMs = 0

    def cost(self) -> Micro:
        return -(-max(0, self.gpu_ms) * self.gpu_hour_micro // HOUR_MS)


@dataclass
class TenantBook:
    limits: Limits | None = None
    specs: dict[str, JobSpec] = field(default_factory=dict)  # of jobs that have not ended
    wants: dict[str, bool] = field(default_factory=dict)  # whether it is to run
    holds: dict[str, GpuMs] = field(default_factory=dict)  # what is left of them
    caps: dict[str, KeyCap] = field(default_factory=dict)
    promised: dict[str, Micro] = field(default_factory=dict)  # what an open hold may still cost
    charges: dict[str, Charged] = field(default_factory=dict)  # of all jobs
    spent: Counter[tuple[str, str]] = field(default_factory=Counter)  # by scope and month
    budget: BudgetTerms | None = None  # of all jobs
    alerts: set[BudgetAlert] = field(default_factory=set)
    files: dict[str, tuple[BaseTokens, ...]] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)  # by month

    def window(self, at: Ms) -> GpuMs:
        """A month's use, and all that open holds may still add to it."""
        return self.used[month(at // HOUR_MS)] + sum(max(0, left) for left in self.holds.values())

    def spending(self, cap: KeyCap, at: Ms) -> Micro:
        """What a key's jobs have cost in the month, and what its open ones may still cost."""
        still = sum(
            most
            for job_id, most in self.promised.items()
            if job_id in self.caps and self.caps[job_id].key_id == cap.key_id
        )
        return self.spent[cap.key_id, month(at // HOUR_MS)] + still

    def budget_use(self, at: Ms) -> tuple[Micro, Micro]:
        """What all jobs have cost in the month, and what the open ones may still cost."""
        held = sum(self.promised.values())
        return self.spent[TENANT_BUDGET, month(at // HOUR_MS)], held


@dataclass
class Quota:
    """`counted`: by tenant, job and hour, credits taken off."""

    tenants: dict[str, TenantBook] = field(default_factory=lambda: defaultdict(TenantBook))
    violations: list[str] = field(default_factory=list)
    ended: dict[str, JobEnded] = field(default_factory=dict)
    held: dict[str, GpuMs] = field(default_factory=dict)
    counted: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    @property
    def open_jobs(self) -> set[str]:
        """Submitted, and not ended."""
        return {job_id for book in self.tenants.values() for job_id in book.specs}

    def enter(self, tenant: str, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of `job`."""
        book = self.tenants[tenant]
        for event in events:
            match event:
                case LimitsSet():
                    book.limits = event.terms.limits
                case FileNoted():
                    book.files[event.file_id] = event.tokens
                case JobSubmitted():
                    book.specs[event.job_id] = event.spec
                    key_id = None
                    if event.cap is not None:
                        book.caps[event.job_id] = event.cap
                        key_id = event.cap.key_id
                    rate = event.spec.price.gpu_hour_micro
                    book.charges[event.job_id] = Charged(key_id, rate)
                    self._wanted(book, event.job_id, True)
                case WantedSet():
                    self._wanted(book, event.job_id, event.wanted == "run")
                case HoldTaken():
                    self._hold(book, event, at)
                case UsageCounted():
                    book.used[month(event.hour_utc)] += event.gpu_ms
                    self.counted[tenant, event.job_id, event.hour_utc] += event.gpu_ms
                    if event.job_id in book.holds:
                        book.holds[event.job_id] -= event.gpu_ms
                    self._spend(book, event)
                case JobEnded():
                    self._end(book, event, at)
                case BudgetSet():
                    book.budget = event.terms
                case BudgetCounted() | BudgetThresholdReached():
                    self._check_budget(book, event, at)
                case Rejected():
                    self._refuse(book, command, event, at)
                case _:
                    pass

    def _say(self, invariant: str, text: str) -> None:
        self.violations.append(f"{invariant}: {text}")

    def _wanted(self, book: TenantBook, job_id: str, run: bool) -> None:
        began = run and not book.wants.get(job_id, False)
        book.wants[job_id] = run
        running = sum(book.wants.values())
        if began and book.limits is not None and running > book.limits.concurrency:
            self._say("limit", f"{job_id} makes it {running} jobs of {book.limits.concurrency}")

    def _hold(self, book: TenantBook, event: HoldTaken, at: Ms) -> None:
        hold = event.estimate.hold_gpu_ms
        book.holds[event.job_id] = self.held[event.job_id] = hold
        if book.limits is None or book.window(at) > book.limits.hard_gpu_ms:
            self._say("limit", f"{event.job_id} makes it {book.window(at)} of {book.limits}")
        book.promised[event.job_id] = event.estimate.price_max_micro
        most = None if book.budget is None else book.budget.max_amount_micro
        if most is not None and sum(book.budget_use(at)) > most:
            self._say("limit", f"{event.job_id} makes it {book.budget_use(at)} of {book.budget}")
        cap = book.caps.get(event.job_id)
        if cap is not None and book.spending(cap, at) > cap.spend_cap_micro:
            self._say("limit", f"{event.job_id} makes it {book.spending(cap, at)} of {cap}")

    def _check_budget(
        self, book: TenantBook, event: BudgetCounted | BudgetThresholdReached, at: Ms
    ) -> None:
        """Stated totals are those of these books, and an alert comes once."""
        if isinstance(event, BudgetThresholdReached):
            if event.alert in book.alerts:
                self._say("limit", f"{event.alert} is told again")
            book.alerts.add(event.alert)
        elif (event.use.used_micro, event.use.held_micro) != book.budget_use(at):
            self._say("limit", f"{event.use} is said of {book.budget_use(at)}")

    def _spend(self, book: TenantBook, event: UsageCounted) -> None:
        """A slice costs its month the difference of the job's cost, rounded up as a whole."""
        charge = book.charges.get(event.job_id)
        if charge is None:
            return
        before = charge.cost()
        charge.gpu_ms += event.gpu_ms
        difference = charge.cost() - before
        for scope in {TENANT_BUDGET, charge.key_id or TENANT_BUDGET}:
            book.spent[scope, month(event.hour_utc)] += difference
        if event.job_id in book.promised:
            book.promised[event.job_id] -= difference

    def _end(self, book: TenantBook, event: JobEnded, at: Ms) -> None:
        if event.job_id in self.ended:
            self._say("end", f"{event.job_id} ended twice")
            return
        failure = event.failure
        spec, cap = book.specs.pop(event.job_id), book.caps.pop(event.job_id, None)
        if failure is not None and failure.code in (errors.HARD_LIMIT, errors.SPEND_CAP):
            counts = book.files.get(spec.training_file, ())
            self._justify(book, spec, counts, cap, failure.code, at)
        book.promised.pop(event.job_id, None)
        self.ended[event.job_id] = event
        left = book.holds.pop(event.job_id, 0)
        del book.wants[event.job_id]
        if event.released_gpu_ms != max(0, left):
            self._say("hold", f"{event.job_id} releases {event.released_gpu_ms} of {left} left")

    def _refuse(self, book: TenantBook, command: Any, event: Rejected, at: Ms) -> None:
        match event.code, command:
            case errors.HARD_LIMIT | errors.SPEND_CAP, SubmitJob():
                known = book.files.get(command.spec.training_file, ())
                counts = known if command.tokens is None else (command.tokens,)
                self._justify(book, command.spec, counts, command.cap, event.code, at)
            case errors.CONCURRENCY_LIMIT, SubmitJob() | ResumeJob():
                running = sum(book.wants.values())
                if book.limits is None or running < book.limits.concurrency:
                    self._say("refusal", f"{running} jobs are not {book.limits}: {event.reason}")
            case errors.MALFORMED | errors.INTERNAL, _:
                self._say("refusal", f"{type(command).__name__}: {event.reason}")
            case _:
                pass

    def _justify(
        self,
        book: TenantBook,
        spec: JobSpec,
        counts: tuple[BaseTokens, ...],
        cap: KeyCap | None,
        code: str,
        at: Ms,
    ) -> None:
        """Check that a refused job would have exceeded the limit, or the key's cap."""
        needs = next(
            estimate(spec, count) for count in counts if count.base_id == spec.base.base_id
        )
        if code == errors.HARD_LIMIT:
            hard = 0 if book.limits is None else book.limits.hard_gpu_ms
            passed = book.window(at) + needs.hold_gpu_ms > hard
        else:
            passed = cap is not None and (
                book.spending(cap, at) + needs.price_max_micro > cap.spend_cap_micro
            )
        if not passed:
            self._say(
                "refusal", f"{code} of {needs} beside {book.window(at)}; {book.limits}, {cap}"
            )


def month(hour: int) -> str:
    """Of an hour since the epoch, UTC."""
    return f"{datetime.fromtimestamp(hour * HOUR_MS // 1_000, UTC):%Y-%m}"
