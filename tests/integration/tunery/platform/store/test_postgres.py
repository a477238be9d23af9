import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.contract.store_suite import TABLES, StoreSuite, catch_up, commit, todo, upsert
from tunery.local.stack import Stack
from tunery.platform.store import postgres
from tunery.platform.store.postgres import (
    CONTESTED_ROWS_MAX,
    OLDEST_ROWS_MAX,
    PostgresStore,
    open_store,
)
from tunery.platform.store.statements import LEASE_FIRST_ROWS, LEASE_ROWS
from tunery.runtime.store.abstract import BadChange, StoreUnavailable
from tunery.runtime.verbs import Upsert


@pytest_asyncio.fixture
async def store(servers: Stack) -> AsyncIterator[PostgresStore]:
    store = await open_store(servers.postgres_dsn, f"suite_{uuid4().hex[:12]}", 8)
    yield store
    await store.close()


class TestPostgresStore(StoreSuite):
    """The suite, against the real database."""

    async def test_a_bad_change_is_named_and_the_whole_batch_rolled_back(
        self, store: PostgresStore
    ) -> None:
        await store.ensure(TABLES)
        with pytest.raises(BadChange, match="colour"):
            await commit(store, 0, 1, upsert("1", name="one"), Upsert("seen", {"colour": "red"}))
        with pytest.raises(BadChange, match="null value"):
            await commit(store, 0, 1, upsert("1", size=1))
        with pytest.raises(BadChange, match="bigint"):
            await commit(store, 0, 1, upsert("1", name="n", size="many"))
        assert await store.rows("things") == []
        assert (await store.positions("view"))["job", 0].position.offset == 0

    async def test_a_part_of_a_row_that_a_check_would_refuse_updates_the_row(
        self, store: PostgresStore
    ) -> None:
        ddl = (
            "CREATE TABLE IF NOT EXISTS sums (id text PRIMARY KEY, a bigint, b bigint, note text, "
            "CHECK (coalesce(a, 0) + coalesce(b, 0) > 0))"
        )
        await store.ensure(replace(TABLES, ddl=ddl, tables=("sums",)))
        await commit(store, 0, 1, Upsert("sums", {"id": "1"}, {"a": 1, "b": 2, "note": "first"}))
        await commit(store, 1, 2, Upsert("sums", {"id": "1"}, {"note": "second"}))
        (row,) = await store.rows("sums")
        assert row == {"id": "1", "a": 1, "b": 2, "note": "second"}

    async def test_nul_characters_of_tenants_do_not_stop_a_projection(
        self, store: PostgresStore
    ) -> None:
        await store.ensure(TABLES)
        body = {"text": "a\0b", "path": "C:\\u0000"}
        await commit(store, 0, 1, upsert("1", name="x\0y", body=body))
        (row,) = await store.rows("things")
        assert row["name"] == "x\ufffdy"
        assert row["body"] == {"text": "a\ufffdb", "path": "C:\\u0000"}

    async def test_a_lease_does_not_read_the_whole_queue(self, store: PostgresStore) -> None:
        await store.ensure(TABLES)
        await store.pool.execute(
            "INSERT INTO todos (kind, id, projection, key, tenant, body) "
            "SELECT 'scan', n::text, 'view', 'k', (n % 3)::text, '' "
            "FROM generate_series(1, 20000) AS n"
        )
        await store.pool.execute("ANALYZE todos")
        for statement, bounds in (
            (LEASE_FIRST_ROWS, (OLDEST_ROWS_MAX,)),
            (LEASE_ROWS, (CONTESTED_ROWS_MAX, None)),
        ):
            plan = await store.pool.fetch(
                f"EXPLAIN {statement}", "scan", 2, 10_000, "token", *bounds
            )
            assert "Seq Scan on todos" not in "\n".join(line for (line,) in plan)

    async def test_review2_e3_the_tenth_tenant_is_found_behind_a_long_queue(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where the oldest rows are of one tenant alone, all tenants are looked through."""
        monkeypatch.setattr(postgres, "OLDEST_ROWS_MAX", 3)
        await store.ensure(TABLES)
        many = (todo(f"a{number}") for number in range(5))
        await commit(store, 0, 1, *many, *(todo(f"{t}0", tenant=t) for t in "bc"))
        await catch_up(store)
        leased = await store.lease_rows("scan", 4, 10_000)
        assert sorted(row.id for row in leased) == ["a0", "a1", "b0", "c0"]

    async def test_schemas_are_isolated(self, servers: Stack, store: PostgresStore) -> None:
        other = await open_store(servers.postgres_dsn, f"suite_{uuid4().hex[:12]}", 4)
        await store.ensure(TABLES)
        await other.ensure(TABLES)
        await commit(store, 0, 1, upsert("1", name="one"))
        assert await other.rows("things") == []
        assert await other.pool.fetchval("SELECT count(*) FROM things") == 0
        await other.close()

    async def test_processes_that_start_together_create_the_tables_once(
        self, servers: Stack
    ) -> None:
        schema = f"suite_{uuid4().hex[:12]}"
        stores = await asyncio.gather(
            *(open_store(servers.postgres_dsn, schema, 4) for _ in range(4))
        )
        fresh = await asyncio.gather(*(store.ensure(TABLES) for store in stores))
        assert sorted(fresh) == [False, False, False, True]
        for store in stores:
            await store.close()

    async def test_an_unreachable_server_is_named(self) -> None:
        with pytest.raises(StoreUnavailable, match="PostgreSQL"):
            await open_store("postgresql://nobody@127.0.0.1:1/x", "nowhere", 4)

    async def test_jsonb_is_decoded_to_python_values(self, store: PostgresStore) -> None:
        await store.ensure(TABLES)
        await commit(store, 0, 1, upsert("1", name="one", body={"a": [1]}))
        row = await store.pool.fetchrow("SELECT body, $1::jsonb AS mine FROM things", {"b": 2})
        assert row is not None
        assert (row["body"], row["mine"]) == ({"a": [1]}, {"b": 2})
