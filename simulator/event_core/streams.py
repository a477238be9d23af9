"""The streams of the scenario: the seats of `examples/first_stream.py`, and a tally of their holds.

The tally counts every seat that was ever held. It learns of them by reactions alone, so its total
says whether a reaction was lost or sent twice.
"""

from typing import Final, TypeAlias, assert_never

from immutables import Map

from examples.first_stream import (
    SEATS,
    SeatsEvent,
    SeatsExpired,
    SeatsHeld,
    SeatsReleased,
    TicketRecorded,
)
from schemas.envelope import Context, Header, Message, Rejected, Repeated
from schemas.streams import Stream
from tunery.runtime.verbs import Aggregate, Send


class CountSeats(Message):
    """seats: how many more were held."""

    seats: int


class SeatsCounted(Message):
    """seats: how many more were held. total: all that this tenant ever held."""

    seats: int
    total: int


TallyEvent: TypeAlias = SeatsCounted | Rejected | Repeated
Totals: TypeAlias = Map[str, int]

TALLY: Final = Stream("tally", "tenant", "box_office", ("box_office",), CountSeats, TallyEvent)
STREAMS: Final = {stream.name: stream for stream in (SEATS, TALLY)}


def tally_key(tenant: str) -> str:
    """Another key than that of the seats, so that reactions cross partitions."""
    return f"{tenant}-tally"


def react_seats(header: Header, event: SeatsEvent) -> tuple[Send, ...]:
    """One command to the tally for each hold."""
    match event:
        case SeatsHeld(seats=seats):
            key = tally_key(header.tenant)
            return (Send(TALLY.name, key, key, CountSeats(seats=seats)),)
        case SeatsReleased() | SeatsExpired() | TicketRecorded() | Rejected() | Repeated():
            return ()
        case _:
            assert_never(event)


def decide_tally(state: Totals, command: CountSeats, context: Context) -> tuple[Message, ...]:
    return (SeatsCounted(seats=command.seats, total=state.get(context.key, 0) + command.seats),)


def evolve_tally(state: Totals, event: TallyEvent, context: Context) -> Totals:
    match event:
        case SeatsCounted(total=total):
            return state.set(context.key, total)
        case Rejected() | Repeated():
            return state
        case _:
            assert_never(event)


TALLY_AGGREGATE: Final = Aggregate(TALLY, 1, Totals(), Totals, decide_tally, evolve_tally)
