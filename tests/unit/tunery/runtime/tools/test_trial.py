from examples.first_stream import SEATS_AGGREGATE, HoldSeats, SeatsHeld
from schemas.envelope import Rejected
from tunery.runtime.tools.trial import try_commands


async def test_each_command_has_one_entry_in_the_order_of_the_commands() -> None:
    entries = await try_commands(
        SEATS_AGGREGATE, "ada", (HoldSeats(seats=4), HoldSeats(seats=2), HoldSeats(seats=1))
    )
    assert [(entry.entry.key, entry.entry.seq) for entry in entries] == [
        ("ada", 1),
        ("ada", 2),
        ("ada", 3),
    ]
    assert [type(event) for entry in entries for event in entry.events] == [
        SeatsHeld,
        Rejected,
        SeatsHeld,
    ]
