"""Two small streams for the soak: requests that an effect answers, and a tally of them.

A tenant may have at most `OPEN_MAX` open needs in `requests`; a need ends with its answer or its
expiry, whichever comes first. `tally` gets commands from reactions alone, and counts all needs.
"""

from typing import Final, Literal, TypeAlias, assert_never

from immutables import Map
from msgspec import Struct

from schemas.envelope import Context, Header, Message, Reason, Rejected, Repeated, Tick
from schemas.streams import Stream
from schemas.units import DAY_MS, Ms
from tunery.runtime.hosts.projector import Projection
from tunery.runtime.verbs import (
    Aggregate,
    Change,
    Delete,
    Done,
    Send,
    Todo,
    Upsert,
    deadlines_by_key,
)

OPEN_MAX: Final = 5
Way: TypeAlias = Literal["answer", "drop", "keep"]
#: an answer may take as long as an outage; a dropped need has no answer and ends by a tick
OPEN_MS: Final[dict[Way, Ms]] = {"answer": 60_000, "drop": 2_000, "keep": 30 * DAY_MS}


class Ask(Message):
    need: str
    way: Way


class Answer(Message):
    need: str


class Count(Message):
    need: str


class Asked(Message):
    need: str
    way: Way
    until: Ms


class Answered(Message):
    need: str


class Expired(Message):
    need: str


class Counted(Message):
    need: str
    total: int


RequestCommand: TypeAlias = Ask | Answer | Tick
RequestEvent: TypeAlias = Asked | Answered | Expired | Rejected | Repeated
TallyEvent: TypeAlias = Counted | Rejected | Repeated

REQUESTS: Final = Stream("requests", "tenant", "soak", ("soak",), RequestCommand, RequestEvent)
TALLY: Final = Stream("tally", "tenant", "soak", ("soak",), Count, TallyEvent)
STREAMS: Final = {stream.name: stream for stream in (REQUESTS, TALLY)}


class Open(Struct, frozen=True, array_like=True):
    need: str
    until: Ms


Needs: TypeAlias = Map[str, tuple[Open, ...]]
Totals: TypeAlias = Map[str, int]


def decide_requests(state: Needs, command: RequestCommand, context: Context) -> tuple[Message, ...]:
    needs = state.get(context.key, ())
    match command:
        case Ask(need=need, way=way):
            if len(needs) >= OPEN_MAX:
                return (Rejected(code="full", reason=Reason(code="needs_at_most")),)
            return (Asked(need=need, way=way, until=context.at + OPEN_MS[way]),)
        case Answer(need=need):
            if any(open_need.need == need for open_need in needs):
                return (Answered(need=need),)
            return (Rejected(code="closed", reason=Reason(code="need_closed")),)
        case Tick():
            return tuple(
                Expired(need=open_need.need) for open_need in needs if open_need.until <= context.at
            )
        case _:
            assert_never(command)


def evolve_requests(state: Needs, event: RequestEvent, context: Context) -> Needs:
    needs = state.get(context.key, ())
    match event:
        case Asked(need=need, until=until):
            return state.set(context.key, (*needs, Open(need, until)))
        case Answered(need=need) | Expired(need=need):
            return state.set(
                context.key, tuple(open_need for open_need in needs if open_need.need != need)
            )
        case Rejected() | Repeated():
            return state
        case _:
            assert_never(event)


def next_expiry(state: Needs, key: str) -> Ms | None:
    return min((open_need.until for open_need in state.get(key, ())), default=None)


def react_requests(header: Header, event: RequestEvent) -> tuple[Send, ...]:
    match event:
        case Asked(need=need):
            # The target's key is another one, so that reactions cross partitions.
            key = f"{header.tenant}-tally"
            return (Send("tally", key, key, Count(need=need)),)
        case Answered() | Expired() | Rejected() | Repeated():
            return ()
        case _:
            assert_never(event)


def decide_tally(state: Totals, command: Count, context: Context) -> tuple[Message, ...]:
    return (Counted(need=command.need, total=state.get(context.key, 0) + 1),)


def evolve_tally(state: Totals, event: TallyEvent, context: Context) -> Totals:
    match event:
        case Counted(total=total):
            return state.set(context.key, total)
        case Rejected() | Repeated():
            return state
        case _:
            assert_never(event)


def project(header: Header, event: RequestEvent | TallyEvent) -> tuple[Change, ...]:
    """Rows of open needs, of totals and of ended needs, and the to-do rows of the effect."""
    match event:
        case Asked(need=need, until=until):
            row = Upsert("needs", {"need": need}, {"tenant": header.tenant, "until": until})
            return (row, Todo("answer", need, header.key, header.tenant, event))
        case Answered(need=need) | Expired(need=need):
            end = Upsert("ends", {"need": need}, {"how": type(event).__name__, "seq": header.seq})
            return (Delete("needs", {"need": need}), end, Done("answer", need))
        case Counted(total=total):
            return (Upsert("totals", {"key": header.key}, {"total": total}),)
        case Rejected() | Repeated():
            return ()
        case _:
            assert_never(event)


DDL: Final = """
CREATE TABLE IF NOT EXISTS needs (need text PRIMARY KEY, tenant text NOT NULL, until bigint);
CREATE TABLE IF NOT EXISTS ends (need text PRIMARY KEY, how text NOT NULL, seq bigint NOT NULL);
CREATE TABLE IF NOT EXISTS totals (key text PRIMARY KEY, total bigint NOT NULL);
"""
BOARD: Final = Projection(
    name="board",
    version=1,
    streams=(REQUESTS, TALLY),
    project=project,
    ddl=DDL,
    tables=("needs", "ends", "totals"),
    command_results=True,
)
REQUESTS_AGGREGATE: Final = Aggregate(
    REQUESTS,
    1,
    Needs(),
    Needs,
    decide_requests,
    evolve_requests,
    deadlines_by_key(Needs.keys, next_expiry),
)
TALLY_AGGREGATE: Final = Aggregate(TALLY, 1, Totals(), Totals, decide_tally, evolve_tally)
