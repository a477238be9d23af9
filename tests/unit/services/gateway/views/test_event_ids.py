"""Identifiers that sort by time."""

from services.gateway.views.event_ids import EVENT_ID, journal_event_id, line_id, step_event_id


def test_identifiers_sort_by_time_then_journal_before_steps() -> None:
    early = journal_event_id(1_000, 7, "created")
    step = step_event_id(1_000, 1, 3)
    late = line_id(1_001, 2, 9)
    assert sorted([late, step, early]) == [early, step, late]
    assert all(EVENT_ID.match(name) for name in (early, step, late))
