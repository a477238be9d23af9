"""Payable amounts depend on the currency."""

import pytest

from tunery.billing.currency import in_units, is_currency, minor_unit_micro, percent, round_to_minor


@pytest.mark.parametrize(
    ("currency", "micro"), [("EUR", 10_000), ("JPY", 1_000_000), ("KWD", 1_000), ("CLF", 100)]
)
def test_the_minor_unit_is_that_of_the_standard(currency: str, micro: int) -> None:
    assert minor_unit_micro(currency) == micro


@pytest.mark.parametrize(
    ("micro", "rounded"),
    [(5_000, 0), (15_000, 20_000), (-5_000, 0), (-15_001, -20_000), (14_999, 10_000)],
)
def test_halves_are_rounded_to_even(micro: int, rounded: int) -> None:
    assert round_to_minor(micro, "EUR") == rounded


@pytest.mark.parametrize("code", ["eur", "EURO", "E1R", "", "ÄÖÜ"])
def test_a_currency_is_three_capital_letters(code: str) -> None:
    assert is_currency("EUR")
    assert not is_currency(code)


def test_amounts_in_words_have_all_their_digits() -> None:
    assert [in_units(micro) for micro in (2_400_000, -500_000, 1_234_567_891, 0)] == [
        "2.40",
        "-0.50",
        "1234.567891",
        "0.00",
    ]
    assert [percent(ppm) for ppm in (125_000, 1_000_000, 9_999_999, 1)] == [
        "12.5 %",
        "100 %",
        "999.9999 %",
        "0.0001 %",
    ]
