"""Price books, and what GPU time and trained tokens cost, in millionths of a currency unit.

A price book is a file, `<version>.json`, that billing imports into the log. Jobs are priced with
the book on the log, whatever becomes of the file. Ours are in `prices/`.
"""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec

from schemas.account import Lane
from schemas.billing import PriceBook
from schemas.submission import Price
from schemas.units import HOUR_MS, PPM, GpuMs, Micro, divide_half_even, divide_up

PRICES_DIR: Final = Path(str(files("tunery.plan"))) / "prices"
SUFFIX: Final = ".json"


def lane_price(book: PriceBook, lane: Lane) -> Price:
    """The price of a lane in a book. Raises KeyError when the book has none for it."""
    return Price(
        version=book.version,
        currency=book.currency,
        gpu_hour_micro=book.gpu_hour_micro[lane],
        token_micro_per_million=book.token_micro_per_million,
        lane=lane,
    )


class PriceBookError(ValueError):
    """Price books cannot be used; the message names the file and what to do."""


def load_price_books(contents: Mapping[str, bytes]) -> Mapping[str, PriceBook]:
    """Price books by version, from the contents of files by name.

    Raises PriceBookError for no book, one that cannot be read, or one whose file has another name
    than its version: invoices find the book of a job by that name.
    """
    books: dict[str, PriceBook] = {}
    for name in sorted(contents):
        try:
            book = msgspec.json.decode(contents[name], type=PriceBook)
        except msgspec.DecodeError as error:
            raise PriceBookError(f"price book {name} cannot be read: {error}") from error
        if name != f"{book.version}{SUFFIX}":
            raise PriceBookError(
                f"price book {name} says version {book.version!r}; "
                f"rename it to {book.version}{SUFFIX}"
            )
        books[book.version] = book
    if not books:
        raise PriceBookError(f"there is no price book; add <version>{SUFFIX}")
    return books


def price_micro(price: Price, gpu_ms: GpuMs, tokens: int) -> Micro:
    """Expected cost, rounded up: an estimate never promises less than the invoice will say."""
    time = divide_up(gpu_ms * price.gpu_hour_micro, HOUR_MS)
    return time + divide_up(tokens * price.token_micro_per_million, PPM)


# --- what was used ------------------------------------------------------------------------------


def usage_micro(gpu_ms: GpuMs, gpu_hour_micro: Micro) -> Micro:
    """What all of a job's time costs, rounded half to even: never more than `price_micro`."""
    return divide_half_even(gpu_ms * gpu_hour_micro, HOUR_MS)


def line_micro(before: GpuMs, gpu_ms: GpuMs, gpu_hour_micro: Micro) -> Micro:
    """What one line of an invoice costs (credits: negative), after `before` of the same job.

    The line is the difference of two rounded sums. So the lines of a job add up to `usage_micro` of
    their time, whatever they are: all of it credited is exactly 0.
    """
    return usage_micro(before + gpu_ms, gpu_hour_micro) - usage_micro(before, gpu_hour_micro)


def job_cost(gpu_ms: GpuMs, tokens: int, price: Price) -> Micro:
    """What a job costs that was billed `gpu_ms` (use less credits): the sum of its lines."""
    return usage_micro(gpu_ms, price.gpu_hour_micro) + price_micro(price, 0, tokens)
