"""Price books from a folder."""

from pathlib import Path

import pytest

from services.gateway.accounts.prices import load_folder
from services.gateway.settings import GatewaySettings
from tunery.runtime.settings import SettingsError


def test_the_books_that_invoices_are_made_from_are_found() -> None:
    prices = load_folder(GatewaySettings().prices_dir)
    book = prices.book(prices.newest())
    assert book is not None
    assert set(book.gpu_hour_micro) == {"premium", "standard", "free"}
    assert prices.book("1999-01") is None


def test_a_folder_without_books_or_with_a_broken_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="TUNERY_GATEWAY_PRICES_DIR"):
        load_folder(tmp_path)
    (tmp_path / "x.json").write_text('{"version": 1}')
    with pytest.raises(SettingsError, match=r"x\.json is no price book"):
        load_folder(tmp_path)
