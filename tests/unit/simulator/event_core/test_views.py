"""Rows of the scenario, and the effect that issues tickets."""

import pytest

from examples.first_stream import (
    SEATS,
    RecordTicket,
    SeatsExpired,
    SeatsHeld,
    SeatsReleased,
    TicketRecorded,
)
from simulator.event_core.streams import SeatsCounted
from simulator.event_core.views import TICKET, IssueTicket, project, rebuild_rows, ticket_effect
from tests.unit.services.scheduler.fold import header_of
from tests.unit.simulator.event_core.journal import SmallJournal
from tunery.runtime.verbs import Done, Todo

HEADER = header_of("seats", "ada", at=5)


def test_a_hold_puts_a_ticket_on_the_to_do_list_until_it_is_recorded() -> None:
    changes = project(HEADER, SeatsHeld(seats=2, until=9))
    (todo,) = (change for change in changes if isinstance(change, Todo))
    assert (todo.kind, todo.id, todo.body) == (
        TICKET,
        HEADER.command_id,
        IssueTicket(hold_id=HEADER.command_id),
    )
    recorded = project(HEADER, TicketRecorded(hold_id=HEADER.command_id, issued=False))
    assert Done(TICKET, HEADER.command_id) in recorded
    assert project(HEADER, SeatsReleased(seats=1)) == ()


def test_rows_of_a_rebuild_are_those_of_the_last_change() -> None:
    journal = SmallJournal()
    first = journal.add(SeatsHeld(seats=2, until=9))
    second = journal.add(SeatsHeld(seats=1, until=11), key="bob")
    journal.add(TicketRecorded(hold_id=first, issued=True))
    journal.add(SeatsExpired(seats=2))
    journal.add(SeatsExpired(seats=1), key="cyd")  # there is no row to delete
    journal.add(SeatsCounted(seats=2, total=2), key="ada-tally", at=20)
    journal.add(SeatsCounted(seats=1, total=3), key="ada-tally", at=21)
    assert rebuild_rows(journal.accepted) == {
        "holds": {
            (first,): {"id": first, "seats": 2, "until": 9, "issued": True},
            (second,): {"id": second, "seats": 1, "until": 11, "issued": None},
        },
        "busy_tenants": {("bob",): {"key": "bob", "until": 11}},
        "totals": {("ada-tally",): {"key": "ada-tally", "total": 3, "at": 21}},
    }


async def test_the_effect_records_a_ticket_once_it_is_issued() -> None:
    issued: list[str] = []

    async def issue(hold_id: str) -> None:
        if hold_id == "broken":
            raise ConnectionError(hold_id)
        issued.append(hold_id)

    effect = ticket_effect(issue)
    send = await effect.run(IssueTicket(hold_id="c1"), "ada", 1)
    assert issued == ["c1"]
    assert send is not None
    assert (send.stream, send.key) == (SEATS.name, "ada")
    assert send.body == RecordTicket(hold_id="c1", issued=True)
    with pytest.raises(ConnectionError):
        await effect.run(IssueTicket(hold_id="broken"), "ada", 1)


def test_an_effect_that_gives_up_says_so_on_the_log() -> None:
    async def issue(_: str) -> None:
        raise AssertionError

    effect = ticket_effect(issue)
    assert effect.exhausted is not None
    send = effect.exhausted(IssueTicket(hold_id="c1"), "ada", "no printer")
    assert send is not None
    assert send.body == RecordTicket(hold_id="c1", issued=False)
