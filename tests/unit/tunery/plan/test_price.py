"""Price books, and one rounding for each line of an invoice."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.plan.price import (
    PRICES_DIR,
    LineKey,
    PriceBookError,
    job_cost,
    line_micro,
    load_price_books,
)
from tunery.runtime.settings import read_files

BOOK = {
    "version": "2026-11",
    "currency": "EUR",
    "gpu_hour_micro": {"premium": 3_000_000},
    "token_micro_per_million": 500_000,
}
KEY = LineKey(
    hour_utc=1,
    job_id="job1",
    is_credit=False,
    role="train",
    lane="free",
    price_version="2026-11",
    cause="",
)


def test_a_price_book_is_read_and_checked() -> None:
    book = load_price_books({"2026-11.json": msgspec.json.encode(BOOK)})["2026-11"]
    assert book.price("premium").gpu_hour_micro == 3_000_000
    with pytest.raises(KeyError):
        book.price("free")


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


def test_a_line_is_rounded_once_however_many_slices_it_has() -> None:
    slices = [(KEY, 1_000)] * 3 + [(KEY._replace(is_credit=True, cause="lost"), -1_000)]
    assert job_cost(slices, 3_000) == line_micro(3_000, 3_000) + line_micro(-1_000, 3_000)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**9))), st.integers(0, 10**7))
def test_the_order_of_slices_does_not_matter(slices: list[tuple[int, int]], price: int) -> None:
    usage = [(KEY._replace(hour_utc=hour), gpu_ms) for hour, gpu_ms in slices]
    assert job_cost(usage, price) == job_cost(reversed(usage), price)
