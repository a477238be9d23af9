"""The second books' arithmetic on examples that were worked out by hand."""

from schemas.units import HOUR_MS
from simulator.control_plane.samples import MINUTE, checkpoint
from simulator.control_plane.true_usage import hours, unusable_ms


def test_hours_of_the_worked_example_of_the_decision() -> None:
    """2 slots from 13:20 for 70 minutes, cap 8,000,000."""
    assert hours(13 * HOUR_MS + 20 * MINUTE, 70 * MINUTE, 2, 8_000_000) == {
        13: (4_800_000, 4_800_000),
        14: (3_600_000, 3_200_000),
    }


def test_a_skipped_checkpoint_loses_what_came_after_the_one_that_was_loaded() -> None:
    newest, older = checkpoint(30, 2, 9_000), checkpoint(20, 2, 4_000)
    first = checkpoint(10, 1, 7_000)
    assert unusable_ms((newest, older, first), older.manifest_sha256) == 5_000
    assert unusable_ms((newest, older, first), first.manifest_sha256) == 9_000
    assert unusable_ms((newest, older, first), None) == 16_000
