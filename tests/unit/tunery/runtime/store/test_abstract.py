"""Batches of rows, and the error for a process of an older version."""

from dataclasses import replace

from tunery.runtime.journal.reader import START
from tunery.runtime.store.abstract import RowBatch, Superseded

BATCH = RowBatch(projection="views", version=2, partition=("job", 0), expected=0, position=START)


def test_a_batch_with_a_position_alone_is_empty() -> None:
    assert BATCH.is_empty
    assert not replace(BATCH, notices=("ftjob-1",)).is_empty


def test_the_error_of_an_older_process_names_both_versions_and_a_fix() -> None:
    words = str(Superseded("views", 2, 3))
    assert "views is at version 3, this process has version 2" in words
    assert words.endswith("start the newer release")
