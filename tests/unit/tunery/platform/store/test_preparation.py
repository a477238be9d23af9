"""Roles are prepared at once, and their passwords are kept out of the server's log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tunery.platform.store.preparation import prepare_roles
from tunery.platform.store.roles import default_roles, role_statements

ROLES = default_roles()


class Connection:
    """Records statements, and whether each was in a transaction."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.in_transaction, self.closed = False, False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        self.in_transaction = True
        yield
        self.in_transaction = False

    async def execute(self, statement: str) -> None:
        assert self.in_transaction
        self.statements.append(statement)

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    connection = Connection()

    async def connect(_address: str, **_options: Any) -> Connection:
        return connection

    monkeypatch.setattr(asyncpg, "connect", connect)
    return connection


async def test_an_owner_who_is_no_superuser_changes_no_setting_of_the_server(
    connection: Connection,
) -> None:
    await prepare_roles("postgresql://owner@db.example.com/tunery", ROLES, {})
    assert connection.statements == list(role_statements(ROLES, {}))
    assert connection.closed


async def test_passwords_are_no_failing_statement_of_the_log(connection: Connection) -> None:
    passwords = dict.fromkeys(ROLES, "secret")
    await prepare_roles("postgresql://owner@db.example.com/tunery", ROLES, passwords)
    first, *others = connection.statements
    assert first == "SET LOCAL log_min_error_statement = panic"
    assert others == list(role_statements(ROLES, passwords))
