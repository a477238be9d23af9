"""Fixtures that every test may ask for. Real servers, one set for the whole session."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.stacks import sweep, temporary_data_dir
from tunery.local import Stack, stack


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servers() -> AsyncIterator[Stack]:
    """Kafka, PostgreSQL, S3 and Valkey on free ports, empty at the start of the session.

    `kafka_bootstrap`, `postgres_dsn`, `s3_endpoint`, `s3_access_key`, `s3_secret_key`,
    `s3_bucket`, `valkey_url`; `kill(name)`, `pause`, `resume`, `stop`, `start`, `await_ready`.
    Tests share them: use topics, schemas and prefixes of your own.
    """
    sweep()
    with temporary_data_dir() as folder:
        async with stack(folder, environ={}) as running:
            yield running
