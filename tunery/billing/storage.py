"""What a tenant keeps in storage, and what a month of it costs, where a book has a price of it.

A tenant keeps its files until they are deleted or expire, and its published models until they are
erased, 30 days after they are deleted unless at once. Parts of uploads, prepared caches and
checkpoints of a training under way are the platform's own and cost nothing. The price is that of a
gigabyte (10⁹ bytes) that is kept all month.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final, NamedTuple

from msgspec import Struct

from schemas.billing import PriceBook, StorageCharge
from schemas.dataset import FileDeleted, FileRegistered
from schemas.erasure import FilesErased, ModelsErased
from schemas.lifetime import VersionErased
from schemas.model import (
    VersionDeleted,
    VersionPublished,
)
from schemas.units import HOUR_MS, Ms, divide_half_even
from tunery.billing.currency import in_units
from tunery.billing.periods import Period

GB: Final = 10**9
EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)
TWELFTH_DECIMAL: Final = Decimal("0.000000000001")
MILLIONTH: Final = Decimal("0.000001")
FOREVER: Final[Ms] = 2**62  # what has no end yet


class StoredObject(Struct, frozen=True, kw_only=True):
    """A file or a model of a tenant. `since`, `until`: between these moments it is kept."""

    bytes: int
    since: Ms
    until: Ms = FOREVER


class StorageUse(Struct, frozen=True, kw_only=True):
    """What is kept in a month so far. `price_version`: the tenant's book; empty: not priced."""

    price_version: str = ""
    byte_hours: int = 0


class StorageFact(NamedTuple):
    """What an event says of an object. `bytes`: of a new one, None: the object is gone."""

    object_id: str
    bytes: int | None


def storage_facts(event: Any) -> tuple[StorageFact, ...]:
    """What an event of `dataset` or `model` changes in what its tenant keeps."""
    match event:
        case FilesErased(files=names) | ModelsErased(models=names):
            return tuple(StorageFact(name, None) for name in names)
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


def kept_byte_hours(objects: Iterable[StoredObject], month: Period, now: Ms) -> int:
    """Byte-hours of a month up to `now`, rounded once. What was kept in it never changes later."""
    first, end = month.first_hour * HOUR_MS, min(month.end_ms, now)
    byte_ms = sum(
        kept.bytes * max(min(kept.until, end) - max(kept.since, first), 0) for kept in objects
    )
    return divide_half_even(byte_ms, HOUR_MS)


def storage_charge(
    use: StorageUse, month: Period, books: Mapping[str, PriceBook]
) -> StorageCharge | None:
    """What the month's storage costs, rounded once; None: it has no price, or nothing was kept."""
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
    """`files and models, 12.345 GB-hours at 0.02 a GB-month`."""
    hours = EXACT.divide(Decimal(charge.byte_hours), GB).quantize(MILLIONTH, context=EXACT)
    price = in_units(charge.micro_per_gb_month)
    return f"files and models, {hours:,} GB-hours at {price} a GB-month"
