"""Consumer groups of librdkafka used only to assign partitions to processes."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tunery.platform.bus.kafka import KafkaSettings
from tunery.platform.bus.kafka_membership import (
    CHECK_MS,
    HEARTBEATS_PER_SESSION,
    join_ms_max,
    sessions_refused,
)
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.bus")
NEVER_MS: Final = 86_400_000  # librdkafka's longest time between two polls
POLL_S: Final = 0.1
#: errors that do not pass by waiting
PERMANENT: Final = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.GROUP_MAX_SIZE_REACHED,
    }
)
Change = frozenset[int] | Unavailable


class _Member:
    """A consumer that fetches nothing. A thread keeps it in its group and reports changes."""

    def __init__(
        self,
        options: Callable[..., dict[str, Any]],
        group: str,
        topic: str,
        settings: KafkaSettings,
    ) -> None:
        self.changes: asyncio.Queue[Change] = asyncio.Queue()
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._owned: frozenset[int] = frozenset()
        self._closed = threading.Event()
        session_ms = settings.session_timeout_ms
        self._consumer = Consumer(
            options(
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=session_ms,
                heartbeat_interval_ms=max(100, session_ms // HEARTBEATS_PER_SESSION),
                max_poll_interval_ms=NEVER_MS,
                partition_assignment_strategy="cooperative-sticky",
            )
        )
        self._consumer.subscribe(
            [topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
        )

    def serve(self) -> None:
        """Stay in the group until `leave`; runs in a thread."""
        try:
            while not self._closed.is_set():
                message = self._consumer.poll(POLL_S)
                error = None if message is None else message.error()
                if error is not None:
                    self._report(error)
        except Exception as error:  # of a callback; else the owner would keep what it has for ever
            self._put(Unavailable(f"Kafka at {self._settings.bootstrap}: {error!r}"))
        finally:
            self._consumer.close()

    def leave(self) -> None:
        self._closed.set()

    def _assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.incremental_assign(list(partitions))
        consumer.pause(list(partitions))
        self._change(self._owned | {partition.partition for partition in partitions})

    def _revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.incremental_unassign(list(partitions))
        self._change(self._owned - {partition.partition for partition in partitions})

    def _report(self, error: KafkaError) -> None:
        if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            settings = self._settings
            self._put(sessions_refused(settings.bootstrap, settings.session_timeout_ms))
        elif error.fatal() or error.code() in PERMANENT:
            self._put(Unavailable(str(error)))
        else:
            log_event(LOG, logging.DEBUG, "kafka.group_retried", why=str(error))

    def _change(self, owned: frozenset[int]) -> None:
        self._owned = owned
        self._put(owned)

    def _put(self, change: Change) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.changes.put_nowait, change)


@asynccontextmanager
async def membership(
    threads: Executor,
    options: Callable[..., dict[str, Any]],
    group: str,
    topic: str,
    settings: KafkaSettings,
) -> AsyncIterator[AsyncIterator[frozenset[int]]]:
    """See `Log.membership`. Raises Unavailable.

    Sticky, and incremental: a partition has no owner for a moment while it moves.
    """
    member = _Member(options, group, topic, settings)
    serving = asyncio.get_running_loop().run_in_executor(threads, member.serve)
    try:
        try:
            async with asyncio.timeout(join_ms_max(settings.session_timeout_ms) / 1_000):
                first = await member.changes.get()
        except TimeoutError as error:
            raise Unavailable(f"Kafka at {settings.bootstrap}: no group {group} to join") from error
        if isinstance(first, Unavailable):
            raise first
        yield _changes(member.changes, first)
    finally:
        member.leave()
        await asyncio.wait((serving,))


async def _changes(
    queue: asyncio.Queue[Change], first: frozenset[int]
) -> AsyncIterator[frozenset[int]]:
    """Raises Unavailable when the client has given up on its group."""
    yield first
    while True:
        beat("waiting")
        try:
            async with asyncio.timeout(CHECK_MS / 1_000):
                change = await queue.get()
        except TimeoutError:
            continue
        if isinstance(change, Unavailable):
            raise change
        yield change
