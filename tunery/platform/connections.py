"""Connects a service to Kafka, PostgreSQL and S3, and waits for servers that are not up yet."""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from schemas.access import keeps_rows, makes_keys, opens_keys, schema_of
from schemas.streams import PARTITIONS
from schemas.topics import STREAMS, TOPICS
from tunery.platform.blobs.encrypted import EncryptedBlobs
from tunery.platform.blobs.path_keys import TenantPathKeys
from tunery.platform.blobs.s3 import S3Blobs, S3Settings
from tunery.platform.bus.drivers import open_log
from tunery.platform.bus.kafka import KafkaSettings
from tunery.platform.object_policies import archive_bucket
from tunery.platform.ports import Runtime
from tunery.platform.seal.absent import NoKeys
from tunery.platform.seal.abstract import KeyStore
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots
from tunery.platform.seal.sealer import Sealer
from tunery.platform.settings import LogSettings, RuntimeSettings, SettingsError
from tunery.platform.store.postgres import open_store
from tunery.runtime.backoff import Backoff, retry
from tunery.runtime.blobs.abstract import Blobs, BlobsUnavailable, ListedBlobs
from tunery.runtime.bus.abstract import BusError, OperatedLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys, read_keys
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.levels import LogLevels
from tunery.runtime.store.absent import absent_store
from tunery.runtime.store.abstract import Store, StoreUnavailable
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.tools.archived_log import Archive, ArchivedLog

LOG: Final = logging.getLogger("tunery.process")
BACKOFF: Final = Backoff(250, 2_000)
PATIENCE_MS: Final = 30_000
LOG_EVERY: Final = 8  # tries between two log lines about a server that is still away
AWAY: Final = (StoreUnavailable, BlobsUnavailable, BusError, OSError)
#: services that no request and no lease waits for
UNHURRIED: Final = frozenset({"billing", "eval", "ingest", "notifier", "registry", "watcher"})
GATHER_MS: Final = 50  # of these, for records of a journal
UNCHECKED: Final = "off"  # of TUNERY_COMMAND_KEYS
T = TypeVar("T")


@asynccontextmanager
async def open_runtime(name: str, settings: RuntimeSettings) -> AsyncIterator[Runtime]:
    """Connect to Kafka, PostgreSQL and S3, however long it takes them to come up.

    Raises SettingsError, ReleaseTooOld.
    """
    clock, keys, dsn = SystemClock(), sender_keys(settings, name), database_of(settings, name)
    data_keys = key_store_of(settings, name)
    async with AsyncExitStack() as stack:
        gather_ms = GATHER_MS if name in UNHURRIED else KafkaSettings.gather_ms
        kafka = open_log(dataclasses.replace(kafka_settings(settings), gather_ms=gather_ms))
        log = archived(kafka, lambda: s3_settings(settings))
        stack.push_async_callback(log.close)
        blobs = S3Blobs(s3_settings(settings))
        stack.push_async_callback(blobs.close)

        async def connect_store() -> Store:
            if dsn is None:
                return absent_store(name)
            store = await open_store(dsn, schema_of(name), settings.postgres_connections_max)
            stack.push_async_callback(store.close)
            return store

        async def create_topics() -> None:
            await log.create(TOPICS, PARTITIONS)

        levels = LogLevels(keys=keys)

        # A task group may be used here: what goes wrong in it ends the start, and so the process.
        async with asyncio.TaskGroup() as group:
            store = group.create_task(wait_for_server("PostgreSQL", connect_store, clock))
            group.create_task(wait_for_server("S3", blobs.prepare, clock))
            group.create_task(wait_for_server("Kafka", create_topics, clock))
        await wait_for_server("Kafka", partial(levels.load, log), clock)
        yield Runtime(
            name=name,
            settings=settings,
            log=log,
            store=store.result(),
            blobs=encrypted(blobs, data_keys, settings) if opens_keys(name) else blobs,
            seal=Sealer(data_keys),
            sender=Sender(log, STREAMS, keys=keys, level_of_stream=levels.of),
            clock=clock,
            keys=keys,
            levels=levels,
        )


async def wait_for_server(server: str, connect: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Call `connect` until it succeeds; now and then a log line names the awaited server."""

    def note(error: Exception, try_number: int) -> None:
        if try_number % LOG_EVERY == 1:
            log_event(
                LOG, logging.WARNING, "server.awaited", server=server, tries=try_number, why=error
            )

    return await retry(connect, AWAY, clock=clock, backoff=BACKOFF, on_failure=note)


def sender_keys(settings: RuntimeSettings, name: str) -> SenderKeys:
    """Return the keys of a process, under the name in its keys, else under `name`.

    Raises SettingsError.
    """
    if settings.command_keys == UNCHECKED:
        log_event(LOG, logging.WARNING, "commands.unchecked")
        return UNSIGNED
    how = f"`tunery kafka keys {name}` prints it; `{UNCHECKED}` trusts all who may write to Kafka"
    if settings.command_keys is None:
        raise SettingsError(f"TUNERY_COMMAND_KEYS is not set; {how}")
    try:
        keys = read_keys(settings.command_keys)
    except ValueError:
        raise SettingsError(f"TUNERY_COMMAND_KEYS cannot be read; {how}") from None
    return replace(keys, sender=keys.sender or name)


def key_store_of(settings: RuntimeSettings, name: str) -> KeyStore:
    """The keys of tenants; none for a service that opens and seals no texts."""
    if not opens_keys(name):
        return NoKeys(name)
    roots = settings.roots
    if roots is None:
        log_event(LOG, logging.WARNING, "keys.unwrapped", folder=settings.keys)
    wrapping = None if roots is None else Roots(roots)
    return DirectoryKeyStore(settings.keys, wrapping, creates=makes_keys(name))


def encrypted(blobs: Blobs, keys: KeyStore, settings: RuntimeSettings) -> Blobs:
    """Object storage as a service with data keys uses it."""
    encrypts = settings.blob_encryption == "on"
    return EncryptedBlobs(blobs, TenantPathKeys(keys), encrypts=encrypts)


def database_of(settings: RuntimeSettings, name: str) -> str | None:
    """Return the Postgres DSN of a service; None if it keeps no rows. Raises SettingsError."""
    if not keeps_rows(name):
        return None
    if settings.postgres_dsn is None:
        raise SettingsError(
            "TUNERY_POSTGRES_DSN is not set: start the service with `tunery up`, "
            f"or name the role of {name} (`tunery postgres sql`)"
        )
    return settings.postgres_dsn


def kafka_settings(settings: LogSettings) -> KafkaSettings:
    return KafkaSettings(
        bootstrap=settings.kafka_bootstrap,
        login=settings.client_options(),
        driver=settings.kafka_driver,
        librdkafka=settings.librdkafka_options(),
        replication=settings.kafka_replication,
        session_timeout_ms=settings.session_timeout_ms,
    )


def patient_kafka_settings(settings: LogSettings) -> KafkaSettings:
    """For commands that a person waits for."""
    return patient(kafka_settings(settings))


def patient(settings: KafkaSettings) -> KafkaSettings:
    """For what a person waits for: unlike services it answers no HTTP client in time.

    The first writer of a fresh broker waits for a producer id and for all new topics.
    """
    return dataclasses.replace(
        settings,
        send_ms_max=PATIENCE_MS,
        append_ms_max=PATIENCE_MS,
        request_ms_max=PATIENCE_MS,
    )


def archived(log: OperatedLog, settings: Callable[[], S3Settings]) -> ArchivedLog:
    """The log with the records that `tunery journal archive` has moved to object storage.

    settings: how to reach the bucket of objects, computed when an older record is wanted
    """

    def connect() -> ListedBlobs:
        objects = settings()
        return S3Blobs(dataclasses.replace(objects, bucket=archive_bucket(objects.bucket)))

    streams = {stream.journal.name: stream.name for stream in STREAMS.values()}
    return ArchivedLog(log, Archive(connect), streams)


def s3_settings(settings: RuntimeSettings) -> S3Settings:
    return S3Settings(
        endpoint=settings.s3_endpoint,
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key,
        bucket=settings.s3_bucket,
        region=settings.s3_region,
    )
