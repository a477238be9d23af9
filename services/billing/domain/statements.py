"""Bills over time: when a month is closed, and what operators add to one."""

from collections.abc import Iterator
from typing import Final, assert_never

from schemas import errors
from schemas.account import (
    AdjustInvoice,
    CloseInvoice,
    Event,
    InvoiceAdjusted,
    InvoiceClosed,
    PeriodEnded,
)
from schemas.envelope import Context, Rejected, Tick
from schemas.reasons import refusing
from schemas.units import Micro, Ms
from services.billing.domain.periods import period_of
from services.billing.domain.state import ADJUSTMENTS_MAX, AccountState, Tenants

AMOUNT_MICRO_MAX: Final[Micro] = 10**15


def earliest(state: Tenants) -> tuple[Ms, str] | None:
    """The next moment at which a month of some tenant is to be closed, or its plan changes."""
    due = ((moment, key) for key, tenant in state.items() for moment in _moments(tenant))
    return min(due, default=None)


def _moments(tenant: AccountState) -> Iterator[Ms]:
    if tenant.closes_at is not None:
        yield tenant.closes_at
    if tenant.scheduled is not None:
        yield tenant.scheduled.effective_at


def decide(
    tenant: AccountState, command: AdjustInvoice | CloseInvoice | Tick, ctx: Context
) -> tuple[Event, ...]:
    """What follows from a command about a month and its bill."""
    match command:
        case AdjustInvoice():
            return _adjust(tenant, command, ctx)
        case CloseInvoice():
            return _close(tenant, command)
        case Tick():
            return _tick(tenant, ctx)
        case _:
            assert_never(command)


def _tick(tenant: AccountState, ctx: Context) -> tuple[Event, ...]:
    if tenant.closes_at is None or ctx.at < tenant.closes_at:
        return ()
    soft = tenant.terms.limits.soft_gpu_ms
    return (PeriodEnded(period=tenant.period, soft_gpu_ms=soft, before=tenant.closed),)


def _close(tenant: AccountState, command: CloseInvoice) -> tuple[Event, ...]:
    """The first outcome counts."""
    if tenant.closes_at is not None or command.statement.period != tenant.period:
        return ()
    return (InvoiceClosed(statement=command.statement),)


def _adjust(tenant: AccountState, command: AdjustInvoice, ctx: Context) -> tuple[Event, ...]:
    adjustment = command.adjustment
    if (known := tenant.adjustments.get(adjustment.reference)) is not None:
        exists = refusing("adjustment_exists", reference=adjustment.reference, period=known)
        return (Rejected(code=errors.ALREADY_EXISTS, reason=exists, param="reference"),)
    if not 0 < abs(adjustment.amount_micro) <= AMOUNT_MICRO_MAX:
        wrong = refusing("amount_out_of_range", limit=AMOUNT_MICRO_MAX)
        return (Rejected(code=errors.MALFORMED, reason=wrong, param="amount_micro"),)
    if len(tenant.adjustments) >= ADJUSTMENTS_MAX:
        full = refusing("adjustments_at_most", limit=ADJUSTMENTS_MAX)
        return (Rejected(code=errors.ILLEGAL_STATE, reason=full),)
    return (InvoiceAdjusted(period=period_of(ctx.at).name, adjustment=adjustment),)
