"""Records made of others that share fields with them."""

import pytest
from msgspec import Struct

from schemas.records import build_from


class Terms(Struct):
    kind: str
    limit: int
    secret: str = ""


class Header(Struct):
    at: int
    limit: int = 0


class Row(Struct):
    kind: str
    limit: int
    at: int
    note: str = "none"


def test_a_field_comes_from_the_values_or_the_first_record_that_has_it() -> None:
    terms, header = Terms(kind="a", limit=1, secret="s"), Header(at=2)
    assert build_from(Row, terms, header) == Row(kind="a", limit=1, at=2)
    assert build_from(Row, header, terms, kind="b") == Row(kind="b", limit=0, at=2)


def test_a_field_that_nothing_has_is_an_error_unless_it_has_a_default() -> None:
    with pytest.raises(TypeError, match="at"):
        build_from(Row, Terms(kind="a", limit=1))
