"""Over random commands and months, nothing of a tenant waits beside room for it."""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from msgspec.structs import replace

from schemas.account import LANES
from schemas.admission import TENANT_BUDGET, BudgetTerms, RemoveBudget, SetBudget, SetSuspension
from schemas.envelope import Message, Rejected
from schemas.job import (
    CancelJob,
    PauseJob,
    RecordDraining,
    RecordUsage,
    ResumeJob,
    SetLimits,
    SubmitJob,
)
from schemas.serving import RemoveServingPool, ServingTermBegun, SetServingPool
from schemas.submission import Budget, Price
from schemas.sweep import CancelSweep, SubmitSweep, SweepRunSkipped
from schemas.units import DAY_MS, HOUR_MS, hour_of
from services.scheduler.domain.job import decide, evolve
from services.scheduler.domain.job.quota import terms_at
from services.scheduler.domain.job.state import OpenSweep, TenantJobs
from services.scheduler.domain.job.sweeps import CHANGED
from simulator.control_plane.samples import limits, spec, submit
from tests.unit.services.scheduler.domain.job.test_serving import PRICE, REPLICA, closed, wanted
from tests.unit.services.scheduler.domain.job.test_sweeps import NEEDS, finish, run, sweep
from tests.unit.services.scheduler.fold import Decider
from tests.unit.services.scheduler.lives import TENANT, new_tenant
from tunery.billing.periods import period_of
from tunery.plan.sweeps import groups

SMALL: Final = replace(REPLICA, slots=1, term_ms=NEEDS.hold_gpu_ms)  # as much as a job
SEEDS: Final = 25
STEPS: Final = 60
VERSIONS: Final = ("2026-11", "2026-11", "2026-11", "2027-01")


class Life:
    """A tenant whom clients, operators, `pool` and time do all kinds of things to."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.decider = new_tenant().accept(self._limits())
        self.count = 0

    @property
    def state(self) -> TenantJobs:
        state: TenantJobs = self.decider.state[TENANT]
        return state

    def step(self) -> None:
        """Do something, then wait now and then; ticks that are due come first."""
        command = self.draw.choice((*CLIENTS, *OPERATORS, *FACTS))(self)
        if isinstance(command, Message):
            self.decider.when(command)
        until = self.decider.at + self.draw.choice((0, HOUR_MS, DAY_MS, 20 * DAY_MS))
        while (due := self.decider.due()) is not None and due <= until:
            self.decider.tick()
        self.decider.at = max(self.decider.at, until)

    def _limits(self) -> SetLimits:
        hard = self.draw.randint(1, 6) * NEEDS.hold_gpu_ms
        lane, version = self.draw.choice(LANES), self.draw.choice(VERSIONS)
        price = replace(PRICE, version=version, lane=lane)
        command = limits(hard=hard, concurrency=self.draw.randint(1, 4), price_version=version)
        known = price if self.draw.random() < 0.8 else None
        return replace(command, terms=replace(command.terms, lane=lane, price=known))

    def plan(self) -> SetLimits:
        later = self.draw.random() < 0.5
        effective_at = period_of(self.decider.at).end_ms if later else None
        return replace(self._limits(), effective_at=effective_at)

    def suspension(self) -> SetSuspension:
        return SetSuspension(suspended=self.draw.random() < 0.3)

    def budget(self) -> SetBudget | RemoveBudget:
        if self.draw.random() < 0.4 and self.state.budgets:
            return RemoveBudget(budget_id=TENANT_BUDGET)
        most = self.draw.randint(1, 5) * NEEDS.hold_gpu_ms
        return SetBudget(
            terms=BudgetTerms(budget_id=TENANT_BUDGET, currency="EUR", max_gpu_ms=most)
        )

    def job(self) -> SubmitJob:
        self.count += 1
        whole = submit(f"ftjob-x{self.count}")
        return replace(whole, spec=replace(whole.spec, price=self.price()))

    def price(self) -> Price:
        plan = terms_at(self.state, self.decider.at)
        assert plan is not None
        return replace(PRICE, version=plan.price_version, lane=plan.lane)

    def sweep(self) -> SubmitSweep:
        self.count += 1
        trials = tuple(
            (replace(run(trial), job_id=f"ftjob-{self.count}-{trial}"),)
            for trial in range(self.draw.randint(1, 5))
        )
        budget = Budget(max_gpu_ms=self.draw.randint(1, 4) * NEEDS.hold_gpu_ms)
        return sweep(
            sweep_id=f"sweep-{self.count}",
            spec=replace(spec(), price=self.price()),
            trials=trials,
            at_once=self.draw.randint(1, 3),
            budget=budget if self.draw.random() < 0.3 else None,
        )

    def change(self) -> Message | None:
        """A client's wish about a job or a sweep."""
        jobs, sweeps = sorted(self.state.jobs), sorted(self.state.sweeps)
        if sweeps and self.draw.random() < 0.1:
            return CancelSweep(sweep_id=self.draw.choice(sweeps))
        if not jobs:
            return None
        kind = self.draw.choice((PauseJob, PauseJob, ResumeJob, CancelJob))
        return kind(job_id=self.draw.choice(jobs))

    def serving(self) -> SetServingPool | RemoveServingPool:
        name = self.draw.choice(("sp_1", "sp_2"))
        if name in self.state.serving_pools and self.draw.random() < 0.2:
            return RemoveServingPool(serving_pool_id=name)
        replicas = self.draw.randint(0, 3)
        return wanted(replicas, name, price=self.price(), replica=SMALL)

    def term(self) -> Message | None:
        terms = sorted(self.state.serving_terms)
        if not terms:
            return None
        term_id = self.draw.choice(terms)
        if self.draw.random() < 0.3:
            return RecordDraining(job_id=term_id, attempt=1)
        return closed(term_id, "failed", "budget")

    def usage(self) -> Message | None:
        users = [*sorted(self.state.jobs), *sorted(self.state.serving_terms), "forgotten"]
        gpu_ms = self.draw.randint(-1, 3) * NEEDS.hold_gpu_ms // 3
        hour_utc = hour_of(self.decider.at)
        return RecordUsage(
            job_id=self.draw.choice(users), attempt=1, hour_utc=hour_utc, gpu_ms=gpu_ms
        )

    def end(self) -> None:
        """A job runs to its end."""
        fresh = [job_id for job_id, job in sorted(self.state.jobs.items()) if job.attempt == 0]
        running = [job_id for job_id in fresh if self.state.jobs[job_id].wanted == "run"]
        if running:
            finish(self.decider, self.draw.choice(running), 500_000)


CLIENTS: Final[tuple[Callable[[Life], Message | None], ...]] = (
    *(Life.job, Life.sweep, Life.sweep, Life.change, Life.change, Life.serving),
)
OPERATORS: Final[tuple[Callable[[Life], Message | None], ...]] = (
    *(Life.plan, Life.suspension, Life.budget),
)
FACTS: Final[tuple[Callable[[Life], Any], ...]] = (Life.term, Life.usage, Life.end, Life.end)


def pending(sweep: OpenSweep) -> list[tuple[Any, ...]]:
    """Jobs that a sweep may have now and has not, each by its runs."""
    if sweep.is_cancelled or len(sweep.open_runs) >= sweep.terms.at_once:
        return []
    runs = [sweep.terms.trials[trial][sweep.rung] for trial in sweep.trials]
    known = {*sweep.open_runs, *sweep.ended_runs, *sweep.skipped}
    return [job for job in groups(runs, sweep.terms.colocate) if job[0].job_id not in known]


def left_waiting(life: Life) -> Iterator[str]:
    """What waits although its tenant, by the same requests from outside, gets it."""
    decider, state = life.decider, life.state
    due = decider.due()
    for name, opened in state.sweeps.items():
        if not pending(opened):
            continue
        if due is None or due <= decider.at:
            yield f"{name} waits for no moment"
        terms = opened.terms
        whole = replace(terms.spec, sweep_id=None)
        again = SubmitJob(job_id="again", spec=whole, tokens=terms.tokens, dry_run=True)
        if terms.budget is None and not refused(decider, again):
            yield f"{name} waits although a job like its next one is admitted"
    for name, pool in state.serving_pools.items():
        staying = [term for term in state.serving_terms.values() if not term.is_ending]
        missing = pool.terms.replicas - sum(term.serving_pool_id == name for term in staying)
        plan = terms_at(state, decider.at)
        if missing <= 0 or plan is None or plan.price is None:
            continue
        again_terms = replace(pool.terms, price=plan.price)
        if not refused(decider, SetServingPool(terms=again_terms)):
            yield f"{name} lacks {missing}, which are granted when it is set again"


def refused(decider: Decider, command: Message) -> bool:
    """Whether a command would be refused now; it is not decided for good."""
    ctx = decider._context(TENANT)
    events = decider.aggregate.decide(decider.state, command, ctx)
    return any(isinstance(event, Rejected) for event in events)


def violations_of(seeds: range) -> list[str]:
    """What waits beside room in these lives, first of all."""
    for seed in seeds:
        life = Life(seed)
        for number in range(STEPS):
            known = len(life.decider.journal)
            life.step()
            if left := [*left_waiting(life), *wrongly_priced(life, known)]:
                return [f"seed {seed}, step {number}: {what}" for what in left]
        assert life.decider.refolded() == life.decider.state
    return []


def wrongly_priced(life: Life, known: int) -> Iterator[str]:
    """Terms and runs of the last decisions that are not of the plan of their moment."""
    for ctx, events in life.decider.journal[known:]:
        plan = terms_at(life.state, ctx.at)
        for event in events:
            match event:
                case ServingTermBegun(placement=placement, price=price):
                    begun = (placement.lane, placement.price_version, price.lane, price.version)
                    if plan and begun != (plan.lane, plan.price_version) * 2:
                        yield f"a term begins at {begun}, the plan is {plan}"
                case SweepRunSkipped(reason=reason) if reason.code in CHANGED:
                    yield f"a run is skipped for {reason.code}, and its sweep is completed"
                case _:
                    pass


def test_review2_s1_s2_s3_m2_nothing_waits_beside_room_for_it() -> None:
    assert violations_of(range(SEEDS)) == []


def test_review2_s1_s2_the_random_lives_meet_all_that_may_wait() -> None:
    met = set[str]()
    for seed in range(SEEDS):
        life = Life(seed)
        for _ in range(STEPS):
            life.step()
        met |= {
            f"{type(event).__name__} {getattr(event, 'outcome', '')}".strip()
            for _, events in life.decider.journal
            for event in events
        }
    ends = {f"SweepEnded {outcome}" for outcome in ("completed", "cancelled", "stopped")}
    waits = {"SweepWaiting", "SweepRunSkipped", "ServingPoolStalled", "AdmissionsReviewed"}
    assert {*ends, *waits, "ServingTermBegun", "BudgetSet", "LimitsSet"} <= met


@pytest.mark.parametrize("name", ["follow_sweeps", "follow_serving"])
def test_review2_s1_s2_what_only_ends_of_jobs_unblock_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As it was: a list of the events that may make room, which lacked some."""
    listed = {"SweepSubmitted", "ServingPoolSet", "JobEnded", "LimitsSet", "SuspensionSet"}
    follow = getattr(decide, name)

    def by_list(tenant: Any, events: Any, ctx: Any) -> Any:
        stirring = any(type(event).__name__ in listed for event in events)
        return follow(tenant, events, ctx) if stirring else ()

    monkeypatch.setattr(decide, name, by_list)
    assert violations_of(range(SEEDS)) != []


def test_review2_s1_without_a_deadline_of_the_month_something_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evolve, "_with_review", lambda tenant, _at: tenant)
    assert violations_of(range(SEEDS)) != []
