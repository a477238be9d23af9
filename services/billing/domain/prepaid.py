"""Prepaid credits: bought in advance, used up by closed months, the first to expire first.

A credit pays totals with taxes, as EN 16931 takes what was paid in advance (BT-113) off the total
with VAT (BT-112). So each credit is at any time `amount = used + expired + left`.
"""

from collections.abc import Iterable
from typing import Final

from immutables import Map
from msgspec.structs import replace

from schemas import errors
from schemas.account import Event
from schemas.billing import Bill, PrepaidCredit, PrepaidUse
from schemas.envelope import Context, Reason, Rejected
from schemas.prepaid import (
    GrantPrepaid,
    PrepaidExpired,
    PrepaidGranted,
    PrepaidRevoked,
    RevokePrepaid,
)
from schemas.reasons import refusing
from schemas.units import Micro
from services.billing.domain.state import PrepaidBalance
from tunery.billing.contract import is_month, refuse_currency
from tunery.billing.currency import minor_unit_micro
from tunery.billing.periods import period, period_of

PREPAID_MAX: Final = 1_000  # credits of one tenant of which something is left
PREPAID_MICRO_MAX: Final[Micro] = 10**15
CARRIED: Final = "carried:"  # references of credits that come from invoices below zero
Balances = Map[str, PrepaidBalance]


def grant(
    balances: Balances, command: GrantPrepaid, ctx: Context, currency: str | None
) -> tuple[Event, ...]:
    """A new credit; nothing for the same one once more. `currency`: the tenant's, where known."""
    credit, month = command.credit, period_of(ctx.at).name
    known = balances.get(credit.reference)
    if known is not None and known.credit == credit:
        return ()
    if known is not None:
        exists = refusing("prepaid_exists", reference=credit.reference)
        return (Rejected(code=errors.ALREADY_EXISTS, reason=exists, param="reference"),)
    if wrong := _refuse(credit, month, currency):
        reason, param = wrong
        return (Rejected(code=errors.MALFORMED, reason=reason, param=param),)
    if sum(balance.left_micro > 0 for balance in balances.values()) >= PREPAID_MAX:
        full = refusing("prepaid_at_most", limit=PREPAID_MAX)
        return (Rejected(code=errors.ILLEGAL_STATE, reason=full),)
    return (PrepaidGranted(credit=credit, first_month=month),)


def revoke(balances: Balances, command: RevokePrepaid, currency: str | None) -> tuple[Event, ...]:
    """Takes back what is left of a credit, unless it comes from an invoice below zero.

    Such a credit too, where the tenant's prices have another currency by now: no bill may come that
    it pays, and it is to be paid back. currency: of the prices; None: it is not known.
    """
    reference = command.reference
    balance = balances.get(reference)
    if balance is None:
        missing = refusing("prepaid_missing", reference=reference)
        return (Rejected(code=errors.NOT_FOUND, reason=missing, param="reference"),)
    if reference.startswith(CARRIED) and currency in (None, balance.credit.currency):
        reserved = refusing("prepaid_reserved", reference=reference)
        return (Rejected(code=errors.MALFORMED, reason=reserved, param="reference"),)
    if not balance.left_micro:
        return ()
    return (PrepaidRevoked(reference=reference, amount_micro=balance.left_micro),)


def pay_bill(bill: Bill, balances: Balances, month: str) -> Bill:
    """The bill with what prepaid credits pay of it; below zero it becomes such a credit."""
    if bill.total_micro < 0:
        return replace(bill, carried_micro=-bill.total_micro)
    uses, due = [], bill.total_micro
    for balance in _usable(balances, bill.currency, month):
        amount = min(due, balance.left_micro)
        if amount == 0:
            break
        due -= amount
        left = balance.left_micro - amount
        reference = balance.credit.reference
        uses.append(PrepaidUse(reference=reference, amount_micro=amount, left_micro=left))
    return replace(bill, prepaid=tuple(uses))


def follow_closing(
    bills: Iterable[Bill], balances: Balances, month: str
) -> tuple[PrepaidGranted | PrepaidExpired, ...]:
    """Credits that come from bills below zero, and those that expire with the month."""
    carried = (
        PrepaidGranted(
            credit=PrepaidCredit(
                reference=f"{CARRIED}{bill.number}",
                amount_micro=bill.carried_micro,
                currency=bill.currency,
            ),
            first_month=period(month).following().name,
        )
        for bill in bills
        if bill.carried_micro
    )
    expired = (
        PrepaidExpired(reference=reference, amount_micro=balance.left_micro)
        for reference, balance in sorted(use_up(balances, bills).items())
        if balance.left_micro
        and balance.credit.last_month is not None
        and balance.credit.last_month <= month
    )
    return (*carried, *expired)


def use_up(balances: Balances, bills: Iterable[Bill]) -> Balances:
    """Take what the bills of a closed month used off the credits."""
    for bill in bills:
        for use in bill.prepaid:
            balance = balances.get(use.reference)
            if balance is not None:
                used = balance.used_micro + use.amount_micro
                balances = balances.set(use.reference, replace(balance, used_micro=used))
    return balances


def _usable(balances: Balances, currency: str, month: str) -> list[PrepaidBalance]:
    usable = [
        balance
        for balance in balances.values()
        if balance.credit.currency == currency
        and balance.left_micro
        and balance.first_month <= month
        and (balance.credit.last_month is None or month <= balance.credit.last_month)
    ]
    return sorted(usable, key=_order)


def _order(balance: PrepaidBalance) -> tuple[bool, str, str, str]:
    credit = balance.credit
    last = credit.last_month
    return (last is None, last or "", balance.first_month, credit.reference)


def _refuse(credit: PrepaidCredit, month: str, currency: str | None) -> tuple[Reason, str] | None:
    if credit.reference.startswith(CARRIED):
        return refusing("prepaid_reserved", reference=credit.reference), "reference"
    if reason := refuse_currency(credit.currency, currency):
        return reason, "currency"
    unit = minor_unit_micro(credit.currency)
    if not 0 < credit.amount_micro <= PREPAID_MICRO_MAX or credit.amount_micro % unit:
        wrong = refusing("prepaid_out_of_range", limit=PREPAID_MICRO_MAX, unit_micro=unit)
        return wrong, "amount_micro"
    if credit.last_month is None:
        return None
    if not is_month(credit.last_month):
        return refusing("months_malformed", reference=credit.reference), "last_month"
    if credit.last_month < month:
        expired = refusing("prepaid_expired", period=credit.last_month)
        return expired, "last_month"
    return None
