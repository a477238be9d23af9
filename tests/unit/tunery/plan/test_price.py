"""Price books, and one cumulative rounding for all lines of a job."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.billing import Rate
from schemas.pool import Role
from schemas.submission import Price
from schemas.training import LeaseHardware
from tunery.plan.price import (
    PRICES_DIR,
    PriceBookError,
    dearest_micro,
    hourly_micro,
    job_cost,
    lane_price,
    line_micro,
    load_price_books,
    price_micro,
)
from tunery.platform.settings import read_files

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
        (
            {"2026-11.json": msgspec.json.encode(BOOK | {"network_micro_per_gb": 1})},
            "2026-11.json names what is not billed: network_micro_per_gb; remove it",
        ),
        (
            {
                "2026-11.json": msgspec.json.encode(
                    BOOK | {"rates": [{"lane": "premium", "gpu_hour_micro": 1, "zone": "eu"}]}
                )
            },
            r"names what is not billed: rates\.0\.zone",
        ),
        (
            {
                "2026-11.json": msgspec.json.encode(
                    BOOK | {"token_tiers": [{"above": 1, "unit_micro": 1, "until": 5}]}
                )
            },
            r"names what is not billed: token_tiers\.0\.until",
        ),
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
        amounts.append(line_micro(before, gpu_ms * gpu_hour))
        before += gpu_ms * gpu_hour
    assert sum(amounts) == job_cost(before, 0, price) <= price_micro(price, before, 0)
    assert sum(amounts) + line_micro(before, -before) == 0


def test_money_c8_a_day_of_small_lines_is_not_above_the_highest_price() -> None:
    price = Price(version="v", currency="EUR", gpu_hour_micro=2_399_999)
    time = 3_601 * price.gpu_hour_micro
    amounts = [line_micro(hour * time, time) for hour in range(24)]
    assert sum(amounts) <= price_micro(price, 24 * time, 0)


RATED = Price(
    version="v",
    currency="EUR",
    gpu_hour_micro=2_400_000,
    rates=(
        Rate(lane="standard", gpu_hour_micro=1_000_000, role="eval"),
        Rate(lane="standard", gpu_hour_micro=4_000_000, device="cuda"),
        Rate(lane="standard", gpu_hour_micro=9_000_000, device="h200"),
        Rate(lane="standard", gpu_hour_micro=3_000_000, device="h200", spot=True),
        Rate(lane="standard", gpu_hour_micro=1_500_000, spot=True),
    ),
)
H200 = LeaseHardware(device="cuda", accelerator="h200")


@pytest.mark.parametrize(
    ("role", "hardware", "hourly"),
    [
        ("train", None, 2_400_000),
        ("train", LeaseHardware(spot=True), 1_500_000),
        ("train", LeaseHardware(device="cuda"), 4_000_000),
        ("train", LeaseHardware(device="cuda", accelerator="a100"), 4_000_000),
        ("train", LeaseHardware(device="cuda", spot=True), 4_000_000),
        ("train", H200, 9_000_000),
        ("train", replace(H200, spot=True), 3_000_000),
        ("eval", H200, 1_000_000),
    ],
)
def test_money_b3_the_rate_that_says_most_of_a_use_counts(
    role: Role, hardware: LeaseHardware | None, hourly: int
) -> None:
    assert hourly_micro(RATED, role, hardware) == hourly


def test_money_b3_the_price_of_a_hold_is_that_of_the_dearest_nodes_it_may_get() -> None:
    assert dearest_micro(RATED, "cuda") == 9_000_000
    only_cuda = replace(RATED, rates=RATED.rates[:2])
    assert (dearest_micro(only_cuda, "cpu"), dearest_micro(only_cuda, "cuda")) == (
        2_400_000,
        4_000_000,
    )


@given(
    uses=st.lists(
        st.tuples(
            st.sampled_from(("train", "eval")),
            st.sampled_from(("", "h200", "a100")),
            st.booleans(),
            st.integers(1, 10**8),
        )
    )
)
def test_money_b3_no_use_on_any_nodes_passes_the_price_of_its_hold(
    uses: list[tuple[Role, str, bool, int]],
) -> None:
    time = sum(
        gpu_ms
        * hourly_micro(RATED, role, LeaseHardware(device="cuda", accelerator=name, spot=spot))
        for role, name, spot, gpu_ms in uses
    )
    hold = sum(gpu_ms for *_, gpu_ms in uses)
    assert job_cost(time, 0, RATED) <= price_micro(RATED, hold * dearest_micro(RATED, "cuda"), 0)
