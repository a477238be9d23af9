"""Price books on the log: which may be imported, and which is the newest."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Final, NamedTuple

from schemas.account import LANES
from schemas.billing import PriceBook
from schemas.envelope import Reason
from schemas.reasons import refusing
from schemas.units import Micro
from tunery.billing.currency import is_currency

PRICE_MICRO_MAX: Final[Micro] = 10**12


class BookRefusal(NamedTuple):
    """Why a book cannot be imported, and the field that is to be corrected."""

    reason: Reason
    field: str


def refuse_book(book: PriceBook, known: Mapping[str, PriceBook]) -> BookRefusal | None:
    """Why a book cannot be imported beside the known ones, None: it can."""
    version, prices = book.version, book.gpu_hour_micro
    if version in known and known[version] != book:
        return BookRefusal(refusing("prices_changed_content", version=version), "version")
    if not is_currency(book.currency):
        return BookRefusal(refusing("prices_currency", version=version), "currency")
    if not _is_day(book.effective_from):
        return BookRefusal(refusing("prices_date", version=version), "effective_from")
    if not prices or not set(prices) <= set(LANES):
        return BookRefusal(refusing("prices_lanes", version=version), "gpu_hour_micro")
    for lane, micro in sorted(prices.items()):
        if not 0 <= micro <= PRICE_MICRO_MAX:
            return _out_of_range(version, f"gpu_hour_micro.{lane}")
    if book.token_micro_per_million != 0:
        return BookRefusal(refusing("prices_of_tokens", version=version), "token_micro_per_million")
    for other in known.values():
        if other.version != version and _begin_together(other, book):
            overlap = refusing("prices_overlap", version=version, other=other.version)
            return BookRefusal(overlap, "effective_from")
    return None


def _out_of_range(version: str, field: str) -> BookRefusal:
    return BookRefusal(
        refusing("prices_out_of_range", version=version, limit=PRICE_MICRO_MAX), field
    )


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
