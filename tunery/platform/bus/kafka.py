"""The log on Apache Kafka, with aiokafka 0.14. Every default that matters is set here."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from schemas.streams import FOREVER, Topic
from schemas.units import Ms
from tunery.platform.bus.broker_settings import SESSION_MS, Driver
from tunery.platform.bus.kafka_membership import membership
from tunery.platform.bus.kafka_producer import (
    AiokafkaProducer,
    KafkaWriter,
    Producer,
    SharedProducer,
)
from tunery.platform.bus.kafka_reader import KafkaReader, SharedClient
from tunery.platform.bus.quiet import quieten
from tunery.runtime.backoff import every, retry
from tunery.runtime.bus.abstract import Appended, Commit, Unavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.bus")
TOPIC_EXISTS: Final = 36
FORBIDDEN: Final = 29  # for this principal
GROUP_MEMBERS: Final = 5  # in the broker's description of a group
REPLICAS: Final = 3
MIN_INSYNC: Final = 2  # of three replicas and more
RECORD_BYTES_MAX: Final = 1_048_588  # the broker's own default, with the batch's overhead
CLOSE_MS_MAX: Final = 3_000
RETRY_MS: Final = 100


@dataclass(frozen=True)
class KafkaSettings:
    """How to reach Kafka, and how long to wait for it."""

    bootstrap: str  # "host:port" of one or more brokers, separated by commas
    # replicas of new topics; None: three where three brokers live, one where there is one
    replication: int | None = None
    # how long a group's member may be silent before its partitions move
    session_timeout_ms: Ms = SESSION_MS
    # limit of one command; an HTTP request must answer 503 within two seconds
    send_ms_max: Ms = 1_500
    append_ms_max: Ms = 3_000  # limit of one journal record
    request_ms_max: Ms = 5_000  # limit of every other request
    # after an answer with few records, how long a reader leaves more to gather: a request for each
    # record costs a broker and its readers more than the record
    gather_ms: Ms = 5
    # options of aiokafka's clients by which they authenticate (`KafkaLogin`)
    login: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # the client library of the log; administration is aiokafka's either way
    driver: Driver = "aiokafka"
    # options of confluent-kafka's clients by which they authenticate
    librdkafka: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def client_options(self) -> dict[str, Any]:
        """Keyword arguments for the constructor of every aiokafka client."""
        return {"bootstrap_servers": self.bootstrap, **self.login}


def topic_settings(topic: Topic, replicas: int) -> dict[str, str]:
    """Kafka's topic settings of a catalogue entry. They win over what brokers have as a default."""
    expires = topic.retention_ms != FOREVER
    chosen = {
        "cleanup.policy": ("compact,delete" if expires else "compact")
        if topic.compacted
        else "delete",
        "retention.ms": str(topic.retention_ms),
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "producer",
        "min.insync.replicas": str(min(MIN_INSYNC, max(1, replicas - 1))),
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(RECORD_BYTES_MAX),
    }
    if topic.durable and replicas == 1:  # fsynced as they come: PostgreSQL never outlives them
        chosen["flush.messages"] = "1"
    return chosen


def replicas_of(settings: KafkaSettings, live: int) -> int:
    """Replicas of new topics where `live` brokers answer. Raises Unavailable.

    A journal that begins with fewer copies than it needs keeps them, so two brokers of three that
    are starting are no reason for two replicas.
    """
    listed = len(settings.bootstrap.split(","))
    match settings.replication:
        case None if live >= REPLICAS:
            return REPLICAS
        case None if live == listed == 1:
            return 1
        case None:
            raise Unavailable(
                f"{live} brokers of Kafka live: new topics get three replicas where three do, and "
                "one where there is one. Start more, or set TUNERY_KAFKA_REPLICATION"
            )
        case replicas if replicas > live:
            raise Unavailable(
                f"TUNERY_KAFKA_REPLICATION is {replicas}, and {live} brokers of Kafka live: start "
                "the others, or lower it"
            )
        case replicas:
            return replicas


class KafkaLog:
    """Implements `OperatedLog`. Open sockets only as needed; `close` at the end."""

    def __init__(self, settings: KafkaSettings, clock: Clock | None = None) -> None:
        quieten()
        self._clock: Clock = clock or SystemClock()
        self.settings = settings
        self.session_timeout_ms = settings.session_timeout_ms
        self._options = settings.client_options
        self._shared = SharedProducer(
            self._connect, settings.bootstrap, settings.send_ms_max, self._later
        )
        self._reading = SharedClient(settings.bootstrap, settings.login)
        self._background: set[asyncio.Task[None]] = set()
        self._asking: AIOKafkaConsumer | None = None
        self._committing: dict[str, AIOKafkaConsumer] = {}
        self._lock = asyncio.Lock()

    async def create(self, topics: Sequence[Topic], partitions: int) -> None:
        """Create the topics that are missing; their partitions can be written then.

        Another process may be making those that are not missing: they are waited for, too, as long
        as a request may take. Raises Unavailable.
        """
        names = [topic.name for topic in topics]
        async with self._admin() as admin:
            there = set(await admin.list_topics())  # cheap; a refused creation is not
            absent = [topic for topic in topics if topic.name not in there]
            if absent:
                await self._create_absent(admin, absent, partitions)
            led = led_partitions(await admin.describe_topics(names))
        # A broker is named as a leader before it is one; it tells ends only when it is. Of topics
        # that were there one may be away, whose partitions soon have another leader.
        with contextlib.nullcontext() if absent else contextlib.suppress(Unavailable):
            async with self._asking_consumer() as consumer:
                await consumer.end_offsets(led)

    async def _create_absent(self, admin: Any, absent: Sequence[Topic], partitions: int) -> None:
        replicas = replicas_of(self.settings, len((await admin.describe_cluster())["brokers"]))
        wanted = [
            NewTopic(
                topic.name,
                topic.partitions or partitions,
                replicas,
                topic_configs=topic_settings(topic, replicas),
            )
            for topic in absent
        ]
        answer = await admin.create_topics(wanted)
        for name, code, *message in answer.topic_errors:
            if code == FORBIDDEN:
                raise Unavailable(
                    f"topic {name} does not exist, and this principal may not create it; "
                    "an operator does, with `tunery kafka prepare`"
                )
            if code not in (0, TOPIC_EXISTS):
                raise Unavailable(f"topic {name} was not created: error {code} {message}")
        await until_led(admin, [topic.name for topic in absent], self._clock)

    async def writer(self, topic: str, partition: int) -> KafkaWriter:
        producer = await self._connect(self.settings.append_ms_max)
        return KafkaWriter(producer, topic, partition, self._later)

    async def send(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> Appended:
        where = partition_of(key) if partition is None else partition
        return await self._shared.send(topic, where, key, value)

    async def send_all(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        await self._shared.send_all(topic, partition, records)

    async def reader(self, topic: str, positions: Mapping[int, int]) -> KafkaReader:
        client = await self._reading.connected()
        return KafkaReader(
            self._reading, client, self.bounds, topic, positions, self.settings.gather_ms
        )

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        topic_partition = TopicPartition(topic, partition)
        async with self._asking_consumer() as consumer:
            # The end first: asked the other way round, a trim in between could pass it.
            ends = await consumer.end_offsets([topic_partition])
            starts = await consumer.beginning_offsets([topic_partition])
        return int(starts[topic_partition]), int(ends[topic_partition])

    async def ends(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        async with self._asking_consumer() as consumer:
            offsets = await consumer.end_offsets(wanted)
        return {where.partition: int(end) for where, end in offsets.items()}

    async def trim(self, topic: str, partition: int, before: int) -> None:
        async with self._admin() as admin:
            await admin.delete_records(
                {TopicPartition(topic, partition): RecordsToDelete(before_offset=before)}
            )

    async def committed(self, group: str, topic: str) -> Mapping[int, Commit]:
        async with self._admin() as admin:
            offsets = await _once_ready(
                lambda: admin.list_consumer_group_offsets(group), self._clock
            )
        return {
            topic_partition.partition: Commit(saved.offset, saved.metadata)
            for topic_partition, saved in offsets.items()
            if topic_partition.topic == topic and saved.offset >= 0
        }

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """Save positions. Raises Unavailable."""
        offsets = {
            TopicPartition(topic, partition): OffsetAndMetadata(commit.offset, commit.metadata)
            for partition, commit in commits.items()
        }
        async with self._named(), self._lock:
            consumer = self._committing.get(group)
            if consumer is None:
                consumer = AIOKafkaConsumer(
                    **self._options,
                    group_id=group,
                    enable_auto_commit=False,
                    auto_offset_reset="none",
                )
                try:
                    await consumer.start()
                except BaseException:
                    self._later(consumer.stop())
                    raise
                self._committing[group] = consumer
            # Never subscribed, so the group has no members and takes commits from any client.
            if not set(offsets) <= consumer.assignment():
                consumer.assign(sorted(consumer.assignment() | set(offsets)))
            consumer.pause(*offsets)
            await consumer.commit(offsets)

    async def members(self, group: str) -> int:
        async with self._admin() as admin:
            answers = await _once_ready(
                lambda: admin.describe_consumer_groups([group]), self._clock
            )
        return sum(len(group[GROUP_MEMBERS]) for answer in answers for group in answer.groups)

    async def recreate(self, topic: Topic, partitions: int) -> None:
        async with self._admin() as admin:
            await admin.delete_topics([topic.name])
            while topic.name in await admin.list_topics():  # it asks the broker
                await self._clock.sleep(RETRY_MS)
        await self.create([topic], partitions)

    def membership(
        self, group: str, topic: str
    ) -> AbstractAsyncContextManager[AsyncIterator[frozenset[int]]]:
        return membership(self._options, group, topic, self.session_timeout_ms)

    async def close(self) -> None:
        self._shared.close()
        self._later(self._reading.close())
        if self._asking is not None:
            self._later(self._asking.stop())
        for consumer in self._committing.values():
            self._later(consumer.stop())
        if self._background:
            await asyncio.wait(self._background, timeout=CLOSE_MS_MAX / 1_000)

    async def _connect(self, wait_ms: Ms) -> Producer:
        """Raises Unavailable."""
        return await AiokafkaProducer.connect(self._options, wait_ms, self._later)

    def _later(self, closing: Coroutine[Any, Any, None]) -> None:
        """Finish `closing` in the background: callers do not wait for a client they threw away."""

        async def close() -> None:
            try:
                async with asyncio.timeout(CLOSE_MS_MAX / 1_000):
                    await closing
            except (KafkaError, OSError, TimeoutError) as error:
                log_event(LOG, logging.DEBUG, "kafka.client_not_closed", why=repr(error))

        task = asyncio.get_running_loop().create_task(close())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    @contextlib.asynccontextmanager
    async def _named(self) -> AsyncIterator[None]:
        """Within a time limit, and with errors named as ours."""
        try:
            async with asyncio.timeout(self.settings.request_ms_max / 1_000):
                yield
        except (KafkaError, OSError, TimeoutError) as error:
            raise Unavailable(f"Kafka at {self.settings.bootstrap}: {error!r}") from error

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(
            **self._options,
            request_timeout_ms=self.settings.request_ms_max,
        )
        try:
            async with self._named():
                await admin.start()
                yield admin
        finally:
            self._later(admin.close())

    @contextlib.asynccontextmanager
    async def _asking_consumer(self) -> AsyncIterator[Any]:
        """A consumer that only asks for offsets; a new one after any error."""
        consumer: Any = None
        try:
            async with self._named():
                async with self._lock:
                    if self._asking is None:
                        fresh = AIOKafkaConsumer(
                            **self._options,
                            enable_auto_commit=False,
                            auto_offset_reset="none",
                        )
                        try:
                            await fresh.start()
                        except BaseException:
                            self._later(fresh.stop())
                            raise
                        self._asking = fresh
                    consumer = self._asking
                yield consumer
        except Unavailable:
            if self._asking is not None and self._asking is consumer:
                self._later(self._asking.stop())
                self._asking = None
            raise


async def until_led(admin: Any, topics: Sequence[str], clock: Clock) -> None:
    """Wait until the broker names a leader for every partition of the new topics.

    The controller acknowledges a creation before the brokers know of it: a writer that asks for
    metadata in between is refused with UnknownTopicOrPartition.
    """
    while not all(map(_is_led, await admin.describe_topics(list(topics)))):
        await clock.sleep(RETRY_MS)


def led_partitions(topics: Sequence[Mapping[str, Any]]) -> list[TopicPartition]:
    """The partitions of described topics that have a leader: one of an old topic may have none."""
    return [
        TopicPartition(topic["topic"], partition["partition"])
        for topic in topics
        for partition in topic["partitions"]
        if partition["leader"] >= 0
    ]


def _is_led(topic: Mapping[str, Any]) -> bool:
    partitions = topic["partitions"]
    return not topic["error_code"] and all(
        not partition["error_code"] and partition["leader"] >= 0 for partition in partitions
    )


async def _once_ready(ask: Callable[[], Awaitable[Any]], clock: Clock) -> Any:
    """The answer of a broker that may first have to make its topic of groups and commits."""

    def raise_permanent(error: Exception, _: int) -> None:
        if not getattr(error, "retriable", False):
            raise error

    return await retry(
        ask, (KafkaError,), clock=clock, backoff=every(RETRY_MS), on_failure=raise_permanent
    )
