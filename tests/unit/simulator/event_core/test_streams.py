"""The tally learns of every hold, by reactions alone."""

import pytest
from immutables import Map

from examples.first_stream import SeatsExpired, SeatsHeld, SeatsReleased, TicketRecorded
from schemas.envelope import Context, Header, Reason, Rejected, Repeated
from simulator.event_core.streams import (
    TALLY,
    TALLY_AGGREGATE,
    CountSeats,
    SeatsCounted,
    react_seats,
    tally_key,
)
from tests.unit.services.scheduler.fold import Decider, header_of
from tunery.runtime.bus.partitioner import partition_of

HEADER: Header = header_of("seats", "ada", at=5)


def test_a_hold_is_sent_to_the_tally_under_a_key_of_its_own() -> None:
    (send,) = react_seats(HEADER, SeatsHeld(seats=3, until=9))
    assert (send.stream, send.key, send.body) == ("tally", "ada-tally", CountSeats(seats=3))
    moved = [name for name in ("ada", "bob", "cyd") if crosses(name)]
    assert moved, "no reaction of the scenario crosses partitions"


def crosses(tenant: str) -> bool:
    return partition_of(tenant.encode()) != partition_of(tally_key(tenant).encode())


@pytest.mark.parametrize(
    "event",
    [
        SeatsReleased(seats=1),
        SeatsExpired(seats=1),
        TicketRecorded(hold_id="c", issued=True),
        Rejected(code="full", reason=Reason(code="seats_at_most")),
        Repeated(of="c"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_nothing_else_is(event: SeatsReleased | SeatsExpired | TicketRecorded | Rejected) -> None:
    assert react_seats(HEADER, event) == ()


def test_totals_add_up_for_each_key_and_refusals_change_nothing() -> None:
    tally = Decider(TALLY_AGGREGATE, "ada-tally", 5)
    assert tally.when(CountSeats(seats=2)) == (SeatsCounted(seats=2, total=2),)
    assert tally.when(CountSeats(seats=3)) == (SeatsCounted(seats=3, total=5),)
    assert tally.when(CountSeats(seats=4), "bob-tally") == (SeatsCounted(seats=4, total=4),)
    tally.fold(Rejected(code="x", reason=Reason(code="x")), Repeated(of="c"))
    assert tally.state == Map({"ada-tally": 5, "bob-tally": 4})
    assert tally.refolded() == tally.state


def test_the_last_total_is_the_truth_whatever_was_counted_before() -> None:
    context = Context(at=1, key="k", tenant="k", command_id="c", seq=1)
    counted = SeatsCounted(seats=1, total=9)
    assert TALLY_AGGREGATE.evolve(Map({"k": 3}), counted, context) == Map({"k": 9})
    assert TALLY_AGGREGATE.stream is TALLY
