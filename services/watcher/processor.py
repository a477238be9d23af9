"""The application of Faust: reads topics in its own group, and keeps tables by their keys.

Each change of a table is a record of a compacted topic, from which it is read again after a
crash. All topics are in the catalogue: nothing is created here. Faust writes changes before it
commits positions, so after a kill some records are read again, and none is left out.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import faust
from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials
from faust.types import TP
from mode.utils.queues import FlowControlEvent

from schemas.streams import PARTITIONS, Topic
from schemas.topics import PEERS, TELEMETRY, WATCHES
from schemas.units import Ms
from tunery.platform.settings import LogSettings
from tunery.runtime.bus.groups import processor_group
from tunery.runtime.bus.partitioner import partition_of

NAME: Final = "watcher"
COMMIT_S: Final = 1.0  # what is read again after a kill
#: after so long Faust's watchdog calls a partition idle that has records. It does so for changelogs
#: of tables, too, which no stream reads.
WATCHDOG_S: Final = 1e9
NOISY: Final = ("faust", "mode", "services.watcher.processor")  # each says what it starts and stops
OnRecord: TypeAlias = Callable[[bytes, bytes, Ms], Awaitable[None]]


class ProcessorStopped(Exception):
    """Faust has stopped; its own log lines say why."""


class KeyTable(faust.Table[bytes, bytes]):
    """A table whose changes are in the partition of their key, whichever process makes them."""

    def partition_for_key(self, key: bytes) -> int:
        return partition_of(key)


class KeptFlow(FlowControlEvent):
    """Keeps what has arrived when it resumes.

    Faust reads again where it has committed, waits until that is done, and then empties all queues
    as it resumes: what was fetched meanwhile would be left out (faust-streaming/faust#596). What is
    of partitions that were lost, it empties when it suspends.
    """

    def resume(self) -> None:
        self._suspend.clear()
        self._resume.set()


class Processor:
    """One run of the application. `watches`: what is kept, by job; `peers`: by type and work.

    folder: an empty one, in which Faust makes folders and no files.
    """

    def __init__(self, settings: LogSettings, folder: Path) -> None:
        for name in NOISY:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._app = faust.App(
            processor_group(NAME),
            broker=[f"aiokafka://{host.strip()}" for host in settings.kafka_bootstrap.split(",")],
            broker_client_id=NAME,
            broker_credentials=credentials(settings),
            broker_session_timeout=settings.session_timeout_ms / 1_000,
            broker_heartbeat_interval=settings.session_timeout_ms / 3_000,
            broker_commit_interval=COMMIT_S,
            consumer_auto_offset_reset="earliest",
            processing_guarantee="at_least_once",
            store="memory://",
            table_standby_replicas=0,
            topic_allow_declare=False,
            topic_disable_leader=True,
            topic_partitions=PARTITIONS,
            stream_wait_empty=False,
            stream_processing_timeout=WATCHDOG_S,
            broker_commit_livelock_soft_timeout=WATCHDOG_S,
            autodiscover=False,
            web_enabled=False,
            datadir=str(folder),
        )
        self._app.flow_control = KeptFlow()
        self.watches, self.peers = self._table(WATCHES), self._table(PEERS)

    def on_records(self, topic: Topic, take: OnRecord) -> None:
        """Call `take` with key, value and broker time of each record; it must not raise."""

        async def process(stream: Any) -> None:
            async for event in stream.events():
                record = event.message
                await take(record.key or b"", record.value or b"", round(record.timestamp * 1_000))

        self._app.agent(self._topic(topic.name), name=topic.name)(process)

    async def start(self) -> None:
        """Return when the table was read and records are taken."""
        await self._app.start()
        self.check()

    async def stop(self) -> None:
        await self._app.stop()

    def check(self) -> None:
        """Raises what it crashed with, or ProcessorStopped."""
        if self._app.should_stop:
            raise self._app.crash_reason or ProcessorStopped

    def partitions(self) -> frozenset[int]:
        """Partitions of telemetry that this process reads."""
        assigned = self._app.consumer.assignment()
        return frozenset(at.partition for at in assigned if at.topic == TELEMETRY.name)

    async def next_offset(self, partition: int) -> int | None:
        """Up to which offset a partition was read."""
        return await self._app.consumer.position(TP(TELEMETRY.name, partition))

    def _table(self, changelog: Topic) -> "KeyTable":
        table = KeyTable(
            self._app,
            name=changelog.name,
            key_type=bytes,
            value_type=bytes,
            partitions=PARTITIONS,
            changelog_topic=self._topic(changelog.name),
        )
        self._app.tables.add(table)
        return table

    def _topic(self, name: str) -> Any:
        return self._app.topic(
            name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
        )


def credentials(settings: LogSettings) -> Any:
    """Login of Faust at Kafka; None: anonymous. Raises OSError for files that are gone."""
    options = settings.client_options()
    context = options.get("ssl_context")
    if provider := options.get("sasl_oauth_token_provider"):
        return OAuthCredentials(oauth_cb=provider, ssl_context=context)
    if "sasl_mechanism" in options:
        return SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    return None if context is None else SSLCredentials(context)
