"""`Views` over PostgreSQL: the same suite as in memory."""

from collections.abc import AsyncIterator

import pytest_asyncio

from services.gateway.views.event_ids import step_event_id
from services.gateway.views.ports import Views
from services.gateway.views.reading import PostgresViews, views_of
from services.gateway.views.tables.jobs import STEPS
from services.gateway.views.telemetry import TELEMETRY_ROWS
from tests.contract.views_suite import ViewsSuite, fill
from tunery.local.stack import Stack
from tunery.platform.store.postgres import PostgresStore, open_store

SCHEMA = "gateway_views_test"


@pytest_asyncio.fixture(loop_scope="session")
async def store(servers: Stack) -> AsyncIterator[PostgresStore]:
    opened_store = await open_store(servers.postgres_dsn, SCHEMA, 2)
    await opened_store.pool.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    await opened_store.close()
    opened_store = await open_store(servers.postgres_dsn, SCHEMA, 2)
    yield opened_store
    await opened_store.close()


class TestPostgresViews(ViewsSuite):
    @pytest_asyncio.fixture
    async def views(self, store: PostgresStore) -> Views:
        await fill(store)
        return views_of(store)


async def test_event_ids_are_sorted_bytewise_whatever_the_collation(store: PostgresStore) -> None:
    """Whatever the collation of the database: the mark of a step comes after digits."""
    await store.ensure(TELEMETRY_ROWS.stored())
    ids = [step_event_id(at, 1, step) for step, at in enumerate((0xA, 0xB0, 0x9, 0xFF))]
    for step, name in enumerate(ids):
        await store.pool.execute(
            "INSERT INTO steps (tenant, job_id, step, id, at, attempt, total_steps, tokens, "
            "elapsed_ms) VALUES ('a', 'j', $1, $2, 0, 1, 4, 0, 0)",
            step,
            name,
        )
    views = views_of(store)
    assert isinstance(views, PostgresViews)
    rows = await views.page(STEPS, {"tenant": "a"}, limit=9, descending=False)
    assert [row.id for row in rows] == sorted(ids)
