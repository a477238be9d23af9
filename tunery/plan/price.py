"""Price books, and what GPU time and trained tokens cost, in millionths of a currency unit.

A price book is a file, `<version>.json`, that billing imports into the log. Jobs are priced with
the book on the log, whatever becomes of the file. Ours are in `prices/`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas.account import Lane
from schemas.billing import PriceBook, Rate, Tier
from schemas.pool import LeaseRef, Role, UsageCredited, UsageSliced
from schemas.submission import Price
from schemas.training import DEVICES, Device, LeaseHardware
from schemas.units import HOUR_MS, PPM, Micro, MicroGpuMs, Tokens, divide_half_even, divide_up

PRICES_DIR: Final = Path(str(files("tunery.plan"))) / "prices"
SUFFIX: Final = ".json"
UNKNOWN: Final = LeaseHardware()


def lane_price(book: PriceBook, lane: Lane) -> Price:
    """The price of a lane in a book. Raises KeyError when the book has none for it."""
    return Price(
        version=book.version,
        currency=book.currency,
        gpu_hour_micro=book.gpu_hour_micro[lane],
        token_micro_per_million=book.token_micro_per_million,
        lane=lane,
        rates=tuple(rate for rate in book.rates if rate.lane == lane),
    )


def billed_lease(event: UsageSliced | UsageCredited) -> LeaseRef:
    """The lease whose use an event bills or gives back: its price counts."""
    if isinstance(event, UsageCredited):
        return event.used_by or event.lease
    return event.lease


def hourly_micro(price: Price, role: Role, hardware: LeaseHardware | None) -> Micro:
    """Price of a GPU-hour: by the most specific rate for the work and hardware, else the lane's.

    A rate that names the work counts before one that names an accelerator, that before one that
    names a kind of device, and that before one that only says whether it is spot.
    """
    rate = find_rate(price, role, hardware) if price.rates else None
    return price.gpu_hour_micro if rate is None else rate.gpu_hour_micro


def find_rate(price: Price, role: Role, hardware: LeaseHardware | None) -> Rate | None:
    """The rate that counts for some work on some hardware, None: the lane's price does."""
    where = hardware or UNKNOWN
    rates = [rate for rate in price.rates if _is_of(rate, role, where)]
    return max(rates, key=_detail) if rates else None


def dearest_micro(price: Price, device: Device) -> Micro:
    """The dearest GPU-hour that a job may be billed, whichever nodes of that device run it."""
    possible = (
        rate.gpu_hour_micro
        for rate in price.rates
        if rate.device in (None, device) or rate.device not in DEVICES
    )
    return max((price.gpu_hour_micro, *possible))


def _is_of(rate: Rate, role: Role, hardware: LeaseHardware) -> bool:
    return (
        rate.role in (None, role)
        and rate.device in (None, hardware.device, hardware.accelerator)
        and rate.spot in (None, hardware.spot)
    )


def _detail(rate: Rate) -> tuple[bool, bool, bool, bool]:
    """How specific a rate is. Of the rates for one use no two are equally specific."""
    named = rate.device is not None
    return rate.role is not None, named and rate.device not in DEVICES, named, rate.spot is not None


class PriceBookError(ValueError):
    """Price books cannot be used; the message names the file and what to do."""


def load_price_books(contents: Mapping[str, bytes]) -> Mapping[str, PriceBook]:
    """Price books by version, from the contents of files by name.

    Raises PriceBookError for no book, one that cannot be read, one with a price of something that
    is not billed, or one whose file has another name than its version: invoices find the book of a
    job by that name.
    """
    books: dict[str, PriceBook] = {}
    for name in sorted(contents):
        try:
            book = msgspec.json.decode(contents[name], type=PriceBook)
        except msgspec.DecodeError as error:
            raise PriceBookError(f"price book {name} cannot be read: {error}") from error
        if unbilled := _unknown_fields(contents[name]):
            raise PriceBookError(
                f"price book {name} names what is not billed: {', '.join(unbilled)}; remove it"
            )
        if name != f"{book.version}{SUFFIX}":
            raise PriceBookError(
                f"price book {name} says version {book.version!r}; "
                f"rename it to {book.version}{SUFFIX}"
            )
        books[book.version] = book
    if not books:
        raise PriceBookError(f"there is no price book; add <version>{SUFFIX}")
    return books


def _unknown_fields(content: bytes) -> list[str]:
    """Fields that no book has, such as prices of a network; to ignore one would bill nothing."""
    book = msgspec.json.decode(content)
    unknown = [*_others(book, PriceBook, ""), *_unknown_in_tiers(book, "token_tiers", "")]
    for number, rate in enumerate(book.get("rates", ())):
        prefix = f"rates.{number}."
        unknown += [*_others(rate, Rate, prefix), *_unknown_in_tiers(rate, "tiers", prefix)]
    return unknown


def _unknown_in_tiers(fields: Mapping[str, Any], name: str, prefix: str) -> Iterator[str]:
    for number, tier in enumerate(fields.get(name, ())):
        yield from _others(tier, Tier, f"{prefix}{name}.{number}.")


def _others(fields: Iterable[str], known: type[msgspec.Struct], prefix: str) -> list[str]:
    return [f"{prefix}{name}" for name in sorted(set(fields) - set(known.__struct_fields__))]


def price_micro(price: Price, time: MicroGpuMs, tokens: Tokens) -> Micro:
    """Expected cost, rounded up: an estimate never promises less than the invoice will say."""
    return divide_up(time, HOUR_MS) + divide_up(tokens * price.token_micro_per_million, PPM)


# --- what was used ------------------------------------------------------------------------------


def usage_micro(time: MicroGpuMs) -> Micro:
    """Return the cost of all time of a job, rounded half to even: never more than `price_micro`."""
    return divide_half_even(time, HOUR_MS)


def line_micro(before: MicroGpuMs, time: MicroGpuMs) -> Micro:
    """Return the cost of one invoice line (negative for credits), after `before` of the same job.

    The line is the difference of two rounded sums. So the lines of a job add up to `usage_micro` of
    their time at any rates, and a fully credited job costs exactly 0.
    """
    return usage_micro(before + time) - usage_micro(before)


def tokens_micro(tokens: Tokens, token_micro_per_million: Micro) -> Micro:
    """Return the cost of all trained tokens, rounded half to even: never more than `price_micro`.

    Token lines are differences of this function, as time lines are of `usage_micro`.
    """
    return divide_half_even(tokens * token_micro_per_million, PPM)


def volume_micro(quantity: int, per: int, unit_micro: Micro, tiers: Sequence[Tier]) -> Micro:
    """Return the discount of volume tiers on a month's quantity, rounded half to even.

    The discount is 0 below the first tier.

    quantity: quantity at one rate in one month, in whole GPU-milliseconds or tokens.
    per: how many of them are one unit.
    unit_micro: price of a unit before the first tier.
    """
    exact, price = 0, unit_micro
    for tier in tiers:
        exact += max(quantity - tier.above * per, 0) * (price - tier.unit_micro)
        price = tier.unit_micro
    return divide_half_even(exact, per)


def job_cost(time: MicroGpuMs, tokens: Tokens, price: Price) -> Micro:
    """Return the cost of a job that was billed this much (use less credits): the sum of its
    lines.
    """
    return usage_micro(time) + tokens_micro(tokens, price.token_micro_per_million)
