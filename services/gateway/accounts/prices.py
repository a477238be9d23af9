"""Price books: versioned files, read once at the start."""

from collections.abc import Mapping
from pathlib import Path

from tunery.plan.price import SUFFIX, PriceBook, PriceBookError, load_price_books
from tunery.runtime.settings import SettingsError, read_files


class FilePrices:
    """Implements `Prices`."""

    def __init__(self, books: Mapping[str, PriceBook]) -> None:
        self._books = dict(books)

    def book(self, version: str) -> PriceBook | None:
        return self._books.get(version)

    def newest(self) -> str:
        return max(self._books)


def load_folder(folder: Path) -> FilePrices:
    """All price books of a folder. Raises SettingsError when there is none, or a malformed one."""
    try:
        return FilePrices(load_price_books(read_files(folder, SUFFIX)))
    except PriceBookError as error:
        raise SettingsError(f"TUNERY_GATEWAY_PRICES_DIR={folder}: {error}") from error
