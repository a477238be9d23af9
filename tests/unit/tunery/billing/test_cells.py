"""Cells that a spreadsheet must not run."""

import pytest

from tunery.billing.cells import safe_cell


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "-", "-1.5e3", "-٣", "--1"]
)
def test_what_begins_like_a_formula_is_text(text: str) -> None:
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["", "plain", "a=b", "-5.00", "-5", "'x", 7, -7, None])
def test_numbers_and_other_texts_stay_as_they_are(value: object) -> None:
    assert safe_cell(value) == value
