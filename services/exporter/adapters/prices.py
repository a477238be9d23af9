"""Price books of this installation, read once at the start."""

from collections.abc import Mapping
from pathlib import Path

from tunery.plan.price import PRICES_DIR, SUFFIX, PriceBook, PriceBookError, load_price_books
from tunery.runtime.settings import SettingsError, read_files


def read_books(folder: Path | None = None) -> Mapping[str, PriceBook]:
    """All price books by version, ours where no folder is given. Raises SettingsError."""
    folder = folder or PRICES_DIR
    try:
        return load_price_books(read_files(folder, SUFFIX))
    except PriceBookError as error:
        raise SettingsError(f"TUNERY_EXPORTER_PRICES_DIR={folder}: {error}") from error
