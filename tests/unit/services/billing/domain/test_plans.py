"""Plan changes that begin now or with the next month, and suspension of tenants."""

from msgspec.structs import replace

from schemas.account import (
    CloseInvoice,
    Command,
    Event,
    Limits,
    PeriodEnded,
    PlanChange,
    PlanScheduled,
    PlanSet,
    PlanStart,
    PlanTerms,
    ResumeTenant,
    SetPlan,
    SuspendTenant,
    TenantCreated,
    TenantResumed,
    TenantSuspended,
)
from schemas.answers import AnswersCounted, AnswerUse, CountAnswers
from schemas.billing import PrepaidCredit, PriceBook
from schemas.envelope import Context, Rejected, Tick
from schemas.prepaid import GrantPrepaid, PrepaidGranted
from schemas.sealed import Sealed
from schemas.units import DAY_MS
from services.billing.domain.decide import decide
from services.billing.domain.evolve import evolve
from services.billing.domain.state import INITIAL, Accounts
from services.billing.domain.statements import deadline_of
from tests.unit.services.billing.domain.test_statements import statement
from tunery.billing.periods import period
from tunery.plan.price import lane_price

NOVEMBER, DECEMBER, JANUARY = (period(name) for name in ("2026-11", "2026-12", "2027-01"))
BEGUN = NOVEMBER.end_ms - 10 * DAY_MS
LIMITS = Limits(soft_gpu_ms=10, hard_gpu_ms=20, concurrency=2)
STANDARD = PlanTerms(lane="standard", limits=LIMITS, price_version="2026-11")
PREMIUM = replace(STANDARD, lane="premium")
FREE = replace(STANDARD, lane="free")
NEXT = PriceBook(
    version="2027-01",
    currency="USD",
    gpu_hour_micro={"free": 7, "premium": 9},
    token_micro_per_million=0,
)


class Account:
    """One tenant, and the broker's clock `at`."""

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


def test_review2_m3_a_plan_moves_to_a_price_book_once_that_has_arrived() -> None:
    """Seeds 73000657 and 74000468 of the simulator: the price book arrived after the plan, and no
    budget counted the inference that was billed until then.
    """
    account, moved = Account(), replace(FREE, price_version=NEXT.version)
    starts: tuple[PlanStart, ...] = ("now", "next_month")
    for start in starts:
        (refused,) = account.when(SetPlan(terms=moved, start=start))
        assert isinstance(refused, Rejected)
        assert refused.reason.code == "prices_not_here"
    assert account.when(SetPlan(terms=PREMIUM)) == (PlanSet(terms=PREMIUM),)
    account.state = replace(account.state, books=account.state.books.set(NEXT.version, NEXT))
    account.when(SetPlan(terms=moved))
    assert account.plan.price_version == NEXT.version


def test_a_plan_of_the_next_month_is_scheduled_and_set_when_that_begins() -> None:
    account = Account()
    change = PlanChange(terms=PREMIUM, effective_at=NOVEMBER.end_ms)
    command = SetPlan(terms=PREMIUM, start="next_month")
    assert account.when(command) == (PlanScheduled(change=change),)
    assert account.when(command) == ()
    assert (account.plan, deadline_of(account.state.tenants["acme"])) == (STANDARD, NOVEMBER.end_ms)
    account.at = NOVEMBER.end_ms - 1
    assert account.when(Tick()) == ()
    account.at += 1
    assert account.when(Tick()) == (PlanSet(terms=PREMIUM, effective_at=NOVEMBER.end_ms),)
    assert account.when(Tick()) == ()
    assert account.plan == PREMIUM


def test_the_last_change_counts() -> None:
    account = Account()
    account.when(SetPlan(terms=PREMIUM, start="next_month"))
    account.when(SetPlan(terms=FREE, start="next_month"))
    # cancels the scheduled change
    assert account.when(SetPlan(terms=STANDARD)) == (PlanSet(terms=STANDARD),)
    account.at = NOVEMBER.end_ms
    assert account.when(Tick()) == ()
    assert account.plan == STANDARD


def test_review2_m3_a_plan_that_is_due_prices_answers_before_its_event_is_written() -> None:
    account = Account()
    account.when(SetPlan(terms=PREMIUM, start="next_month"))
    use = AnswerUse(
        key_id="key_1",
        model="base",
        requests=1,
        prompt_tokens=1,
        cached_tokens=0,
        completion_tokens=0,
        engine_ms=1,
    )
    versions = []
    for account.at in (NOVEMBER.end_ms - 1, NOVEMBER.end_ms):
        (counted,) = account.when(CountAnswers(uses=(use,)))
        assert isinstance(counted, AnswersCounted)
        versions.append(counted.price_version)
    assert versions == [STANDARD.price_version, PREMIUM.price_version]
    due = PlanSet(terms=PREMIUM, effective_at=NOVEMBER.end_ms)
    assert account.when(SetPlan(terms=FREE)) == (due, PlanSet(terms=FREE))


def test_a_change_that_is_due_takes_effect_before_the_next_is_scheduled() -> None:
    account = Account()
    account.when(SetPlan(terms=PREMIUM, start="next_month"))
    account.at = NOVEMBER.end_ms
    scheduled = PlanScheduled(change=PlanChange(terms=FREE, effective_at=DECEMBER.end_ms))
    assert account.when(SetPlan(terms=FREE, start="next_month")) == (
        PlanSet(terms=PREMIUM, effective_at=NOVEMBER.end_ms),
        scheduled,
    )
    assert account.plan == PREMIUM
    account.at = JANUARY.end_ms
    account.when(Tick())
    assert account.plan == FREE


def test_review2_m12_a_plan_binds_its_months_however_late_its_event_is_written() -> None:
    """Seed 22 of the simulator with faults at month ends: with the owner down at two of them,
    December had limit and currency of the plan before.
    """
    account = Account()
    account.state = replace(account.state, books=account.state.books.set(NEXT.version, NEXT))
    moved = replace(FREE, limits=replace(LIMITS, soft_gpu_ms=7), price_version=NEXT.version)
    account.when(SetPlan(terms=moved, start="next_month"))
    account.at = JANUARY.end_ms - DAY_MS
    ended = []
    for name in ("2026-11", "2026-12"):
        ended += [event for event in account.when(Tick()) if isinstance(event, PeriodEnded)]
        account.when(CloseInvoice(statement=statement(name)))
    assert [(entry.period, entry.soft_gpu_ms, entry.price_version) for entry in ended] == [
        ("2026-11", LIMITS.soft_gpu_ms, STANDARD.price_version),
        ("2026-12", 7, NEXT.version),
    ]


def test_review2_m12_prepaid_credits_are_in_the_currency_of_a_plan_that_is_due() -> None:
    """Seeds 44 and 101: until the next tick credits were in the currency of the plan before."""
    account = Account()
    euros = replace(NEXT, version=STANDARD.price_version, currency="EUR")
    account.state = replace(
        account.state, books=account.state.books.update({e.version: e for e in (NEXT, euros)})
    )
    account.when(SetPlan(terms=replace(FREE, price_version=NEXT.version), start="next_month"))
    granted = []
    for account.at in (NOVEMBER.end_ms - 1, NOVEMBER.end_ms):
        for currency in ("EUR", "USD"):
            credit = PrepaidCredit(
                reference=f"{account.at}-{currency}", amount_micro=10**6, currency=currency
            )
            events = account.when(GrantPrepaid(credit=credit))
            granted += [currency for event in events if isinstance(event, PrepaidGranted)]
    assert granted == ["EUR", "USD"]


def test_a_tenant_is_suspended_and_resumed_once() -> None:
    account = Account()
    assert account.when(ResumeTenant()) == ()
    assert account.when(SuspendTenant()) == (TenantSuspended(),)
    assert account.when(SuspendTenant()) == ()
    assert account.when(ResumeTenant()) == (TenantResumed(),)


def test_review2_m2_a_plan_has_the_prices_of_its_lane_where_its_book_is_known() -> None:
    account = Account()
    account.state = replace(account.state, books=account.state.books.set(NEXT.version, NEXT))
    terms = replace(FREE, price_version="2027-01")
    account.when(SetPlan(terms=terms))
    assert account.plan.price == lane_price(NEXT, "free")
    assert account.when(SetPlan(terms=terms)) == ()
    premium = replace(terms, lane="premium")
    (later,) = account.when(SetPlan(terms=premium, start="next_month"))
    change = PlanChange(
        terms=replace(premium, price=lane_price(NEXT, "premium")), effective_at=NOVEMBER.end_ms
    )
    assert later == PlanScheduled(change=change)
    account.when(SetPlan(terms=replace(terms, lane="standard")))
    assert account.plan.price is None
