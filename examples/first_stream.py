"""Your first stream: seats that a tenant holds for a while. Run `python -m examples.first_stream`.

A tenant may hold at most `SEATS_MAX` seats at a time. A hold ends when its seats are released, or
by itself after `HOLD_MS`. Every hold needs a ticket: it is issued elsewhere and recorded here.
"""

import asyncio
from dataclasses import replace
from typing import Final, TypeAlias, assert_never

from immutables import Map
from msgspec import Struct

from schemas.envelope import Context, Message, Reason, Rejected, Repeated, Tick
from schemas.topics import PARTITIONS, Stream
from schemas.units import Ms
from tunery.runtime.bus.sender import Sender
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.reader import START, Accepted, JournalReader
from tunery.runtime.memory_servers import memory_servers
from tunery.runtime.verbs import Aggregate, Deadline

SEATS_MAX: Final = 5
HOLD_MS: Final[Ms] = 20_000

# --- the vocabulary: commands are imperative, events are in the past tense ------------------------


class HoldSeats(Message):
    seats: int


class ReleaseSeats(Message):
    seats: int


class RecordTicket(Message):
    """The ticket for what command `hold_id` holds was issued, or could not be."""

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


SeatsCommand: TypeAlias = HoldSeats | ReleaseSeats | RecordTicket | Tick
SeatsEvent: TypeAlias = (
    SeatsHeld | SeatsReleased | SeatsExpired | TicketRecorded | Rejected | Repeated
)
#: the key of a command is the tenant; `box_office` is the service that owns the stream
SEATS: Final = Stream("seats", "tenant", "box_office", ("box_office",), SeatsCommand, SeatsEvent)

# --- the state: what has to be known to decide ----------------------------------------------------


class Hold(Struct, frozen=True, array_like=True):
    seats: int
    until: Ms


class TenantSeats(Struct, frozen=True, array_like=True):
    """awaiting_ticket: ids of the commands whose hold has no ticket yet."""

    holds: tuple[Hold, ...] = ()
    awaiting_ticket: tuple[str, ...] = ()

    @property
    def held(self) -> int:
        return sum(hold.seats for hold in self.holds)


Seats: TypeAlias = Map[str, TenantSeats]  # by tenant

# --- decide: a command on a state gives events; choices are made here and nowhere else ------------


def decide_seats(state: Seats, command: SeatsCommand, context: Context) -> tuple[Message, ...]:
    """Return the events that follow from a command; a refusal is an event, too."""
    tenant = state.get(context.key, TenantSeats())
    match command:
        case HoldSeats(seats=seats):
            if seats < 1:
                return refuse("bad_count", "seats_below_one")
            if tenant.held + seats > SEATS_MAX:
                return refuse("full", "seats_at_most", held=tenant.held, limit=SEATS_MAX)
            return (SeatsHeld(seats=seats, until=context.at + HOLD_MS),)
        case ReleaseSeats(seats=seats):
            if not 0 < seats <= tenant.held:
                return refuse("not_held", "seats_held", held=tenant.held)
            return (SeatsReleased(seats=seats),)
        case RecordTicket(hold_id=hold_id, issued=issued):
            if hold_id not in tenant.awaiting_ticket:
                return refuse("not_awaited", "ticket_not_awaited", hold_id=hold_id)
            return (TicketRecorded(hold_id=hold_id, issued=issued),)
        case Tick():
            expired = sum(hold.seats for hold in tenant.holds if hold.until <= context.at)
            return (SeatsExpired(seats=expired),) if expired else ()
        case _:
            assert_never(command)


def refuse(code: str, reason: str, **params: str | int) -> tuple[Message, ...]:
    """Codes and parameters: the log holds no sentences. Whoever shows them makes the words."""
    return (Rejected(code=code, reason=Reason(code=reason, params=params)),)


# --- evolve: an event changes the state; it never refuses -----------------------------------------


def evolve_seats(state: Seats, event: SeatsEvent, context: Context) -> Seats:
    """Return the state after an event. It never refuses: the event is a fact."""
    tenant = state.get(context.key, TenantSeats())
    holds, awaiting = tenant.holds, tenant.awaiting_ticket
    match event:
        case SeatsHeld(seats=seats, until=until):
            holds, awaiting = (*holds, Hold(seats, until)), (*awaiting, context.command_id)
        case SeatsReleased(seats=seats):
            holds = release_oldest(holds, seats)
        case SeatsExpired():
            holds = tuple(hold for hold in holds if hold.until > context.at)
        case TicketRecorded(hold_id=recorded):
            awaiting = tuple(hold_id for hold_id in awaiting if hold_id != recorded)
        case Rejected() | Repeated():
            return state
        case _:
            assert_never(event)
    return state.set(context.key, TenantSeats(holds, awaiting))


def release_oldest(holds: tuple[Hold, ...], seats: int) -> tuple[Hold, ...]:
    remaining: list[Hold] = []
    for hold in holds:
        released = min(seats, hold.seats)
        seats -= released
        if hold.seats > released:
            remaining.append(Hold(hold.seats - released, hold.until))
    return tuple(remaining)


def next_expiry(state: Seats) -> Deadline | None:
    """When the host has to send the next `Tick`, and for which tenant."""
    ends = [(hold.until, key) for key, tenant in state.items() for hold in tenant.holds]
    return Deadline(*min(ends)) if ends else None


SEATS_AGGREGATE: Final = Aggregate(
    SEATS,
    fold_version=1,
    initial=Seats(),
    state_type=Seats,
    decide=decide_seats,
    evolve=evolve_seats,
    deadline=next_expiry,
)

# --- run it: the production host over a log in memory ---------------------------------------------


async def run() -> None:
    """Send some commands, wait until the host has decided them, and print the journal."""
    servers = await memory_servers()
    await servers.log.create((SEATS.commands, SEATS.journal), PARTITIONS)
    sender = Sender(servers.log, {SEATS.name: SEATS})
    owner = asyncio.create_task(
        AggregateHost(replace(servers.runtime("box_office"), sender=sender), SEATS_AGGREGATE).run()
    )
    first = await sender.send(SEATS, "ada", "ada", HoldSeats(seats=3))
    await sender.send(SEATS, "ada", "ada", RecordTicket(hold_id=first, issued=True))
    await sender.send(SEATS, "ada", "ada", HoldSeats(seats=3))  # refused: 3 of 5 are held
    await sender.send(SEATS, "ada", "ada", ReleaseSeats(seats=1))
    reader = JournalReader(servers.log, SEATS, dict.fromkeys(range(PARTITIONS), START))
    await reader.open()
    entries: list[Accepted] = []
    while len(entries) < 4:  # one for each command
        for batch in (await reader.read(wait_ms=1_000)).values():
            entries += batch.accepted
    for accepted in entries:
        print(f"{accepted.entry.key} {accepted.entry.seq}:", *accepted.events)
    owner.cancel()


if __name__ == "__main__":
    asyncio.run(run())
