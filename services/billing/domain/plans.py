"""Plans over time: what binds a tenant's admissions now and from the next month on; suspension."""

from typing import assert_never

from immutables import Map
from msgspec.structs import replace

from schemas import errors
from schemas.account import (
    Event,
    Limits,
    PlanChange,
    PlanScheduled,
    PlanSet,
    PlanTerms,
    ResumeTenant,
    SetPlan,
    SuspendTenant,
    TenantResumed,
    TenantSuspended,
)
from schemas.answers import AnswersCounted, AnswerUse
from schemas.billing import PriceBook
from schemas.envelope import Context, Rejected, reject
from schemas.reasons import refusing
from schemas.units import Ms
from services.billing.domain.state import AccountState
from services.billing.domain.terms import currencies_by_month
from tunery.billing.answers import answer_costs
from tunery.billing.contract import find_stranded
from tunery.billing.periods import period_of
from tunery.plan.price import lane_price


def decide(
    tenant: AccountState,
    command: SetPlan | SuspendTenant | ResumeTenant,
    ctx: Context,
    books: Map[str, PriceBook],
) -> tuple[Event, ...]:
    """Decide an operator's command that changes a tenant's plan or suspension."""
    match command:
        case SetPlan():
            terms = with_price(command.terms, books)
            return _set_plan(tenant, replace(command, terms=terms), ctx, books)
        case SuspendTenant():
            return () if tenant.suspended else (TenantSuspended(),)
        case ResumeTenant():
            return (TenantResumed(),) if tenant.suspended else ()
        case _:
            assert_never(command)


def with_price(terms: PlanTerms, books: Map[str, PriceBook]) -> PlanTerms:
    """A plan with the prices of its lane, where its book is on the log."""
    book = books.get(terms.price_version)
    has_lane = book is not None and terms.lane in book.gpu_hour_micro
    return replace(terms, price=lane_price(book, terms.lane) if book and has_lane else None)


def due_plan(tenant: AccountState, ctx: Context) -> tuple[PlanSet, ...]:
    """The scheduled plan, once its moment has come."""
    scheduled = tenant.scheduled
    if scheduled is None or ctx.at < scheduled.effective_at:
        return ()
    return (PlanSet(terms=scheduled.terms, effective_at=scheduled.effective_at),)


def terms_at(tenant: AccountState, at: Ms) -> PlanTerms:
    """Return the plan in force at a moment, even before a due change is on the log."""
    scheduled = tenant.scheduled
    return tenant.terms if scheduled is None or at < scheduled.effective_at else scheduled.terms


def count_answers(
    tenant: AccountState, uses: tuple[AnswerUse, ...], at: Ms, books: Map[str, PriceBook]
) -> AnswersCounted:
    """Count tokens of answers at the prices of the plan in force."""
    version = terms_at(tenant, at).price_version
    costs = answer_costs(uses, books.get(version))
    return AnswersCounted(uses=uses, costs=costs, price_version=version)


def currency_at(tenant: AccountState, at: Ms, books: Map[str, PriceBook]) -> str | None:
    """The currency of the tenant's prices; None: their book is not on the log."""
    book = books.get(terms_at(tenant, at).price_version)
    return None if book is None else book.currency


def wrong_limits(limits: Limits) -> tuple[Rejected, ...]:
    """The refusal of limits that contradict each other."""
    if limits.concurrency < 1:
        below = refusing("concurrency_below_one")
        param = "limits.concurrency"
        return (Rejected(code=errors.MALFORMED, reason=below, param=param),)
    if not 0 <= limits.soft_gpu_ms <= limits.hard_gpu_ms:
        disorder = refusing("limits_out_of_order")
        param = "limits.soft_gpu_ms"
        return (Rejected(code=errors.MALFORMED, reason=disorder, param=param),)
    return ()


def _set_plan(
    tenant: AccountState, command: SetPlan, ctx: Context, books: Map[str, PriceBook]
) -> tuple[Event, ...]:
    """Set or schedule a plan: the last change counts, after one that is already due."""
    terms = command.terms
    if wrong := wrong_limits(terms.limits):
        return wrong
    # answers are priced with the books of this partition, where a new book arrives last
    if terms.price_version not in {tenant.terms.price_version, *books}:
        unknown = refusing("prices_not_here", version=terms.price_version)
        return reject(errors.ILLEGAL_STATE, unknown, "price_version")
    current = period_of(ctx.at)
    first = (current if command.start == "now" else current.following()).name
    versions = tenant.price_versions.set(first, terms.price_version)
    planned = replace(tenant, scheduled=None, price_versions=versions)
    # an amount that was agreed in another currency would silently have no effect
    if stranded := find_stranded(tenant.billing, currencies_by_month(planned, books), first):
        return reject(errors.ILLEGAL_STATE, stranded.reason, "price_version")
    due = due_plan(tenant, ctx)
    now = due[0].terms if due else tenant.terms
    pending = None if due else tenant.scheduled
    match command.start:
        case "now":
            unchanged = terms == now and pending is None
            return due if unchanged else (*due, PlanSet(terms=terms))
        case "next_month":
            change = PlanChange(terms=terms, effective_at=current.end_ms)
            return due if change == pending else (*due, PlanScheduled(change=change))
        case _:
            assert_never(command.start)
