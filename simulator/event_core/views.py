"""What the core's scenario keeps of its streams: rows of both, and a to-do row for each stamp."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from examples.first_stream import PLACES, TALLY, Counted, Expired, Stamp, Stamped, Taken
from schemas.envelope import Header, Message
from schemas.units import Ms
from tunery.runtime.hosts.projector import Projection
from tunery.runtime.journal.reader import Accepted
from tunery.runtime.verbs import Change, Delete, Done, Effect, Send, Todo, Upsert

STAMP: Final = "stamp"
STAMP_LEASE_MS: Final[Ms] = 4_000
ATTEMPTS_MAX: Final = 3
Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


class Owed(Message):
    """The work on one to-do row: a stamp for what command `of` took."""

    of: str


def project(header: Header, event: Any) -> tuple[Change, ...]:
    key = {"key": header.key}
    match event:
        case Taken(places=places, until=until):
            taken = {"id": header.command_id}
            values = {"places": places, "until": until, "stamp": None}
            owed = Owed(of=header.command_id)
            return (
                Upsert("taken", taken, values),
                Upsert("busy", key, {"until": until}),
                Todo(STAMP, header.command_id, header.key, header.tenant, owed),
            )
        case Expired():
            return (Delete("busy", key),)
        case Stamped(of=of, done=done):
            return (Upsert("taken", {"id": of}, {"stamp": done}), Done(STAMP, of))
        case Counted(total=total):
            return (Upsert("totals", key, {"total": total, "at": header.at}),)
        case _:
            return ()


VIEWS: Final = Projection(
    name="desk",
    version=1,
    streams=(PLACES, TALLY),
    project=project,
    tables=("taken", "busy", "totals"),
    outcomes=True,
)


def stamping(work: Callable[[str], Awaitable[None]]) -> Effect[Owed]:
    """`work` is called with the id of what needs a stamp, and may raise."""

    async def run(body: Owed, tenant: str) -> Send:
        await work(body.of)
        return Send(PLACES.name, tenant, tenant, Stamp(of=body.of, done=True))

    def exhausted(body: Owed, tenant: str, _: str) -> Send:
        return Send(PLACES.name, tenant, tenant, Stamp(of=body.of, done=False))

    return Effect(STAMP, Owed, run, exhausted, STAMP_LEASE_MS, attempts_max=ATTEMPTS_MAX)


def rebuilt(entries: Iterable[Accepted]) -> Rows:
    """The tables from zero, one change after the other: none of the store's own folding."""
    tables: Rows = {name: {} for name in VIEWS.tables}
    for one in entries:
        for event in one.events:
            for change in project(one.header, event):
                match change:
                    case Upsert():
                        place = tuple(change.key.values())
                        row = tables[change.table].setdefault(place, dict(change.key))
                        row.update(change.values)
                    case Delete():
                        tables[change.table].pop(tuple(change.key.values()), None)
                    case _:
                        pass
    return tables
