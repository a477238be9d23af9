"""Price books on the log: which may be imported, and which is the newest."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

from msgspec.structs import replace

from schemas.account import LANES
from schemas.billing import PriceBook, Rate, Tier
from schemas.envelope import Reason
from schemas.node import LABEL
from schemas.pool import ROLES
from schemas.reasons import refusing
from schemas.units import Micro
from tunery.billing.answers import prices_of
from tunery.billing.currency import is_currency

PRICE_MICRO_MAX: Final[Micro] = 10**12
TIERS_MAX: Final = 20  # of one rate
TIER_ABOVE_MAX: Final = 10**9  # GPU-hours, or millions of tokens


class BookRefusal(NamedTuple):
    """Why a book cannot be imported, and the field that is to be corrected."""

    reason: Reason
    field: str


def refuse_book(book: PriceBook, known: Mapping[str, PriceBook]) -> BookRefusal | None:
    """Return why a book cannot be imported, given the known ones; None: it can."""
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
    for number, rate in enumerate(book.rates):
        if refusal := _refuse_rate(book, rate, f"rates.{number}"):
            return refusal
    if not 0 <= book.token_micro_per_million <= PRICE_MICRO_MAX:
        return _out_of_range(version, "token_micro_per_million")
    if refusal := _refuse_tiers(
        version, book.token_micro_per_million, book.token_tiers, "token_tiers"
    ):
        return refusal
    if not 0 <= book.storage_micro_per_gb_month <= PRICE_MICRO_MAX:
        return _out_of_range(version, "storage_micro_per_gb_month")
    for field, micro in prices_of(book.answers):
        if not 0 <= micro <= PRICE_MICRO_MAX:
            return _out_of_range(version, f"answers.{field}")
    for other in known.values():
        if other.version != version and _begin_together(other, book):
            overlap = refusing("prices_overlap", version=version, other=other.version)
            return BookRefusal(overlap, "effective_from")
    return None


def _refuse_rate(book: PriceBook, rate: Rate, field: str) -> BookRefusal | None:
    version = book.version
    if rate.lane not in book.gpu_hour_micro:
        return BookRefusal(refusing("prices_rate_lane", version=version), f"{field}.lane")
    if rate.role not in (None, *ROLES):
        return BookRefusal(refusing("prices_rate_role", version=version), f"{field}.role")
    if rate.device is not None and re.fullmatch(LABEL, rate.device) is None:
        return BookRefusal(refusing("prices_rate_device", version=version), f"{field}.device")
    if not 0 <= rate.gpu_hour_micro <= PRICE_MICRO_MAX:
        return _out_of_range(version, f"{field}.gpu_hour_micro")
    same = [replace(other, gpu_hour_micro=0, tiers=()) for other in book.rates]
    if same.count(replace(rate, gpu_hour_micro=0, tiers=())) > 1:
        return BookRefusal(refusing("prices_rate_twice", version=version), field)
    return _refuse_tiers(version, rate.gpu_hour_micro, rate.tiers, f"{field}.tiers")


def _refuse_tiers(
    version: str, unit_micro: Micro, tiers: Sequence[Tier], field: str
) -> BookRefusal | None:
    """Quantities rise and prices fall: so no bill is above what the first price says."""
    if len(tiers) > TIERS_MAX:
        most = refusing("prices_tiers_at_most", version=version, limit=TIERS_MAX)
        return BookRefusal(most, field)
    above, price = 0, unit_micro
    for number, tier in enumerate(tiers):
        if not above < tier.above <= TIER_ABOVE_MAX:
            order = refusing("prices_tier_order", version=version, limit=TIER_ABOVE_MAX)
            return BookRefusal(order, f"{field}.{number}.above")
        if not 0 <= tier.unit_micro < price:
            rises = refusing("prices_tier_rises", version=version)
            return BookRefusal(rises, f"{field}.{number}.unit_micro")
        above, price = tier.above, tier.unit_micro
    return None


def _out_of_range(version: str, field: str) -> BookRefusal:
    return BookRefusal(
        refusing("prices_out_of_range", version=version, limit=PRICE_MICRO_MAX), field
    )


def newest_book(books: Iterable[PriceBook], today: str) -> PriceBook | None:
    """Return the newest book in force; None: none is. today: a day like 2026-11-22."""
    begun = (book for book in books if book.effective_from <= today)
    return max(begun, key=lambda book: (book.effective_from, book.version), default=None)


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _begin_together(book: PriceBook, other: PriceBook) -> bool:
    return (book.currency, book.effective_from) == (other.currency, other.effective_from)
