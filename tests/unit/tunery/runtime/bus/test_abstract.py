"""The limit of a record, and the error of a position outside the log."""

import pytest

from schemas.streams import MESSAGE_BYTES_MAX
from tunery.runtime.bus.abstract import BusError, OutOfRange, TooLarge, check_size


@pytest.mark.parametrize("size", [0, 1, MESSAGE_BYTES_MAX])
def test_records_up_to_the_limit_may_be_written(size: int) -> None:
    check_size(b"x" * size)


def test_a_record_above_the_limit_is_refused_with_both_numbers() -> None:
    with pytest.raises(TooLarge, match=rf"{MESSAGE_BYTES_MAX + 1}.*{MESSAGE_BYTES_MAX}"):
        check_size(b"x" * (MESSAGE_BYTES_MAX + 1))


def test_a_position_outside_the_log_is_named_with_the_bounds() -> None:
    error = OutOfRange("tunery.job.journal.v1", 3, 7, 10, 20)
    assert isinstance(error, BusError)
    assert (error.partition, error.start, error.end) == (3, 10, 20)
    assert str(error) == "tunery.job.journal.v1/3: offset 7 is outside [10, 20]"
