"""Prepares a PostgreSQL for the services, logged in as the owner of their database."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from tunery.platform.store.roles import role_statements

CONNECT_S_MAX: Final = 10


@asynccontextmanager
async def owner_connection(address: str) -> AsyncIterator[Any]:
    """Connect to PostgreSQL as an operator."""
    connection = await asyncpg.connect(address, timeout=CONNECT_S_MAX)
    try:
        yield connection
    finally:
        await connection.close()


async def prepare_roles(
    address: str, roles: Mapping[str, str], passwords: Mapping[str, str]
) -> None:
    """Give each service its role and its schema, all of them or none: see `role_statements`.

    Only a superuser may give passwords: other roles cannot keep failing statements out of the
    server's log. Raises ValueError for a wrong name, what asyncpg raises, and OSError.
    """
    async with owner_connection(address) as connection, connection.transaction():
        if passwords:
            await connection.execute("SET LOCAL log_min_error_statement = panic")
        for statement in role_statements(roles, passwords):
            await connection.execute(statement)
