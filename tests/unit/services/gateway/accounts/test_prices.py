"""Price books on the log, as the gateway sees them."""

import pytest
from msgspec.structs import replace

from schemas.account import PricesImported
from schemas.billing import PriceBook
from services.gateway.views.tables.accounts import PRICES
from tests.unit.services.gateway.control_plane import control_plane
from tests.unit.services.gateway.view_rows import folded, only

BOOK = PriceBook(
    version="2026-11",
    currency="EUR",
    gpu_hour_micro={"standard": 2_400_000},
    token_micro_per_million=0,
    effective_from="2026-11-01",
)


async def test_money_b3_jobs_are_estimated_with_the_books_of_the_log() -> None:
    async with control_plane() as plane:
        book = await plane.deps.prices.newest("2026-11-30")
        assert book is not None
        assert await plane.deps.prices.book(book.version) == book
        assert await plane.deps.prices.book("1999-01") is None
        assert await plane.deps.prices.newest("1999-01-01") is None


async def test_a_book_is_read_once_because_a_version_never_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with control_plane() as plane:
        newest = await plane.deps.prices.newest("2026-11-30")
        assert newest is not None
        assert await plane.deps.prices.book(newest.version) == newest
        monkeypatch.setattr(plane.deps.views, "page", None)
        assert await plane.deps.prices.book(newest.version) == newest


def test_a_book_is_one_row_of_all_partitions() -> None:
    imported = PricesImported(book=BOOK, sha256="a" * 64)
    row = only(folded("account", imported, imported, key="*"), PRICES)
    assert row.book == replace(BOOK)
