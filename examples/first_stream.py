"""Your first stream: seats that a tenant holds for a while. Run `python -m examples.first_stream`.

A tenant may hold `SEATS_MAX` seats. A seat is free again when it is released, or by itself after
`HOLD_MS`. Every hold needs a ticket: it is issued elsewhere and recorded here.
"""

import asyncio
from typing import Final, assert_never

from immutables import Map
from msgspec import Struct

from schemas.envelope import Context, Message, Reason, Rejected, Repeated, Tick
from schemas.streams import Stream
from schemas.units import Ms
from tunery.runtime.tools.trial import try_commands
from tunery.runtime.verbs import Aggregate, deadlines_by_key

SEATS_MAX: Final = 5
HOLD_MS: Final[Ms] = 20_000


class HoldSeats(Message):
    seats: int


class ReleaseSeats(Message):
    seats: int


class RecordTicket(Message):
    hold_id: str
    issued: bool


class SeatsHeld(Message):
    seats: int
    until: Ms


class SeatsReleased(Message):
    seats: int


class SeatsExpired(Message):
    seats: int


class TicketRecorded(Message):
    hold_id: str
    issued: bool


SeatsCommand = HoldSeats | ReleaseSeats | RecordTicket | Tick
SeatsEvent = SeatsHeld | SeatsReleased | SeatsExpired | TicketRecorded | Rejected | Repeated
#: the key of a command is the tenant; `box_office` is the service that owns the stream
SEATS: Final = Stream("seats", "tenant", "box_office", ("box_office",), SeatsCommand, SeatsEvent)


class TenantSeats(Struct, frozen=True, array_like=True):
    """held: when each seat is free again. awaiting_ticket: ids of the holds without a ticket."""

    held: tuple[Ms, ...] = ()
    awaiting_ticket: tuple[str, ...] = ()


Seats = Map[str, TenantSeats]  # by tenant


def decide_seats(state: Seats, command: SeatsCommand, context: Context) -> tuple[Message, ...]:
    """Return the events that follow from a command; a refusal is an event, too."""
    tenant = state.get(context.key, TenantSeats())
    held = len(tenant.held)
    match command:
        case HoldSeats(seats=seats):
            if seats < 1:
                return refuse("bad_count", "seats_below_one")
            if held + seats > SEATS_MAX:
                return refuse("full", "seats_at_most", held=held, limit=SEATS_MAX)
            return (SeatsHeld(seats=seats, until=context.at + HOLD_MS),)
        case ReleaseSeats(seats=seats):
            if not 0 < seats <= held:
                return refuse("not_held", "seats_held", held=held)
            return (SeatsReleased(seats=seats),)
        case RecordTicket(hold_id=hold_id, issued=issued):
            if hold_id not in tenant.awaiting_ticket:
                return refuse("not_awaited", "ticket_not_awaited", hold_id=hold_id)
            return (TicketRecorded(hold_id=hold_id, issued=issued),)
        case Tick():
            expired = sum(until <= context.at for until in tenant.held)
            return (SeatsExpired(seats=expired),) if expired else ()
        case _:
            assert_never(command)


def refuse(code: str, reason: str, **params: str | int) -> tuple[Message, ...]:
    """Codes and parameters: the log holds no sentences. Whoever shows them makes the words."""
    return (Rejected(code=code, reason=Reason(code=reason, params=params)),)


def evolve_seats(state: Seats, event: SeatsEvent, context: Context) -> Seats:
    """Return the state after an event. It never refuses: the event is a fact."""
    tenant = state.get(context.key, TenantSeats())
    held, awaiting = tenant.held, tenant.awaiting_ticket
    match event:
        case SeatsHeld(seats=seats, until=until):
            held, awaiting = (*held, *seats * (until,)), (*awaiting, context.command_id)
        case SeatsReleased(seats=seats):
            held = held[seats:]  # the oldest first
        case SeatsExpired():
            held = tuple(until for until in held if until > context.at)
        case TicketRecorded(hold_id=recorded):
            awaiting = tuple(hold_id for hold_id in awaiting if hold_id != recorded)
        case Rejected() | Repeated():
            return state
        case _:
            assert_never(event)
    return state.set(context.key, TenantSeats(held, awaiting))


def next_expiry(state: Seats, tenant: str) -> Ms | None:
    """When the host has to send the next `Tick` for a tenant."""
    return min(state[tenant].held, default=None) if tenant in state else None


EXPIRY: Final = deadlines_by_key(Seats.keys, next_expiry)
SEATS_AGGREGATE: Final = Aggregate(SEATS, 1, Seats(), Seats, decide_seats, evolve_seats, EXPIRY)


async def run() -> None:
    """Send three commands to the host of production, and print the journal's entry for each."""
    commands = (HoldSeats(seats=3), HoldSeats(seats=3), ReleaseSeats(seats=1))
    for accepted in await try_commands(SEATS_AGGREGATE, "ada", commands):
        print(f"{accepted.entry.key} {accepted.entry.seq}:", *accepted.events)


if __name__ == "__main__":
    asyncio.run(run())
