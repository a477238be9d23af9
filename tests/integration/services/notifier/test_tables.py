"""The tables of the service in the real database: a job is followed to its end over them."""

from uuid import uuid4

from tests.unit.services.notifier.test_mirroring import follow_a_job
from tunery.local.stack import Stack
from tunery.platform.store.postgres import open_store


async def test_a_job_that_goes_to_mlflow_is_followed_over_rows_of_postgresql(
    servers: Stack,
) -> None:
    store = await open_store(servers.postgres_dsn, f"notifier_{uuid4().hex[:12]}", 2)
    try:
        server = await follow_a_job(store)
        assert server.steps() == [1, 2, 3]
    finally:
        await store.close()
