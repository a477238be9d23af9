"""The projection and the effect of the scenario's streams.

Rows of both streams are kept, and a to-do row for each hold until its ticket is recorded.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from examples.first_stream import (
    SEATS,
    RecordTicket,
    SeatsExpired,
    SeatsHeld,
    TicketRecorded,
)
from schemas.envelope import Header, Message
from schemas.units import Ms
from simulator.event_core.streams import TALLY, SeatsCounted
from tunery.runtime.hosts.projector import Projection
from tunery.runtime.journal.reader import Accepted
from tunery.runtime.verbs import Change, Delete, Done, Effect, Send, Todo, Upsert

TICKET: Final = "ticket"
TICKET_LEASE_MS: Final[Ms] = 4_000
TRIES_MAX: Final = 3
#: table → primary key → row
Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


class IssueTicket(Message):
    """The work on one to-do row: a ticket for what command `hold_id` holds."""

    hold_id: str


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows of holds, of tenants with a hold, and of totals; the to-do list of tickets."""
    tenant = {"key": header.key}
    match event:
        case SeatsHeld(seats=seats, until=until):
            hold_id = header.command_id
            return (
                Upsert("holds", {"id": hold_id}, {"seats": seats, "until": until, "issued": None}),
                Upsert("busy_tenants", tenant, {"until": until}),
                Todo(TICKET, hold_id, header.key, header.tenant, IssueTicket(hold_id=hold_id)),
            )
        case SeatsExpired():
            return (Delete("busy_tenants", tenant),)
        case TicketRecorded(hold_id=hold_id, issued=issued):
            return (Upsert("holds", {"id": hold_id}, {"issued": issued}), Done(TICKET, hold_id))
        case SeatsCounted(total=total):
            return (Upsert("totals", tenant, {"total": total, "at": header.at}),)
        case _:
            return ()


VIEWS: Final = Projection(
    name="box_office",
    version=1,
    streams=(SEATS, TALLY),
    project=project,
    tables=("holds", "busy_tenants", "totals"),
    command_results=True,
)


def ticket_effect(issue: Callable[[str], Awaitable[None]]) -> Effect[IssueTicket]:
    """`issue` is called with the id of a hold. It may raise: then it is called again."""

    async def run(work: IssueTicket, tenant: str, _: int = 1) -> Send:
        await issue(work.hold_id)
        return Send(SEATS.name, tenant, tenant, RecordTicket(hold_id=work.hold_id, issued=True))

    def exhausted(work: IssueTicket, tenant: str, _failure: str) -> Send:
        return Send(SEATS.name, tenant, tenant, RecordTicket(hold_id=work.hold_id, issued=False))

    return Effect(
        TICKET, IssueTicket, run, exhausted, row_lease_ms=TICKET_LEASE_MS, tries_max=TRIES_MAX
    )


def rebuild_rows(entries: Iterable[Accepted]) -> Rows:
    """Build the tables from zero, one change after the other, independently of the store."""
    tables: Rows = {name: {} for name in VIEWS.tables}
    for entry in entries:
        for event in entry.events:
            for change in project(entry.header, event):
                match change:
                    case Upsert():
                        key = tuple(change.key.values())
                        row = tables[change.table].setdefault(key, dict(change.key))
                        row.update(change.values)
                    case Delete():
                        tables[change.table].pop(tuple(change.key.values()), None)
                    case _:
                        pass
    return tables
