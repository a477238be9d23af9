"""Price books and what things cost."""

import msgspec
import pytest

from tunery.plan.price import PriceBook, load_prices


def test_a_price_book_is_read_and_checked() -> None:
    data = msgspec.json.encode(
        {
            "version": "2026-11",
            "currency": "EUR",
            "gpu_hour_micro": {"premium": 3_000_000},
            "token_micro_per_million": 500_000,
        }
    )
    book = load_prices(data)
    assert isinstance(book, PriceBook)
    assert book.price("premium").gpu_hour_micro == 3_000_000
    with pytest.raises(msgspec.ValidationError, match="gpu_hour_micro"):
        load_prices(b'{"version":"1","currency":"EUR","gpu_hour_micro":7}')
    with pytest.raises(KeyError):
        book.price("free")
