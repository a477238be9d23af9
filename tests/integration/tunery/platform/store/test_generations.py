"""Schemas of versions beside each other: what is copied, what is made anew, what goes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final
from uuid import uuid4

import pytest_asyncio

from tests.contract.store_suite import TABLES, at, commit, todo, upsert
from tunery.local.stack import Stack
from tunery.platform.store.generations import drop_schema, older_schemas, unused_schemas
from tunery.platform.store.postgres import PostgresStore, open_store
from tunery.runtime.journal.reader import START
from tunery.runtime.store.abstract import Tables

Open = Callable[[str], Awaitable[PostgresStore]]


@pytest_asyncio.fixture
async def versions(servers: Stack) -> AsyncIterator[Open]:
    """Opens a schema of one service by its suffix."""
    service = "service_" + uuid4().hex[:8].translate(str.maketrans("0123456789", "ghijklmnop"))
    async with AsyncExitStack() as stack:

        async def opened(suffix: str) -> PostgresStore:
            store = await open_store(servers.postgres_dsn, service + suffix, 2)
            stack.push_async_callback(store.close)
            return store

        yield opened


NEXT: Final = replace(TABLES, version=TABLES.version + 1)


async def fill(store: PostgresStore, name: str, tables: Tables = TABLES) -> None:
    assert await store.ensure(tables)
    row = upsert("1", name=name, size=1)
    await commit(store, 0, 2, row, todo("a"), version=tables.version)
    await store.set_caught_up("view", ("job", 0), True)


async def test_rows_of_the_same_version_are_copied_and_read_on(versions: Open) -> None:
    await fill(await versions(""), "before versions")
    await fill(await versions("_v9"), "another version", NEXT)
    tenth = await versions("_v10")
    assert not await tenth.ensure(TABLES)
    await commit(tenth, 2, 3, upsert("1", name="the newest", size=1))
    new = await versions("_v11")
    assert not await new.ensure(TABLES)
    assert [row["name"] for row in await new.rows("things")] == ["the newest"]
    saved = await new.positions("view")
    assert saved["job", 0].position == at(3)
    assert not saved["job", 0].caught_up
    assert saved.keys() == set(TABLES.partitions)
    await commit(new, 3, 4, upsert("2", name="more", size=1))
    assert not await new.ensure(TABLES)
    assert len(await new.rows("things")) == 2


async def test_rows_of_another_version_are_made_from_the_log(versions: Open) -> None:
    old = await versions("_v3")
    await fill(old, "old")
    new = await versions("_v4")
    assert await new.ensure(NEXT)
    assert await new.rows("things") == []
    assert (await new.positions("view"))["job", 0].position == START
    # the release before goes on with its own
    await commit(old, 2, 3, upsert("2", name="more", size=1))
    assert len(await old.rows("things")) == 2
    assert await new.rows("things") == []


async def until_unused(store: PostgresStore, schemas: list[str]) -> None:
    """Wait until PostgreSQL has noticed which connections are closed."""
    async with asyncio.timeout(10):
        while await unused_schemas(store.pool, store.schema) != schemas:  # noqa: ASYNC110  # rows of a database
            await asyncio.sleep(0.02)


async def test_a_schema_that_no_process_is_connected_to_is_unused(versions: Open) -> None:
    await (await versions("_v1")).close()
    old, new = await versions("_v2"), await versions("_v3")
    first, second = (f"{new.schema[:-1]}{number}" for number in (1, 2))
    assert await older_schemas(new.pool, new.schema) == [second, first]
    await until_unused(new, [first])
    await old.close()
    await until_unused(new, [second, first])
    for schema in (first, second, second):
        await drop_schema(new.pool, schema)
    assert await older_schemas(new.pool, new.schema) == []


async def test_a_service_without_versions_has_no_older_schema(versions: Open) -> None:
    alone = await versions("")
    await versions("_v1")
    assert await older_schemas(alone.pool, alone.schema) == []
