"""Price books on the log: which may be imported, and which is the newest."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Final

from schemas.account import LANES
from schemas.billing import PriceBook
from schemas.envelope import Reason
from schemas.reasons import refusing
from schemas.units import Micro
from tunery.billing.currency import is_currency

PRICE_MICRO_MAX: Final[Micro] = 10**12


def refuse_book(book: PriceBook, known: Mapping[str, PriceBook]) -> Reason | None:
    """Why a book cannot be imported beside the known ones, None: it can."""
    version, prices = book.version, book.gpu_hour_micro
    if version in known and known[version] != book:
        return refusing("prices_changed_content", version=version)
    if not is_currency(book.currency):
        return refusing("prices_currency", version=version)
    if not _is_day(book.effective_from):
        return refusing("prices_date", version=version)
    if not prices or not set(prices) <= set(LANES):
        return refusing("prices_lanes", version=version)
    if not all(0 <= micro <= PRICE_MICRO_MAX for micro in prices.values()):
        return refusing("prices_out_of_range", version=version, limit=PRICE_MICRO_MAX)
    if book.token_micro_per_million != 0:
        return refusing("prices_of_tokens", version=version)
    for other in known.values():
        if other.version != version and _begin_together(other, book):
            return refusing("prices_overlap", version=version, other=other.version)
    return None


def newest_book(books: Iterable[PriceBook], today: str) -> PriceBook | None:
    """The book in force that began last, None: none has begun. `today`: like 2026-11-22."""
    begun = (book for book in books if book.effective_from <= today)
    return max(begun, key=lambda book: (book.effective_from, book.version), default=None)


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _begin_together(book: PriceBook, other: PriceBook) -> bool:
    return (book.currency, book.effective_from) == (other.currency, other.effective_from)
