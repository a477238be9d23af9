"""Two small streams for proving the event core: places with a limit, and a tally fed by reactions.

`places` (key: tenant) lets at most `LIMIT` places be held at a time and takes each back after
`HOLD_MS`; each taking needs a stamp, which an effect brings. `tally` counts what was ever taken,
told by reactions alone.
"""

from dataclasses import replace
from typing import Final, TypeAlias, assert_never

from immutables import Map
from msgspec import Struct

from schemas.envelope import Context, Header, Message, Rejected, Repeated, Tick
from schemas.topics import Stream
from schemas.units import Ms
from tunery.runtime.verbs import Aggregate, Deadline, Send

LIMIT: Final = 5
HOLD_MS: Final = 20_000


class Take(Message):
    places: int


class GiveBack(Message):
    places: int


class Stamp(Message):
    """An effect's outcome for what command `of` took; `done` False: given up."""

    of: str
    done: bool


class Count(Message):
    places: int


class Taken(Message):
    places: int
    until: Ms


class GivenBack(Message):
    places: int


class Expired(Message):
    places: int


class Stamped(Message):
    of: str
    done: bool


class Praised(Message):
    """Of the next release: those before it cannot read this."""

    places: int


class Counted(Message):
    places: int
    total: int


PlacesCommand: TypeAlias = Take | GiveBack | Stamp | Tick
PlacesEvent: TypeAlias = Taken | GivenBack | Expired | Stamped | Rejected | Repeated
NextEvent: TypeAlias = PlacesEvent | Praised
TallyEvent: TypeAlias = Counted | Rejected | Repeated

PLACES: Final = Stream("places", "tenant", "toy", ("toy",), PlacesCommand, PlacesEvent)
PLACES_NEXT: Final = Stream("places", "tenant", "toy", ("toy",), PlacesCommand, NextEvent)
TALLY: Final = Stream("tally", "tenant", "toy", ("toy",), Count, TallyEvent)
STREAMS: Final = {stream.name: stream for stream in (PLACES, TALLY)}


class Hold(Struct, frozen=True, array_like=True):
    places: int
    until: Ms


class Desk(Struct, frozen=True, array_like=True):
    """Of one tenant. owed: ids of the commands whose taking has no stamp yet."""

    holds: tuple[Hold, ...] = ()
    owed: tuple[str, ...] = ()


Holds: TypeAlias = Map[str, Desk]
Totals: TypeAlias = Map[str, int]


def decide_places(state: Holds, command: PlacesCommand, context: Context) -> tuple[Message, ...]:
    desk = state.get(context.key, Desk())
    held = sum(hold.places for hold in desk.holds)
    match command:
        case Take(places=places):
            if places < 1:
                return (Rejected(code="bad_places", message="take 1 or more", param="places"),)
            if held + places > LIMIT:
                return (Rejected(code="full", message=f"{held} of {LIMIT} places are held"),)
            return (Taken(places=places, until=context.at + HOLD_MS),)
        case GiveBack(places=places):
            if not 0 < places <= held:
                return (Rejected(code="not_held", message=f"{held} places are held"),)
            return (GivenBack(places=places),)
        case Stamp(of=of, done=done):
            if of not in desk.owed:
                return (Rejected(code="not_owed", message="no stamp is owed for this"),)
            return (Stamped(of=of, done=done),)
        case Tick():
            due = [hold for hold in desk.holds if hold.until <= context.at]
            return (Expired(places=sum(hold.places for hold in due)),) if due else ()
        case _:
            assert_never(command)


def decide_stricter(state: Holds, command: PlacesCommand, context: Context) -> tuple[Message, ...]:
    """As the next release does: one place less may be held, and for half the time."""
    held = sum(hold.places for hold in state.get(context.key, Desk()).holds)
    if isinstance(command, Take) and command.places > 0:
        if held + command.places == LIMIT:
            return (Rejected(code="full", message=f"{held} of {LIMIT - 1} places are held"),)
        if held + command.places < LIMIT:
            return (Taken(places=command.places, until=context.at + HOLD_MS // 2),)
    return decide_places(state, command, context)


def decide_praising(state: Holds, command: PlacesCommand, context: Context) -> tuple[Message, ...]:
    """As the next release does: takings are praised, with an event that is new."""
    events = decide_places(state, command, context)
    praise = (Praised(places=event.places) for event in events if isinstance(event, Taken))
    return (*events, *praise)


def evolve_next(state: Holds, event: NextEvent, context: Context) -> Holds:
    return state if isinstance(event, Praised) else evolve_places(state, event, context)


def evolve_places(state: Holds, event: PlacesEvent, context: Context) -> Holds:
    desk = state.get(context.key, Desk())
    holds, owed = desk.holds, desk.owed
    match event:
        case Taken(places=places, until=until):
            holds, owed = (*holds, Hold(places, until)), (*owed, context.command_id)
        case GivenBack(places=places):
            holds = _less(holds, places)
        case Expired():
            holds = tuple(hold for hold in holds if hold.until > context.at)
        case Stamped(of=of):
            owed = tuple(one for one in owed if one != of)
        case Rejected() | Repeated():
            return state
        case _:
            assert_never(event)
    return state.set(context.key, Desk(holds, owed))


def _less(holds: tuple[Hold, ...], places: int) -> tuple[Hold, ...]:
    left: list[Hold] = []
    for hold in holds:
        taken = min(places, hold.places)
        places -= taken
        if hold.places > taken:
            left.append(Hold(hold.places - taken, hold.until))
    return tuple(left)


def next_expiry(state: Holds) -> Deadline | None:
    ends = [(hold.until, key) for key, desk in state.items() for hold in desk.holds]
    return Deadline(*min(ends)) if ends else None


def react_places(header: Header, event: NextEvent) -> tuple[Send, ...]:
    match event:
        case Taken(places=places):
            # The target's key is another one, so that reactions cross partitions.
            key = f"{header.tenant}-tally"
            return (Send("tally", key, key, Count(places=places)),)
        case GivenBack() | Expired() | Stamped() | Praised() | Rejected() | Repeated():
            return ()
        case _:
            assert_never(event)


def decide_tally(state: Totals, command: Count, context: Context) -> tuple[Message, ...]:
    return (Counted(places=command.places, total=state.get(context.key, 0) + command.places),)


def evolve_tally(state: Totals, event: TallyEvent, context: Context) -> Totals:
    match event:
        case Counted(total=total):
            return state.set(context.key, total)
        case Rejected() | Repeated():
            return state
        case _:
            assert_never(event)


PLACES_AGGREGATE: Final = Aggregate(
    PLACES, 1, Holds(), Holds, decide_places, evolve_places, next_expiry
)
PLACES_STRICTER: Final = replace(PLACES_AGGREGATE, decide=decide_stricter)
PLACES_PRAISING: Final = replace(
    PLACES_AGGREGATE, stream=PLACES_NEXT, decide=decide_praising, evolve=evolve_next
)
TALLY_AGGREGATE: Final = Aggregate(TALLY, 1, Totals(), Totals, decide_tally, evolve_tally)
