"""The stream of the tutorial: seats are held, released and expire; what is too much is refused."""

from typing import Any

import pytest

from examples.first_stream import (
    HOLD_MS,
    SEATS_AGGREGATE,
    SEATS_MAX,
    HoldSeats,
    RecordTicket,
    ReleaseSeats,
    SeatsExpired,
    SeatsHeld,
    SeatsReleased,
    TicketRecorded,
    run,
)
from schemas.envelope import Rejected, Tick
from tests.unit.services.scheduler.fold import Decider

TENANT = "ada"


def box_office() -> Decider:
    return Decider(SEATS_AGGREGATE, TENANT, 0)


def code_of(events: tuple[Any, ...]) -> str:
    (refusal,) = events
    assert isinstance(refusal, Rejected)
    return refusal.code


def test_seats_are_held_until_they_are_released_or_expire() -> None:
    office = box_office()
    assert office.when(HoldSeats(seats=3)) == (SeatsHeld(seats=3, until=HOLD_MS),)
    assert office.when(ReleaseSeats(seats=1)) == (SeatsReleased(seats=1),)
    assert office.when(Tick()) == ()
    office.at = HOLD_MS
    assert office.when(Tick()) == (SeatsExpired(seats=2),)
    assert office.state[TENANT].held == ()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (HoldSeats(seats=0), "bad_count"),
        (HoldSeats(seats=SEATS_MAX + 1), "full"),
        (ReleaseSeats(seats=1), "not_held"),
        (RecordTicket(hold_id="gone", issued=True), "not_awaited"),
    ],
)
def test_what_cannot_be_is_refused_with_a_code(command: Any, code: str) -> None:
    assert code_of(box_office().when(command)) == code


def test_a_hold_awaits_its_ticket_once() -> None:
    office = box_office()
    office.when(HoldSeats(seats=1))
    (hold_id,) = office.state[TENANT].awaiting_ticket
    ticket = RecordTicket(hold_id=hold_id, issued=True)
    assert office.when(ticket) == (TicketRecorded(hold_id=hold_id, issued=True),)
    assert code_of(office.when(ticket)) == "not_awaited"


async def test_the_tutorials_run_prints_an_entry_for_each_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await run()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ada"] * 3
