"""Two later releases of the seats, for rolling upgrades: one decides otherwise, one says more.

What the second says needs level 2 of the log. Until then it is decided in the older way, or
refused.
"""

from dataclasses import replace
from typing import ClassVar, Final, TypeAlias

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
from simulator.event_core.streams import react_seats
from tunery.runtime.verbs import Send


class SeatsPraised(Message):
    """An event that only the newer release knows: the older ones cannot read it."""

    SINCE: ClassVar[int] = 2
    seats: int


class SeatsRemarked(Message):
    """An event for people alone, which the older releases skip."""

    SINCE: ClassVar[int] = 2
    SKIPPABLE: ClassVar[bool] = True
    seats: int


PRAISED_MIN: Final = 3  # seats of a hold that is not decided without praise
NewerEvent: TypeAlias = SeatsEvent | SeatsPraised | SeatsRemarked
SEATS_NEWER: Final = replace(SEATS, event=NewerEvent, level=2)


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
    """Every hold is remarked on, and praised from level 2 on. A large one needs praise."""
    events = decide_seats(state, command, context)
    held = next((event.seats for event in events if isinstance(event, SeatsHeld)), 0)
    if not held:
        return events
    events = (*events, SeatsRemarked(seats=held))
    needs_praise = held >= PRAISED_MIN or context.level >= SeatsPraised.SINCE
    return (*events, SeatsPraised(seats=held)) if needs_praise else events


def evolve_praising(state: Seats, event: NewerEvent, context: Context) -> Seats:
    match event:
        case SeatsPraised() | SeatsRemarked():
            return state
        case _:
            return evolve_seats(state, event, context)


def react_newer(header: Header, event: NewerEvent) -> tuple[Send, ...]:
    match event:
        case SeatsPraised() | SeatsRemarked():
            return ()
        case _:
            return react_seats(header, event)


SEATS_STRICTER: Final = replace(SEATS_AGGREGATE, decide=decide_stricter)
SEATS_PRAISING: Final = replace(
    SEATS_AGGREGATE, stream=SEATS_NEWER, decide=decide_praising, evolve=evolve_praising
)
