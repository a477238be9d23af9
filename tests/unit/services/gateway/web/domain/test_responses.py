"""Responses made of records, and pages of a list."""

import pytest
from msgspec import Struct
from pydantic import ValidationError

from services.gateway.web.domain.responses import (
    ListItem,
    Page,
    Response,
    Seconds,
    TextOrNone,
    listing,
)


class Part(Struct):
    name: str
    secret: str = ""


class Record(Struct):
    id: str
    at: int
    note: str
    part: Part


class PartResponse(Response):
    name: str


class RecordResponse(ListItem):
    id: str
    at: Seconds
    ended_at: Seconds | None = None
    note: TextOrNone
    part: PartResponse


RECORD = Record(id="a", at=2_999, note="", part=Part("p", "s"))


def test_a_response_takes_fields_of_its_records_by_name_and_nothing_else() -> None:
    assert RecordResponse.of(RECORD).model_dump() == {
        "id": "a",
        "at": 2,
        "ended_at": None,
        "note": None,
        "part": {"name": "p"},
    }


def test_a_value_wins_over_records_and_the_first_record_over_the_next() -> None:
    other = Record(id="b", at=0, note="n", part=Part("q"))
    response = RecordResponse.of(RECORD, other, note="given")
    assert (response.id, response.note) == ("a", "given")


def test_a_field_that_no_record_has_and_one_of_another_type_are_errors() -> None:
    with pytest.raises(ValidationError, match="part"):
        RecordResponse.of(id="a", at=1, note="")
    with pytest.raises(ValidationError, match="at"):
        RecordResponse.of(RECORD, at="1")


def test_a_page_names_its_first_and_last_item() -> None:
    page = listing(Page[ListItem], [ListItem(id="a"), ListItem(id="b")], has_more=True)
    assert (page.first_id, page.last_id, page.has_more) == ("a", "b", True)


def test_an_empty_page_has_no_first_and_last_id() -> None:
    page = listing(Page[ListItem], [], has_more=False)
    assert page.model_dump() == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }
