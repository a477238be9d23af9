"""Independent accounts of limits, holds and ends of jobs, from events of `job` alone."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from itertools import product
from typing import Any

from schemas import errors
from schemas.account import Limits, PlanTerms
from schemas.admission import (
    TENANT_BUDGET,
    AnswersCharged,
    BudgetAlert,
    BudgetCounted,
    BudgetRemoved,
    BudgetSet,
    BudgetTerms,
    BudgetThresholdReached,
    SuspensionSet,
)
from schemas.billing import Rate
from schemas.dataset import BaseTokens
from schemas.envelope import Rejected
from schemas.job import (
    AttemptEnded,
    FileNoted,
    HoldTaken,
    JobEnded,
    JobSubmitted,
    LimitsSet,
    PhaseSet,
    ResumeJob,
    SubmitJob,
    UsageCounted,
    WantedSet,
)
from schemas.serving import (
    ServingPoolRemoved,
    ServingPoolSet,
    ServingPoolTerms,
    ServingTermBegun,
    ServingTermEnded,
)
from schemas.submission import JobSpec, KeyCap, UsageSource
from schemas.training import LeaseHardware
from schemas.units import HOUR_MS, PPM, GpuMs, Micro, Ms
from tunery.plan.estimate import estimate


@dataclass
class Charged:
    """Usage that counts against the tenant's budget and the API key's cap, for one job.

    Prices are those at the job's admission.
    """

    key_id: str | None
    price_version: str
    lane: str
    currency: str
    gpu_hour_micro: Micro
    rates: tuple[Rate, ...] = ()
    token_micro_per_million: Micro = 0
    time: int = 0  # GPU-milliseconds at their prices
    tokens: int = 0  # trained and billed

    def cost(self) -> Micro:
        time = round(Fraction(max(0, self.time), HOUR_MS))  # half to even
        return time + round(Fraction(self.tokens * self.token_micro_per_million, 1_000_000))

    def hourly(self, role: str, accelerator: str, *, spot: bool) -> Micro:
        """The price of some time on CPUs: its own rate, else one that says less, in this order."""
        prices = {(rate.role, rate.device, rate.spot): rate.gpu_hour_micro for rate in self.rates}
        for asked in product((role, None), (accelerator, "cpu", None), (spot, None)):
            if asked in prices:
                return prices[asked]
        return self.gpu_hour_micro


@dataclass
class TenantBook:
    terms: PlanTerms | None = None
    to_come: tuple[Ms, PlanTerms] | None = None  # the plan from then on
    suspended: bool = False
    specs: dict[str, JobSpec] = field(default_factory=dict)  # of jobs that have not ended
    wants: dict[str, bool] = field(default_factory=dict)  # whether it is to run
    on_nodes: set[str] = field(default_factory=set)  # jobs whose attempt was granted and runs
    holds: dict[str, GpuMs] = field(default_factory=dict)  # what is left of them
    caps: dict[str, KeyCap] = field(default_factory=dict)
    promised: dict[str, Micro] = field(default_factory=dict)  # what an open hold may still cost
    charges: dict[str, Charged] = field(default_factory=dict)  # of all jobs
    spent: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # scope, currency, month
    answered: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # in millionths of it
    budget: BudgetTerms | None = None  # of all jobs
    alerts: set[BudgetAlert] = field(default_factory=set)
    files: dict[str, tuple[BaseTokens, ...]] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)  # by month
    serving: dict[str, ServingPoolTerms] = field(default_factory=dict)  # wanted serving pools
    terms_open: set[str] = field(default_factory=set)  # of replicas

    @property
    def limits(self) -> Limits | None:
        return None if self.terms is None else self.terms.limits

    @property
    def running(self) -> int:
        """Jobs that count against the concurrency limit: a stopping one until it has stopped."""
        return sum(wanted or job_id in self.on_nodes for job_id, wanted in self.wants.items())

    def advance(self, at: Ms) -> None:
        """Let the plan that is to come be in force, once its time has come."""
        if self.to_come is not None and self.to_come[0] <= at:
            self.terms, self.to_come = self.to_come[1], None

    def open_micro(self, currency: str, key_id: str | None = None) -> Micro:
        """Return the largest remaining cost of open jobs in a currency, optionally of one key."""
        return sum(
            most
            for job_id, most in self.promised.items()
            if self.charges[job_id].currency == currency
            and key_id in (None, self.charges[job_id].key_id)
        )

    def window(self, at: Ms) -> GpuMs:
        """A month's use, and all that open holds may still add to it."""
        return self.used[month(at // HOUR_MS)] + sum(max(0, left) for left in self.holds.values())

    def spending(self, cap: KeyCap, currency: str, at: Ms) -> Micro:
        """Return a key's cost in the month plus the largest remaining cost of its open jobs."""
        still = self.open_micro(currency, cap.key_id)
        return self.cost(cap.key_id, currency, at) + still

    def cost(self, scope: str, currency: str, at: Ms) -> Micro:
        """Return the month's cost of jobs and answers, rounded down to a micro-unit."""
        window = (scope, currency, month(at // HOUR_MS))
        return self.spent[window] + self.answered[window] // PPM

    def budget_use(self, at: Ms) -> tuple[Micro, Micro]:
        """Return the month's cost, and the largest remaining cost of open jobs."""
        currency = "" if self.budget is None else self.budget.currency
        return self.cost(TENANT_BUDGET, currency, at), self.open_micro(currency)


@dataclass
class Quota:
    """`counted`: by tenant, job and hour, credits taken off."""

    tenants: dict[str, TenantBook] = field(default_factory=lambda: defaultdict(TenantBook))
    violations: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)  # that holds allow
    ended: dict[str, JobEnded] = field(default_factory=dict)
    held: dict[str, GpuMs] = field(default_factory=dict)
    estimated: dict[str, GpuMs] = field(default_factory=dict)
    counted: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    terms_ended: dict[str, ServingTermEnded] = field(default_factory=dict)

    @property
    def open_jobs(self) -> set[str]:
        """Submitted, and not ended; terms of replicas as well."""
        books = self.tenants.values()
        return {name for book in books for name in (*book.specs, *book.terms_open)}

    def enter(self, tenant: str, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of `job`."""
        book = self.tenants[tenant]
        book.advance(at)
        for event in events:
            match event:
                case LimitsSet():
                    book.to_come = (event.effective_at or 0, event.terms)
                    book.advance(at)
                case SuspensionSet():
                    book.suspended = event.suspended
                case FileNoted():
                    book.files[event.file_id] = event.tokens
                case JobSubmitted():
                    self._submit(book, event)
                case WantedSet():
                    self._wanted(book, event.job_id, event.wanted == "run")
                case PhaseSet() if event.node_ids:
                    book.on_nodes.add(event.job_id)
                case AttemptEnded():
                    book.on_nodes.discard(event.job_id)
                case HoldTaken():
                    self._hold(book, event, at)
                case UsageCounted():
                    book.used[month(event.hour_utc)] += event.gpu_ms
                    self.counted[tenant, event.job_id, event.hour_utc] += event.gpu_ms
                    if event.job_id in book.holds:
                        book.holds[event.job_id] -= event.gpu_ms
                    self._spend(book, event)
                case AnswersCharged():
                    for cost in event.costs:
                        exact = cost.micro * PPM + cost.millionths
                        for scope in (TENANT_BUDGET, cost.key_id):
                            window = (scope, cost.currency, month(event.hour_utc))
                            book.answered[window] += exact
                case JobEnded():
                    self._end(book, event, at)
                case BudgetSet():
                    book.budget = event.terms
                case BudgetRemoved():
                    book.budget = None
                case BudgetCounted() | BudgetThresholdReached():
                    self._check_budget(book, event, at)
                case Rejected():
                    self._refuse(book, command, event, at)
                case _:
                    self._serve(book, event, at)

    def _serve(self, book: TenantBook, event: Any, at: Ms) -> None:
        """Apply an event of a serving pool. Each term takes a hold and releases the unused rest."""
        match event:
            case ServingPoolSet():
                price, plan = event.terms.price, book.terms
                asked = {(price.version, price.lane), (price.version, event.lane)}
                if plan is None or asked != {(plan.price_version, plan.lane)}:
                    self._say("price", f"a serving pool is priced at {asked}, the plan is {plan}")
                book.serving[event.terms.serving_pool_id] = event.terms
            case ServingPoolRemoved():
                del book.serving[event.serving_pool_id]
            case ServingTermBegun():
                self._begin_term(book, event, at)
            case ServingTermEnded():
                left = book.holds.pop(event.term_id)
                book.promised.pop(event.term_id)
                book.caps.pop(event.term_id, None)
                book.terms_open.remove(event.term_id)
                self.terms_ended[event.term_id] = event
                if event.released_gpu_ms != max(0, left):
                    self._say("hold", f"{event} releases another rest than {left}")
            case _:
                pass

    def _begin_term(self, book: TenantBook, event: ServingTermBegun, at: Ms) -> None:
        term_id, terms = event.placement.job_id, book.serving[event.serving_pool_id]
        price, replica = event.price, terms.replica
        if term_id in self.held:
            self._say("hold", f"{term_id} begins twice")
        if event.hold_gpu_ms != replica.slots * replica.term_ms:
            self._say("hold", f"{event} is not of {terms}")
        plan, begun = book.terms, (price.version, price.lane, event.placement.lane)
        if plan is None or begun != (plan.price_version, plan.lane, plan.lane):
            self._say("price", f"{event} begins at {begun}, the plan is {plan}")
        self._admitted(book, term_id)
        book.terms_open.add(term_id)
        book.holds[term_id] = self.held[term_id] = event.hold_gpu_ms
        book.charges[term_id] = Charged(
            key_id=event.key_id,
            price_version=price.version,
            lane=event.placement.lane,
            currency=price.currency,
            gpu_hour_micro=price.gpu_hour_micro,
            rates=price.rates,
            token_micro_per_million=price.token_micro_per_million,
        )
        book.promised[term_id] = event.price_max_micro
        if terms.cap is not None:
            book.caps[term_id] = terms.cap
        self._check_limits(book, term_id, price.currency, at)

    def _say(self, invariant: str, text: str) -> None:
        self.violations.append(f"{invariant}: {text}")

    @property
    def charges(self) -> dict[str, Charged]:
        """All admitted jobs of all tenants, by job id."""
        return {
            job_id: charge
            for book in self.tenants.values()
            for job_id, charge in book.charges.items()
        }

    def _submit(self, book: TenantBook, event: JobSubmitted) -> None:
        """A job is admitted at the lane and the prices of the plan in force, and keeps them."""
        price, terms = event.spec.price, book.terms
        book.specs[event.job_id] = event.spec
        if event.cap is not None:
            book.caps[event.job_id] = event.cap
        book.charges[event.job_id] = Charged(
            key_id=None if event.cap is None else event.cap.key_id,
            price_version=event.price_version,
            lane=event.lane,
            currency=price.currency,
            gpu_hour_micro=price.gpu_hour_micro,
            rates=price.rates,
            token_micro_per_million=price.token_micro_per_million,
        )
        admitted = {(event.price_version, event.lane), (price.version, price.lane)}
        if terms is None or admitted != {(terms.price_version, terms.lane)}:
            self._say("price", f"{event.job_id} is admitted at {admitted}, the plan is {terms}")
        self._admitted(book, event.job_id)
        self._wanted(book, event.job_id, True)

    def _admitted(self, book: TenantBook, job_id: str) -> None:
        if book.suspended:
            self._say("suspended", f"{job_id} goes on although its tenant is suspended")

    def _wanted(self, book: TenantBook, job_id: str, run: bool) -> None:
        began = run and not book.wants.get(job_id, False)
        if began:
            self._admitted(book, job_id)
        book.wants[job_id] = run
        running = book.running
        if began and book.limits is not None and running > book.limits.concurrency:
            self._say("limit", f"{job_id} makes it {running} jobs of {book.limits.concurrency}")

    def _hold(self, book: TenantBook, event: HoldTaken, at: Ms) -> None:
        hold, currency = event.estimate.hold_gpu_ms, event.estimate.currency
        self._admitted(book, event.job_id)
        # what is raised adds to the rest
        book.holds[event.job_id] = hold + book.holds.get(event.job_id, 0)
        book.holds[event.job_id] -= self.held.get(event.job_id, 0)
        self.held[event.job_id] = hold
        self.tokens[event.job_id] = event.estimate.tokens
        expected = event.estimate.train_gpu_ms + event.estimate.eval_gpu_ms
        self.estimated[event.job_id] = expected
        charge = book.charges.get(event.job_id)
        cost = 0 if charge is None else charge.cost()
        book.promised[event.job_id] = event.estimate.price_max_micro - cost
        self._check_limits(book, event.job_id, currency, at)

    def _check_limits(self, book: TenantBook, job_id: str, currency: str, at: Ms) -> None:
        """A hold that was taken leaves the month, the budget and the key's cap within bounds."""
        if book.limits is None or book.window(at) > book.limits.hard_gpu_ms:
            self._say("limit", f"{job_id} makes it {book.window(at)} of {book.limits}")
        most = None if book.budget is None else book.budget.max_amount_micro
        if book.budget is not None and most is not None and currency != book.budget.currency:
            self._say("limit", f"{job_id} is in {currency}, the budget is {book.budget}")
        if most is not None and sum(book.budget_use(at)) > most:
            self._say("limit", f"{job_id} makes it {book.budget_use(at)} of {book.budget}")
        cap = book.caps.get(job_id)
        if cap is not None and (spent := book.spending(cap, currency, at)) > cap.spend_cap_micro:
            self._say("limit", f"{job_id} makes it {spent} of {cap}")

    def _check_budget(
        self, book: TenantBook, event: BudgetCounted | BudgetThresholdReached, at: Ms
    ) -> None:
        """Stated totals are those of these books, and an alert comes once."""
        if isinstance(event, BudgetThresholdReached):
            if event.alert in book.alerts:
                self._say("limit", f"{event.alert} is announced again")
            book.alerts.add(event.alert)
        elif (event.use.used_micro, event.use.held_micro) != book.budget_use(at):
            self._say("limit", f"{event.use} is said of {book.budget_use(at)}")

    def _spend(self, book: TenantBook, event: UsageCounted) -> None:
        """A slice costs its month the difference of the job's cost, rounded as a whole."""
        charge = book.charges.get(event.job_id)
        if charge is None:
            return
        before = charge.cost()
        source = event.source or UsageSource()
        where = source.hardware or LeaseHardware()
        hourly = charge.hourly(source.role, where.accelerator, spot=where.spot)
        charge.time += event.gpu_ms * hourly
        charge.tokens += source.tokens
        most = self.tokens.get(event.job_id, 0) if charge.token_micro_per_million else 0
        if not 0 <= charge.tokens <= most:
            self._say("limit", f"{event.job_id} is billed {charge.tokens} tokens of {most} held")
        difference = charge.cost() - before
        for scope in {TENANT_BUDGET, charge.key_id or TENANT_BUDGET}:
            book.spent[scope, charge.currency, month(event.hour_utc)] += difference
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
                running = book.running
                if book.limits is None or running < book.limits.concurrency:
                    self._say("refusal", f"{running} jobs are not {book.limits}: {event.reason}")
            case errors.SUSPENDED, SubmitJob() | ResumeJob():
                if not book.suspended:
                    self._say("refusal", f"{type(command).__name__}: {event.reason}")
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
                book.spending(cap, needs.currency, at) + needs.price_max_micro > cap.spend_cap_micro
            )
        if not passed:
            self._say(
                "refusal", f"{code} of {needs} beside {book.window(at)}; {book.limits}, {cap}"
            )


def month(hour: int) -> str:
    """Return the UTC month, such as 2026-11, of an hour since the epoch."""
    return f"{datetime.fromtimestamp(hour * HOUR_MS // 1_000, UTC):%Y-%m}"
