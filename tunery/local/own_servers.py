"""Servers of the user's own, before the services start: awaited aloud, and checked.

What cannot work is refused at once with the setting and the fix; a server that does not answer is
named within a second, and the start ends after AWAIT_MS_MAX.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import asyncpg

from schemas.units import Ms
from tunery.local.errors import LocalError
from tunery.local.settings import REPLACED_BY, Settings, log_settings, replaced
from tunery.platform.blobs.s3 import S3Blobs, S3Settings
from tunery.platform.bus.kafka_accounts import LoginRefused
from tunery.platform.bus.preparation import Unsuitable, check_brokers, provide_topics
from tunery.platform.connections import kafka_settings
from tunery.platform.settings import S3_REGION
from tunery.runtime.backoff import every, retry
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.clock import SystemClock

AWAIT_MS_MAX: Final[Ms] = 60_000
CONNECT_S_MAX: Final = 5.0
RETRY_MS: Final[Ms] = 1_000
TRIES_PER_NOTICE: Final = 10
AWAY: Final = (Unavailable, BlobsUnavailable, OSError, TimeoutError, asyncpg.CannotConnectNowError)
Say = Callable[[str], None]


async def check(where: Settings, environ: Mapping[str, str], say: Say) -> None:
    """Return when the user's servers answer and are set as they must be. Raises LocalError.

    say: gets what is awaited and why, and what would be better.
    """
    checks: dict[str, Callable[[], Awaitable[None]]] = {
        "kafka": lambda: _kafka(where, environ, say),
        "postgres": lambda: _postgres(where.postgres_dsn),
        "s3": lambda: _s3(where, environ),
        "valkey": lambda: _valkey(where.valkey_url),
    }
    own = replaced(environ)
    try:
        async with asyncio.TaskGroup() as group:
            for name, probe in checks.items():
                if name in own:
                    group.create_task(_await(name, probe, say))
    except* LocalError as problems:
        raise problems.exceptions[0] from None


async def _await(server: str, probe: Callable[[], Awaitable[None]], say: Say) -> None:
    """Raises LocalError."""

    def explain(error: Exception, try_number: int) -> None:
        if isinstance(error, LoginRefused):
            raise error
        if try_number % TRIES_PER_NOTICE == 1:
            say(f"{server} of {REPLACED_BY[server]} is awaited: {_words(error)}")

    try:
        await retry(
            probe,
            AWAY,
            clock=SystemClock(),
            backoff=every(RETRY_MS),
            elapsed_ms_max=AWAIT_MS_MAX,
            on_failure=explain,
        )
    except AWAY as error:
        raise LocalError(
            f"{server} cannot be used: {_words(error)}",
            f"start it, correct {REPLACED_BY[server]} and its login, or unset it to use the "
            f"embedded {server}",
        ) from error


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _kafka(where: Settings, environ: Mapping[str, str], say: Say) -> None:
    settings = kafka_settings(log_settings(where.folders, environ))
    try:
        notes = [*await check_brokers(settings), *await provide_topics(settings)]
    except Unsuitable as error:
        raise LocalError(
            f"Tunery cannot run on the Kafka of {REPLACED_BY['kafka']}:\n{error}",
            "change that, then run `tunery up` again; docs/how-to/secure-kafka.md has all settings",
        ) from error
    for note in notes:
        say(f"kafka: {note}")


async def _postgres(dsn: str) -> None:
    try:
        connection = await asyncpg.connect(dsn, timeout=CONNECT_S_MAX)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        if isinstance(error, AWAY):
            raise
        raise LocalError(
            f"PostgreSQL refuses TUNERY_POSTGRES_DSN: {error}",
            "correct its user, password and database",
        ) from error
    await connection.close()


async def _s3(where: Settings, environ: Mapping[str, str]) -> None:
    blobs = S3Blobs(
        S3Settings(
            endpoint=where.s3_endpoint,
            access_key=where.s3_access_key,
            secret_key=where.s3_secret_key,
            bucket=where.s3_bucket,
            region=environ.get("TUNERY_S3_REGION") or S3_REGION,
        )
    )
    try:
        await blobs.prepare()
    finally:
        await blobs.close()


async def _valkey(url: str) -> None:
    address = urlsplit(url)
    async with asyncio.timeout(CONNECT_S_MAX):
        _, writer = await asyncio.open_connection(address.hostname, address.port or 6379)
    writer.close()
