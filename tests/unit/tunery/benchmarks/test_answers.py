"""The number that an answer ends with."""

import pytest

from tunery.benchmarks.answers import number_of


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She has 3 + 4 = 7 eggs.\n#### 7", "7"),
        ("#### 1,234.", "1234"),
        ("#### -5", "-5"),
        ("It costs $1,200.", "1200"),
        ("First 3, then 18", "18"),
        ("There is none", ""),
        ("#### 8\n\nQuestion: What is 3?\n#### 9", "8"),
        ("12\n\n\n13", "12"),
    ],
)
def test_the_marked_number_or_the_last_one(text: str, number: str) -> None:
    assert number_of(text) == number
