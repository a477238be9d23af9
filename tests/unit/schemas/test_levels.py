"""Format level of a message, by its class and its fields."""

from typing import Annotated, ClassVar, get_args

import pytest
from msgspec import Meta

from schemas.envelope import FIRST_LEVEL, Message, Part
from schemas.levels import LEVEL, LEVELS, level_of, newer_fields
from schemas.topics import STREAMS


class Seat(Part):
    row: int
    colour: Annotated[str | None, Meta(extra={"since": 3})] = None


class Reserved(Message):
    by_name: dict[str, Seat | None]
    seats: tuple[Seat, ...] = ()
    note: Annotated[str, Meta(extra={"since": 2})] = ""


class Praised(Message):
    SINCE: ClassVar[int] = 2
    seat: Seat | None = None


class Counted(Message):
    SINCE: ClassVar[int] = 2
    SKIPPABLE: ClassVar[bool] = True


RED = Seat(row=1, colour="red")


@pytest.mark.parametrize(
    ("message", "level"),
    [
        (Reserved(seats=(Seat(row=1),), by_name={}), 1),
        (Reserved(note="window", by_name={}), 2),
        (Reserved(note="window", seats=(Seat(row=1), RED), by_name={}), 3),
        (Reserved(by_name={"ada": None, "bob": RED}), 3),
        (Praised(), 2),
        (Praised(seat=RED), 3),
        (Counted(), 1),
    ],
)
def test_a_message_needs_the_level_of_its_newest_part(message: Message, level: int) -> None:
    assert level_of(message) == level


def test_levels_are_numbered_and_every_message_names_one() -> None:
    assert [level.number for level in LEVELS] == list(range(FIRST_LEVEL, LEVEL + 1))
    members = [
        member
        for stream in STREAMS.values()
        for union in (stream.command, stream.event)
        for member in get_args(union)
    ]
    known = {level.number for level in LEVELS}
    assert {member.SINCE for member in members} <= known
    newer = [
        field for member in members for each in newer_fields(member).values() for field in each
    ]
    assert {field.since for field in newer} <= known
