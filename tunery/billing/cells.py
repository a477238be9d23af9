"""Cells of CSV files that spreadsheets open."""

from typing import Any, Final

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run what follows


def safe_cell(value: Any) -> Any:
    """The value for a CSV cell: a text that a spreadsheet takes for a formula gets an apostrophe.

    Numbers stay as they are, also those that are written as text: a credit begins with "-".
    """
    if not isinstance(value, str) or not value.startswith(FORMULA) or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    whole, _, decimals = text.removeprefix("-").partition(".")
    return whole.isascii() and whole.isdigit() and (not decimals or decimals.isdigit())
