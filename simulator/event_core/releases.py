"""Two later releases of the seats, for rolling upgrades: one decides otherwise, one says more."""

from dataclasses import replace
from typing import Final, TypeAlias

from examples.first_stream import (
    HOLD_MS,
    SEATS,
    SEATS_AGGREGATE,
    SEATS_MAX,
    HoldSeats,
    Seats,
    SeatsCommand,
    SeatsEvent,
    SeatsHeld,
    TenantSeats,
    decide_seats,
    evolve_seats,
    refuse,
)
from schemas.envelope import Context, Header, Message
from schemas.streams import Stream
from simulator.event_core.streams import react_seats
from tunery.runtime.verbs import Send


class SeatsPraised(Message):
    """An event that only the newer release knows: the older ones cannot read it."""

    seats: int


NewerEvent: TypeAlias = SeatsEvent | SeatsPraised
SEATS_NEWER: Final = Stream(
    SEATS.name, SEATS.key, SEATS.owner, SEATS.readers, SeatsCommand, NewerEvent
)


def decide_stricter(state: Seats, command: SeatsCommand, context: Context) -> tuple[Message, ...]:
    """One seat less may be held, and for half the time."""
    held = len(state.get(context.key, TenantSeats()).held)
    if isinstance(command, HoldSeats) and command.seats > 0:
        if held + command.seats == SEATS_MAX:
            return refuse("full", "seats_at_most", held=held, limit=SEATS_MAX - 1)
        if held + command.seats < SEATS_MAX:
            return (SeatsHeld(seats=command.seats, until=context.at + HOLD_MS // 2),)
    return decide_seats(state, command, context)


def decide_praising(state: Seats, command: SeatsCommand, context: Context) -> tuple[Message, ...]:
    """Every hold is followed by an event that is new."""
    events = decide_seats(state, command, context)
    praise = (SeatsPraised(seats=event.seats) for event in events if isinstance(event, SeatsHeld))
    return (*events, *praise)


def evolve_praising(state: Seats, event: NewerEvent, context: Context) -> Seats:
    return state if isinstance(event, SeatsPraised) else evolve_seats(state, event, context)


def react_newer(header: Header, event: NewerEvent) -> tuple[Send, ...]:
    return () if isinstance(event, SeatsPraised) else react_seats(header, event)


SEATS_STRICTER: Final = replace(SEATS_AGGREGATE, decide=decide_stricter)
SEATS_PRAISING: Final = replace(
    SEATS_AGGREGATE, stream=SEATS_NEWER, decide=decide_praising, evolve=evolve_praising
)
