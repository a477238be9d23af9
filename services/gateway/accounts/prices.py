"""Price books: versioned files, read once at the start."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tunery.plan.price import PriceBook, load_prices
from tunery.runtime.settings import SettingsError


class FilePrices:
    """Implements `Prices`."""

    def __init__(self, books: Mapping[str, PriceBook]) -> None:
        self._books = dict(books)

    def book(self, version: str) -> PriceBook | None:
        return self._books.get(version)

    def newest(self) -> str:
        return max(self._books)


def load_folder(folder: Path) -> FilePrices:
    """Every `*.json` of the folder. Raises SettingsError for none, or one that is wrong."""
    books = {}
    for path in sorted(folder.glob("*.json")):
        try:
            book = load_prices(path.read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            raise SettingsError(f"{path} is no price book: {error}; correct it") from error
        books[book.version] = book
    if not books:
        raise SettingsError(
            f"{folder} has no price book; set TUNERY_GATEWAY_PRICES_DIR to a folder with one"
        )
    return FilePrices(books)
