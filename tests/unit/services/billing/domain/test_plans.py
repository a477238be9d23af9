"""Plans over time: now, or from the first moment of the next month; suspension."""

from msgspec.structs import replace

from schemas.account import (
    Command,
    Event,
    Limits,
    PlanChange,
    PlanScheduled,
    PlanSet,
    PlanTerms,
    ResumeTenant,
    SetPlan,
    SuspendTenant,
    TenantCreated,
    TenantResumed,
    TenantSuspended,
)
from schemas.envelope import Context, Tick
from schemas.sealed import Sealed
from schemas.units import DAY_MS
from services.billing.domain.decide import decide
from services.billing.domain.evolve import evolve
from services.billing.domain.state import INITIAL, Accounts
from services.billing.domain.statements import earliest
from tunery.billing.periods import period

NOVEMBER, DECEMBER, JANUARY = (period(name) for name in ("2026-11", "2026-12", "2027-01"))
BEGUN = NOVEMBER.end_ms - 10 * DAY_MS
LIMITS = Limits(soft_gpu_ms=10, hard_gpu_ms=20, concurrency=2)
STANDARD = PlanTerms(lane="standard", limits=LIMITS, price_version="2026-11")
PREMIUM = replace(STANDARD, lane="premium")
FREE = replace(STANDARD, lane="free")


class Account:
    """One tenant, and the time of the broker."""

    def __init__(self) -> None:
        self.at = BEGUN
        name = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
        self.state: Accounts = evolve(
            INITIAL, TenantCreated(name=name, terms=STANDARD), self._context()
        )

    def _context(self) -> Context:
        return Context(at=self.at, key="acme", tenant="acme", command_id="0" * 32, seq=1)

    def when(self, command: Command) -> tuple[Event, ...]:
        events = decide(self.state, command, self._context())
        for event in events:
            self.state = evolve(self.state, event, self._context())
        return events

    @property
    def plan(self) -> PlanTerms:
        return self.state.tenants["acme"].terms


def test_a_plan_of_the_next_month_is_a_fact_that_comes_due() -> None:
    account = Account()
    change = PlanChange(terms=PREMIUM, effective_at=NOVEMBER.end_ms)
    command = SetPlan(terms=PREMIUM, start="next_month")
    assert account.when(command) == (PlanScheduled(change=change),)
    assert account.when(command) == ()
    assert (account.plan, earliest(account.state.tenants)) == (STANDARD, (NOVEMBER.end_ms, "acme"))
    account.at = NOVEMBER.end_ms - 1
    assert account.when(Tick()) == ()
    account.at += 1
    assert account.when(Tick()) == (PlanSet(terms=PREMIUM),)
    assert account.when(Tick()) == ()
    assert account.plan == PREMIUM


def test_the_last_change_counts() -> None:
    account = Account()
    account.when(SetPlan(terms=PREMIUM, start="next_month"))
    account.when(SetPlan(terms=FREE, start="next_month"))
    assert account.when(SetPlan(terms=STANDARD)) == (PlanSet(terms=STANDARD),)  # takes it back
    account.at = NOVEMBER.end_ms
    assert account.when(Tick()) == ()
    assert account.plan == STANDARD


def test_a_change_that_is_due_takes_effect_before_the_next_is_scheduled() -> None:
    account = Account()
    account.when(SetPlan(terms=PREMIUM, start="next_month"))
    account.at = NOVEMBER.end_ms
    scheduled = PlanScheduled(change=PlanChange(terms=FREE, effective_at=DECEMBER.end_ms))
    assert account.when(SetPlan(terms=FREE, start="next_month")) == (
        PlanSet(terms=PREMIUM),
        scheduled,
    )
    assert account.plan == PREMIUM
    account.at = JANUARY.end_ms
    account.when(Tick())
    assert account.plan == FREE


def test_a_tenant_is_suspended_and_resumed_once() -> None:
    account = Account()
    assert account.when(ResumeTenant()) == ()
    assert account.when(SuspendTenant()) == (TenantSuspended(),)
    assert account.when(SuspendTenant()) == ()
    assert account.when(ResumeTenant()) == (TenantResumed(),)
