"""Price books from a folder."""

from pathlib import Path

import pytest

from services.exporter.adapters.prices import read_books
from tunery.runtime.settings import SettingsError


def test_ours_are_read_and_an_empty_folder_is_named(tmp_path: Path) -> None:
    assert "2026-11" in read_books()
    with pytest.raises(SettingsError, match="TUNERY_EXPORTER_PRICES_DIR"):
        read_books(tmp_path)
