"""Billing terms by month, and the currency of the amounts in them."""

from typing import Final

from immutables import Map

from schemas import errors
from schemas.account import BillingTermsSet, Event, SetBillingTerms
from schemas.billing import PriceBook
from schemas.envelope import Context, reject
from schemas.reasons import refusing
from schemas.units import PPM
from services.billing.domain.state import AccountState
from tunery.billing.contract import find_stranded, is_month, refuse_contract
from tunery.billing.periods import in_force, period_of

TAXES_MAX: Final = 5
DUE_DAYS_MAX: Final = 365
TERMS_MAX: Final = 50  # months that begin with other terms, of those that are not closed


def set_terms(
    tenant: AccountState, command: SetBillingTerms, ctx: Context, books: Map[str, PriceBook]
) -> tuple[Event, ...]:
    """The terms of a month and those after it, up to the next one that has its own."""
    terms, current = command.terms, period_of(ctx.at).name
    month = current if command.from_month is None else command.from_month
    if not is_month(month):
        return reject(errors.MALFORMED, refusing("month_malformed"), "from_month")
    # the bill of a month that has ended is being made of the terms that its end had
    ended = tenant.period if tenant.closes_at is None else None
    if month < tenant.period or month == ended:
        return reject(errors.ILLEGAL_STATE, refusing("month_over", period=month), "from_month")
    if len(terms.taxes) > TAXES_MAX:
        return reject(errors.MALFORMED, refusing("taxes_at_most", limit=TAXES_MAX), "taxes")
    if any(not 0 <= rate.rate_ppm <= PPM for rate in terms.taxes):
        return reject(errors.MALFORMED, refusing("tax_out_of_range"), "taxes")
    if not 0 <= terms.due_days <= DUE_DAYS_MAX:
        wrong = refusing("due_days_out_of_range", limit=DUE_DAYS_MAX)
        return reject(errors.MALFORMED, wrong, "due_days")
    currencies = currencies_by_month(tenant, books)
    if refused := refuse_contract(terms, in_force(currencies, month, None)):
        return reject(errors.MALFORMED, *refused)
    changed = tenant.billing.set(month, terms)
    if stranded := find_stranded(changed, currencies, month):
        return reject(errors.MALFORMED, stranded.reason, stranded.term)
    if terms == tenant.billing.get(month):
        return ()
    if len(changed) > TERMS_MAX:
        return reject(errors.ILLEGAL_STATE, refusing("terms_months_at_most", limit=TERMS_MAX))
    return (BillingTermsSet(terms=terms, from_month=month),)


def currencies_by_month(tenant: AccountState, books: Map[str, PriceBook]) -> Map[str, str | None]:
    """Month → currency of prices from then on; None: the book is not on the log yet."""
    versions = tenant.price_versions
    if (change := tenant.scheduled) is not None:
        month = period_of(change.effective_at).name
        versions = versions.set(month, change.terms.price_version)
    return Map(
        {
            month: books[version].currency if version in books else None
            for month, version in versions.items()
        }
    )
