"""Start position of a stream of events."""

import pytest

from services.gateway.jobs.streams import BETWEEN, positions_of
from services.gateway.views.event_ids import journal_event_id
from services.gateway.web.domain.errors import ApiError

FIRST = journal_event_id(1_000, 1, "created")
SECOND = journal_event_id(2_000, 2, "ended")


def test_a_stream_begins_at_the_beginning_or_after_an_event() -> None:
    assert positions_of(None, None, 2) == ("", "")
    assert positions_of(None, FIRST, 2) == (FIRST, FIRST)


def test_the_id_of_a_frame_counts_before_the_id_of_an_event() -> None:
    frame = BETWEEN.join((FIRST, SECOND))
    assert positions_of(frame, SECOND, 2) == (FIRST, SECOND)
    assert positions_of(f"{FIRST}{BETWEEN}", None, 2) == (FIRST, "")


def test_the_id_of_one_event_is_a_position_in_every_source() -> None:
    assert positions_of(FIRST, None, 2) == (FIRST, FIRST)


@pytest.mark.parametrize("frame", ["x", BETWEEN.join((FIRST, "x")), BETWEEN.join((FIRST,) * 3)])
def test_an_unknown_frame_id_is_refused(frame: str) -> None:
    with pytest.raises(ApiError) as refusal:
        positions_of(frame, None, 2)
    assert (refusal.value.status, refusal.value.param) == (400, "Last-Event-ID")
