"""Price books, and one cumulative rounding for all lines of a job."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.submission import Price
from tunery.plan.price import (
    PRICES_DIR,
    PriceBookError,
    job_cost,
    lane_price,
    line_micro,
    load_price_books,
    price_micro,
)
from tunery.runtime.settings import read_files

BOOK = {
    "version": "2026-11",
    "currency": "EUR",
    "gpu_hour_micro": {"premium": 3_000_000},
    "token_micro_per_million": 500_000,
}


def test_a_price_book_is_read_and_checked() -> None:
    book = load_price_books({"2026-11.json": msgspec.json.encode(BOOK)})["2026-11"]
    assert lane_price(book, "premium").gpu_hour_micro == 3_000_000
    with pytest.raises(KeyError):
        lane_price(book, "free")


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ({}, "there is no price book"),
        (
            {"1.json": b'{"version":"1","currency":"EUR","gpu_hour_micro":7}'},
            "1.json cannot be read.*gpu_hour_micro",
        ),
        ({"2027-01.json": msgspec.json.encode(BOOK)}, r"rename it to 2026-11\.json"),
    ],
)
def test_what_is_wrong_with_a_price_book_is_named(contents: dict[str, bytes], words: str) -> None:
    with pytest.raises(PriceBookError, match=words):
        load_price_books(contents)


def test_our_books_have_a_price_for_every_lane() -> None:
    books = load_price_books(read_files(PRICES_DIR, ".json"))
    assert set(books["2026-11"].gpu_hour_micro) == {"premium", "standard", "free"}


@given(st.lists(st.integers(-(10**9), 10**9)), st.integers(0, 10**9))
def test_money_c8_lines_add_up_to_the_cost_of_the_job(lines: list[int], gpu_hour: int) -> None:
    price = Price(version="v", currency="EUR", gpu_hour_micro=gpu_hour)
    before, amounts = 0, []
    for gpu_ms in lines:
        amounts.append(line_micro(before, gpu_ms, gpu_hour))
        before += gpu_ms
    assert sum(amounts) == job_cost(before, 0, price) <= price_micro(price, before, 0)
    assert sum(amounts) + line_micro(before, -before, gpu_hour) == 0


def test_money_c8_a_day_of_small_lines_is_not_above_the_highest_price() -> None:
    price = Price(version="v", currency="EUR", gpu_hour_micro=2_399_999)
    amounts = [line_micro(hour * 3_601, 3_601, price.gpu_hour_micro) for hour in range(24)]
    assert sum(amounts) <= price_micro(price, 24 * 3_601, 0)
