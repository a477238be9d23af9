"""Price books, and what GPU time and trained tokens cost, in millionths of a currency unit.

A price book is a file, `<version>.json`, that is never edited after a job was priced with it. Ours
are in `prices/`.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from schemas.account import Lane
from schemas.envelope import Part
from schemas.submission import Price
from schemas.units import HOUR_MS, PPM, GpuMs, Micro, divide_up

PRICES_DIR: Final = Path(str(files("tunery.plan"))) / "prices"
SUFFIX: Final = ".json"
T = TypeVar("T")


class PriceBook(Part):
    """What a GPU-hour costs per lane, and a million trained tokens."""

    version: str
    currency: str
    gpu_hour_micro: dict[str, Micro]
    token_micro_per_million: Micro

    def price(self, lane: Lane) -> Price:
        """The price of a lane. Raises KeyError when the book has none for it."""
        return Price(
            version=self.version,
            currency=self.currency,
            gpu_hour_micro=self.gpu_hour_micro[lane],
            token_micro_per_million=self.token_micro_per_million,
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


# --- invoice lines ------------------------------------------------------------------------------


class LineKey(NamedTuple):
    """What GPU time of one invoice line has in common. Sorts as the lines of an invoice do.

    hour_utc: number of the UTC hour
    is_credit: time that is credited
    cause: of a credit
    """

    hour_utc: int
    job_id: str
    is_credit: bool
    role: str
    lane: str
    price_version: str
    cause: str


def by_line(usage: Iterable[T], key: Callable[[T], LineKey]) -> Mapping[LineKey, list[T]]:
    """Slices of use and credits by the line of the invoice that they are on, in its order."""
    lines: dict[LineKey, list[T]] = {}
    for entry in usage:
        lines.setdefault(key(entry), []).append(entry)
    return dict(sorted(lines.items()))


def line_micro(gpu_ms: GpuMs, gpu_hour_micro: Micro) -> Micro:
    """What one line of an invoice costs (credits: negative), rounded half to even."""
    whole, rest = divmod(gpu_ms * gpu_hour_micro, HOUR_MS)
    return whole + (2 * rest > HOUR_MS or (2 * rest == HOUR_MS and whole % 2 == 1))


def job_cost(usage: Iterable[tuple[LineKey, GpuMs]], gpu_hour_micro: Micro) -> Micro:
    """Sum of the lines that an invoice has for this use: each is rounded once."""
    lines = by_line(usage, key=itemgetter(0)).values()
    return sum(line_micro(sum(gpu_ms for _, gpu_ms in line), gpu_hour_micro) for line in lines)
