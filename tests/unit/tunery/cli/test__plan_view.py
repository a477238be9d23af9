"""The fields of a plan, and values of settings as people read them."""

from typing import Any

import pytest

from tests.unit.tunery.cli.test_job import ESTIMATE
from tunery.cli._plan_view import _value, plan_fields

PLAN: dict[str, Any] = {
    "refusals": [{"code": "suspended", "message": "It is suspended.", "param": None}],
    "unchecked": ["a", "b"],
    "duplicate_of": None,
    "queue": None,
    "estimate": {**ESTIMATE, "model": "tiny"},
}


def test_refusals_come_first_and_settings_have_a_table_of_their_own() -> None:
    fields = plan_fields(PLAN)
    assert fields[0] == ("refused: suspended", "It is suspended.")
    names = [name for name, value in fields if value]
    assert names[:3] == ["refused: suspended", "not checked", "model"]
    assert "settings" not in names


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (0.0002, "0.0002"),
        ({}, "none"),
        ({"q_proj": 2}, "q_proj 2"),
        (["a", "b"], "a, b"),
        ([], "none"),
        ("auto", "auto"),
        (3, "3"),
    ],
)
def test_values_are_shown_as_people_write_them(value: Any, shown: str) -> None:
    assert _value(value) == shown
