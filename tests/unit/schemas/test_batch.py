"""Limits of what the log says about batches."""

import msgspec
import pytest

from schemas.batch import ROWS_MAX, BatchCounts, BeginBatch


def test_the_rows_that_have_ended_are_the_answered_and_the_failed_ones() -> None:
    assert BatchCounts(completed=3, failed=2).ended == 5


@pytest.mark.parametrize("rows", [0, ROWS_MAX + 1])
def test_a_batch_has_a_row_and_at_most_so_many(rows: int) -> None:
    command = msgspec.json.encode({"type": "BeginBatch", "batch_id": "batch_1", "rows": rows})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(command, type=BeginBatch)
