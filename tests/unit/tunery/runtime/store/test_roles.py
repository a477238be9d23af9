"""Statements of roles: names and passwords in them."""

import pytest

from schemas.access import KEEPS_ROWS
from tunery.runtime.store.roles import role_of, role_statements

ROLES = {service: role_of(service) for service in KEEPS_ROWS}


def test_passwords_are_set_where_they_are_given() -> None:
    statements = list(role_statements(ROLES, {"eval": "abc"}))
    assert [text for text in statements if "PASSWORD" in text] == [
        "ALTER ROLE \"tunery_eval\" LOGIN PASSWORD 'abc'"
    ]


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a name"):
        list(role_statements({**ROLES, "eval": "x'; --"}, {}))
