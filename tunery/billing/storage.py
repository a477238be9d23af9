"""What a tenant keeps in storage, and what a month of it costs, where a book has a price of it.

A tenant keeps its files until they are deleted or expire, its published models until their files
are erased, 30 days after the deletion or at once, and what its sessions saved until it is erased
some days after their end. Parts of uploads, prepared caches and
checkpoints of a training under way are the platform's own and cost nothing. The price is that of a
gigabyte (10⁹ bytes) that is kept all month, by the book that the tenant has at the time: when its
plan moves to another book within the month, each book prices its own part of it.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from msgspec import Struct

from schemas.billing import PriceBook, StorageCharge
from schemas.dataset import FileDeleted, FileRegistered
from schemas.erasure import FilesErased, ModelsErased
from schemas.lifetime import VersionErased
from schemas.model import VersionDeleted, VersionPublished
from schemas.session import CommandAnswered, SessionErased
from schemas.units import HOUR_MS, Ms, divide_half_even
from tunery.billing.currency import in_units
from tunery.billing.periods import Period

GB: Final = 10**9
EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)
TWELFTH_DECIMAL: Final = Decimal("0.000000000001")
MILLIONTH: Final = Decimal("0.000001")
FOREVER: Final[Ms] = 2**62  # what has no end yet


class StoredObject(Struct, frozen=True, kw_only=True):
    """A file or a model of a tenant, or all that a session had saved for a while."""

    bytes: int
    # since, until: when it was stored, and when it was erased
    since: Ms
    until: Ms = FOREVER


class StorageUse(Struct, frozen=True, kw_only=True):
    """Byte hours of a month so far under one price book."""

    price_version: str = ""  # empty: not priced
    byte_hours: int = 0


class BookPeriod(NamedTuple):
    """Start of a price book for a tenant; the next one of its list ends it."""

    since: Ms
    price_version: str


class StorageFact(NamedTuple):
    """A change of one stored object."""

    object_id: str
    bytes: int | None  # size of a new object; None: it was erased


def storage_facts(key: str, event: Any) -> tuple[StorageFact, ...]:
    """Return the changes to a tenant's stored objects in a `dataset`, `model` or `session` event.

    key: of the event
    """
    match event:
        case FilesErased(files=names) | ModelsErased(models=names):
            return tuple(StorageFact(name, None) for name in names)
        case CommandAnswered(saves=saves) if saves:
            # one object at a time, with the bytes of all: erasure names one, however many there are
            saved = StorageFact(f"{key}/{saves}", event.saved_bytes)
            before = (StorageFact(f"{key}/{saves - 1}", None),) if saves > 1 else ()
            return (*before, saved)
        case SessionErased(saves=saves) if saves:
            return (StorageFact(f"{key}/{saves}", None),)
        case _:
            fact = _storage_fact(event)
            return () if fact is None else (fact,)


def _storage_fact(event: Any) -> StorageFact | None:
    match event:
        case FileRegistered():
            return StorageFact(event.file_id, event.content.bytes)
        case VersionPublished():
            return StorageFact(event.terms.model_id, sum(file.bytes for file in event.files))
        case FileDeleted():
            return StorageFact(event.file_id, None)
        case VersionDeleted(erase_at=None) | VersionErased():
            return StorageFact(event.model_id, None)
        case _:
            return None


def storage_of_month(
    objects: Iterable[StoredObject], held: Iterable[BookPeriod], month: Period, now: Ms
) -> tuple[StorageUse, ...]:
    """Byte-hours of a month up to `now` under each price book, rounded once for each.

    held: the tenant's books, in any order. What was kept under them never changes later.
    """
    kept, books = list(objects), sorted(held)
    byte_ms: dict[str, int] = {}
    for book, following in zip_longest(books, books[1:]):
        since = max(month.first_hour * HOUR_MS, book.since)
        until = min(month.end_ms, now, FOREVER if following is None else following.since)
        byte_ms[book.price_version] = byte_ms.get(book.price_version, 0) + sum(
            entry.bytes * max(min(entry.until, until) - max(entry.since, since), 0)
            for entry in kept
        )
    return tuple(
        StorageUse(price_version=version, byte_hours=divide_half_even(byte_ms, HOUR_MS))
        for version, byte_ms in byte_ms.items()
        if byte_ms
    )


def storage_charges(
    uses: Iterable[StorageUse], month: Period, books: Mapping[str, PriceBook]
) -> tuple[StorageCharge, ...]:
    """Return the month's charges for storage, one for each book that prices it."""
    charges = (storage_charge(use, month, books) for use in uses)
    return tuple(charge for charge in charges if charge is not None)


def storage_charge(
    use: StorageUse, month: Period, books: Mapping[str, PriceBook]
) -> StorageCharge | None:
    """Return the charge for storage under one book, rounded once; None: not priced or empty."""
    book = books.get(use.price_version)
    if book is None or not book.storage_micro_per_gb_month or not use.byte_hours:
        return None
    price = book.storage_micro_per_gb_month
    hours = month.end_hour - month.first_hour
    return StorageCharge(
        price_version=book.version,
        byte_hours=use.byte_hours,
        micro_per_gb_month=price,
        amount_micro=divide_half_even(use.byte_hours * price, GB * hours),
    )


def gb_months(charge: StorageCharge, month: Period) -> Decimal:
    """Gigabytes that were kept all month; exact but for the twelfth place."""
    hours = month.end_hour - month.first_hour
    return EXACT.divide(Decimal(charge.byte_hours), GB * hours).quantize(
        TWELFTH_DECIMAL, context=EXACT
    )


def storage_words(charge: StorageCharge) -> str:
    """`files, models and sessions, 12.345 GB-hours at 0.02 a GB-month`."""
    hours = EXACT.divide(Decimal(charge.byte_hours), GB).quantize(MILLIONTH, context=EXACT)
    price = in_units(charge.micro_per_gb_month)
    return f"files, models and sessions, {hours:,} GB-hours at {price} a GB-month"
