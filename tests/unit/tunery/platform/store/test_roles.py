"""Statements of roles: names and passwords in them."""

import pytest

from tunery.platform.store.roles import default_roles, role_statements

ROLES = default_roles()


def test_passwords_are_set_where_they_are_given() -> None:
    statements = list(role_statements(ROLES, {"eval": "abc"}))
    assert [text for text in statements if "PASSWORD" in text] == [
        "ALTER ROLE \"tunery_eval\" LOGIN PASSWORD 'abc'"
    ]


def test_a_role_name_that_needs_quotes_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a name"):
        list(role_statements({**ROLES, "eval": "x'; --"}, {}))


def test_readers_get_views_that_are_created_later_as_well() -> None:
    statements = list(role_statements(ROLES, {}))
    later = [text for text in statements if text.startswith("ALTER DEFAULT PRIVILEGES")]
    assert len(later) == 2
    assert all(text.endswith('GRANT SELECT ON TABLES TO "tunery_reports"') for text in later)
    assert 'GRANT USAGE ON SCHEMA "billing_reports" TO "tunery_reports"' in statements
