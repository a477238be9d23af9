"""Price books from a folder."""

import shutil
from pathlib import Path

import pytest

from services.gateway.accounts.prices import load_folder
from services.gateway.settings import GatewaySettings
from tunery.plan.price import PRICES_DIR
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
    with pytest.raises(SettingsError, match=r"x\.json cannot be read"):
        load_folder(tmp_path)


def test_a_book_under_another_name_is_refused(tmp_path: Path) -> None:
    shutil.copy(PRICES_DIR / "2026-11.json", tmp_path / "2027-01.json")
    with pytest.raises(SettingsError, match=r"rename it to 2026-11\.json"):
        load_folder(tmp_path)
