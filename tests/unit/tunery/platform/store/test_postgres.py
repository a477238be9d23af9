"""Errors of an unusable store; all else is tested with a server."""

import asyncpg
import pytest

from tunery.platform.store.postgres import named_errors, open_store, pool_of
from tunery.runtime.store.abstract import BadChange, StoreError, StoreUnavailable
from tunery.runtime.store.memory import MemoryStore

NO_SERVER = "postgresql://someone@127.0.0.1:1/tunery"


class BadArgument(asyncpg.InterfaceError, ValueError):
    """As asyncpg's, for an argument of the wrong type: a bug of ours, no outage."""


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (ConnectionResetError("gone"), StoreUnavailable),
        (asyncpg.InterfaceError("the pool is closed"), StoreUnavailable),
        (asyncpg.InternalClientError("cannot switch to state 12"), StoreUnavailable),
        (BadArgument("a str is expected"), BadChange),
        (asyncpg.UndefinedColumnError("no column"), BadChange),
    ],
)
def test_an_outage_and_a_bug_have_different_errors(
    raised: Exception, named: type[StoreError]
) -> None:
    with pytest.raises(named, match=str(raised)), named_errors():
        raise raised


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="PostgreSQL cannot be used"):
        await open_store(NO_SERVER, "gateway", 1)


def test_a_store_without_sql_says_how_it_is_read() -> None:
    with pytest.raises(TypeError, match="MemoryStore has no SQL connections; read it with `rows`"):
        pool_of(MemoryStore())
