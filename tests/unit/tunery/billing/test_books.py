"""Price books: what may be imported, and which new tenants get."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.billing import AnswerPrices, PriceBook, Rate, Tier
from tunery.billing.books import newest_book, refuse_book
from tunery.billing.currency import is_currency

BOOK = PriceBook(
    version="2026-11",
    currency="EUR",
    gpu_hour_micro={"standard": 2_400_000, "free": 0},
    token_micro_per_million=0,
    effective_from="2026-11-01",
)


def changed(**changes: Any) -> PriceBook:
    """Another book than `BOOK`."""
    return replace(BOOK, **{"version": "next", "effective_from": "2027-01-01", **changes})


RATE = Rate(lane="standard", gpu_hour_micro=1_000_000, role="eval")


def tiers(*prices: tuple[int, int]) -> tuple[Tier, ...]:
    return tuple(Tier(above=above, unit_micro=micro) for above, micro in prices)


def rated(**changes: Any) -> PriceBook:
    return changed(rates=(replace(RATE, **changes),))


@pytest.mark.parametrize(
    ("book", "code", "field"),
    [
        (changed(version="2026-11"), "prices_changed_content", "version"),
        (changed(currency=""), "prices_currency", "currency"),
        (changed(effective_from=""), "prices_date", "effective_from"),
        (changed(effective_from="20270101"), "prices_date", "effective_from"),
        (changed(gpu_hour_micro={}), "prices_lanes", "gpu_hour_micro"),
        (changed(gpu_hour_micro={"fast": 1}), "prices_lanes", "gpu_hour_micro"),
        (changed(gpu_hour_micro={"free": -1}), "prices_out_of_range", "gpu_hour_micro.free"),
        (changed(gpu_hour_micro={"free": 10**13}), "prices_out_of_range", "gpu_hour_micro.free"),
        (
            changed(storage_micro_per_gb_month=-1),
            "prices_out_of_range",
            "storage_micro_per_gb_month",
        ),
        (
            changed(
                answers=AnswerPrices(
                    prompt_micro_per_million=1,
                    cached_micro_per_million=-1,
                    completion_micro_per_million=1,
                )
            ),
            "prices_out_of_range",
            "answers.cached_micro_per_million",
        ),
        (changed(token_micro_per_million=-1), "prices_out_of_range", "token_micro_per_million"),
        (changed(effective_from="2026-11-01"), "prices_overlap", "effective_from"),
        (rated(lane="premium"), "prices_rate_lane", "rates.0.lane"),
        (rated(role="publish"), "prices_rate_role", "rates.0.role"),
        (rated(device="H200"), "prices_rate_device", "rates.0.device"),
        (rated(gpu_hour_micro=-1), "prices_out_of_range", "rates.0.gpu_hour_micro"),
        (changed(rates=(RATE, replace(RATE, gpu_hour_micro=7))), "prices_rate_twice", "rates.0"),
        (rated(tiers=tiers((0, 5))), "prices_tier_order", "rates.0.tiers.0.above"),
        (rated(tiers=tiers((-1, 5))), "prices_tier_order", "rates.0.tiers.0.above"),
        (rated(tiers=tiers((10**10, 5))), "prices_tier_order", "rates.0.tiers.0.above"),
        (rated(tiers=tiers((9, 5), (9, 4))), "prices_tier_order", "rates.0.tiers.1.above"),
        (rated(tiers=tiers((9, 5), (8, 4))), "prices_tier_order", "rates.0.tiers.1.above"),
        (rated(tiers=tiers((9, 1_000_000))), "prices_tier_rises", "rates.0.tiers.0.unit_micro"),
        (rated(tiers=tiers((8, 5), (9, 6))), "prices_tier_rises", "rates.0.tiers.1.unit_micro"),
        (rated(tiers=tiers((8, -1))), "prices_tier_rises", "rates.0.tiers.0.unit_micro"),
        (rated(tiers=tiers((8, 5)) * 21), "prices_tiers_at_most", "rates.0.tiers"),
        (changed(token_tiers=tiers((8, 0))), "prices_tier_rises", "token_tiers.0.unit_micro"),
    ],
)
def test_money_b3_books_that_make_no_sense_are_refused(
    book: PriceBook, code: str, field: str
) -> None:
    refusal = refuse_book(book, {BOOK.version: BOOK})
    assert refusal is not None
    assert (refusal.reason.code, refusal.field) == (code, field)


def test_money_b3_good_books_and_repeats_are_taken() -> None:
    known = {BOOK.version: BOOK}
    assert refuse_book(BOOK, known) is None
    assert refuse_book(changed(), known) is None
    assert refuse_book(changed(rates=(RATE, replace(RATE, role="train"))), known) is None
    assert refuse_book(changed(effective_from="2026-11-01", currency="USD"), known) is None
    assert refuse_book(rated(tiers=tiers((8, 5), (9, 0))), known) is None
    assert is_currency(BOOK.currency)


def test_money_b3_the_newest_book_is_the_one_that_began_last_whatever_its_name() -> None:
    books = [BOOK, changed(version="2026-9", effective_from="2026-09-01"), changed()]
    assert newest_book(books, "2026-11-22") == BOOK
    assert newest_book(books, "2027-01-01") == changed()
    assert newest_book(books, "2026-08-31") is None
