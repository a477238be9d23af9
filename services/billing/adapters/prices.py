"""Price books from files: one version, one file, never edited after a job was priced with it."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import msgspec

from services.billing.domain.invoice import PriceMissing
from tunery.plan.price import PriceBook, load_prices


def read_books(folder: Path | None = None) -> Mapping[str, PriceBook]:
    """All price books by version. Raises PriceMissing, which names the file and what is wrong."""
    source = files("services.billing") / "prices" if folder is None else folder
    books: dict[str, PriceBook] = {}
    for file in sorted(source.iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".json"):
            continue
        try:
            book = load_prices(file.read_bytes())
        except msgspec.DecodeError as error:
            raise PriceMissing(f"price book {file.name} cannot be read: {error}") from error
        if file.name != f"{book.version}.json":
            raise PriceMissing(
                f"price book {file.name} says version {book.version!r}; "
                f"rename it to {book.version}.json"
            )
        books[book.version] = book
    if not books:
        raise PriceMissing(f"no price book in {source}; add <version>.json")
    return books
