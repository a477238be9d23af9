"""Rows: nothing lost, nothing over, always the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.tokens.packing import pack


@given(st.lists(st.integers(1, 64), max_size=200))
def test_every_sequence_once_and_no_row_over(lengths: list[int]) -> None:
    rows = pack(lengths, 64).rows()
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    assert all(0 < sum(lengths[number] for number in row) <= 64 for row in rows)
    assert rows == pack(lengths, 64).rows()
    if len(rows) > 1:  # no two rows would fit into one
        fills = sorted(sum(lengths[number] for number in row) for row in rows)
        assert fills[0] + fills[1] > 64


def test_each_row_takes_the_longest_that_fits_and_of_equal_ones_the_first() -> None:
    assert pack([24, 60, 40, 40, 24, 4], 64).rows() == [[1, 5], [2, 0], [3, 4]]


def test_an_empty_window_has_no_rows() -> None:
    packed = pack([], 64)
    assert (packed.sequences.tolist(), packed.sizes.tolist()) == ([], [])


def test_rows_are_nearly_full() -> None:
    lengths = [(number * 7919) % 300 + 20 for number in range(5000)]
    packed = pack(lengths, 2048)
    assert len(packed.sizes) <= sum(lengths) // 2048 + 2


@pytest.mark.parametrize("length", [0, -1, 65])
def test_a_sequence_that_cannot_fit_is_named(length: int) -> None:
    with pytest.raises(ValueError, match="sequence 1 has"):
        pack([3, length], 64)
