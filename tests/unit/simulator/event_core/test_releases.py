"""Later releases of the seats: one is stricter, one writes an event that older ones cannot read."""

from typing import Any

import pytest
from msgspec.structs import replace

from examples.first_stream import (
    HOLD_MS,
    SEATS,
    SEATS_AGGREGATE,
    SEATS_MAX,
    HoldSeats,
    ReleaseSeats,
    SeatsHeld,
)
from schemas.envelope import Context, Rejected
from simulator.event_core.releases import (
    PRAISED_MIN,
    SEATS_NEWER,
    SEATS_PRAISING,
    SEATS_STRICTER,
    SeatsPraised,
    SeatsRemarked,
    react_newer,
)
from simulator.event_core.streams import react_seats
from tests.unit.services.scheduler.fold import Decider, header_of
from tests.unit.simulator.event_core.journal import SmallJournal
from tunery.runtime.journal.codec import Undecodable, codec_of, raw_events
from tunery.runtime.verbs import Aggregate

AT = 7_000


def seats_of(aggregate: Aggregate[Any]) -> Decider:
    return Decider(aggregate, "ada", AT)


def test_the_stricter_release_holds_one_seat_less_for_half_the_time() -> None:
    today, stricter = seats_of(SEATS_AGGREGATE), seats_of(SEATS_STRICTER)
    assert today.when(HoldSeats(seats=2)) == (SeatsHeld(seats=2, until=AT + HOLD_MS),)
    assert stricter.when(HoldSeats(seats=2)) == (SeatsHeld(seats=2, until=AT + HOLD_MS // 2),)
    last = HoldSeats(seats=SEATS_MAX - 2)
    assert isinstance(today.when(last)[0], SeatsHeld)
    (refused,) = stricter.when(last)
    assert isinstance(refused, Rejected)
    assert refused.reason.params == {"held": 2, "limit": SEATS_MAX - 1}


@pytest.mark.parametrize(
    "command", [HoldSeats(seats=0), HoldSeats(seats=SEATS_MAX + 1), ReleaseSeats(seats=1)]
)
def test_in_all_else_it_decides_as_before(command: HoldSeats | ReleaseSeats) -> None:
    assert seats_of(SEATS_STRICTER).when(command) == seats_of(SEATS_AGGREGATE).when(command)


def test_the_praising_release_adds_events_to_each_hold_and_to_nothing_else() -> None:
    praising = seats_of(SEATS_PRAISING)
    held, remarked = praising.when(HoldSeats(seats=2))  # in the older way, below level 2
    assert isinstance(held, SeatsHeld)
    assert remarked == SeatsRemarked(seats=2)
    assert len(praising.when(HoldSeats(seats=SEATS_MAX))) == 1  # refused
    assert len(praising.when(ReleaseSeats(seats=1))) == 1
    assert len(praising.state["ada"].held) == 1


@pytest.mark.parametrize(("seats", "level"), [(PRAISED_MIN, 1), (1, 2)])
def test_a_large_hold_is_always_praised_and_from_level_2_on_every_one(
    seats: int, level: int
) -> None:
    context = Context(at=AT, key="ada", tenant="ada", command_id="c", seq=1, level=level)
    events = SEATS_PRAISING.decide(SEATS_PRAISING.initial, HoldSeats(seats=seats), context)
    assert events[-1] == SeatsPraised(seats=seats)


def test_todays_release_cannot_read_praise_and_says_so_by_name() -> None:
    praise = SeatsPraised(seats=1)
    journal = SmallJournal()
    journal.add(praise)
    entry = replace(journal.accepted[0].entry, events=raw_events((praise,)))
    assert codec_of(SEATS_NEWER).events(entry) == (praise,)
    with pytest.raises(Undecodable) as stopped:
        codec_of(SEATS).events(entry)
    assert "Invalid value 'SeatsPraised.v1'" in str(stopped.value)


def test_reactions_of_the_newer_release_pass_over_praise() -> None:
    header, held = header_of("seats", "ada", AT), SeatsHeld(seats=1, until=9)
    assert react_newer(header, SeatsPraised(seats=1)) == ()
    assert react_newer(header, SeatsRemarked(seats=1)) == ()
    assert react_newer(header, held) == react_seats(header, held)
