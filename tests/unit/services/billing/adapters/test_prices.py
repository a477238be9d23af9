"""Price books: ours is there, wrong ones are named."""

import shutil
from pathlib import Path

import pytest

from services.billing.adapters.prices import read_books
from tunery.billing.lines import PriceMissing
from tunery.plan.price import PRICES_DIR

OURS = PRICES_DIR / "2026-11.json"


def test_our_book_has_a_price_for_every_lane() -> None:
    books = read_books()
    assert set(books["2026-11"].gpu_hour_micro) == {"premium", "standard", "free"}
    assert all(version == book.version for version, book in books.items())


def test_a_book_under_another_name_is_named(tmp_path: Path) -> None:
    shutil.copy(OURS, tmp_path / "2027-01.json")
    with pytest.raises(PriceMissing, match=r"rename it to 2026-11\.json"):
        read_books(tmp_path)


def test_a_broken_book_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(PriceMissing, match="no price book"):
        read_books(tmp_path)
    (tmp_path / "x.json").write_text('{"version": 1}')
    with pytest.raises(PriceMissing, match=r"x\.json cannot be read.*version"):
        read_books(tmp_path)
