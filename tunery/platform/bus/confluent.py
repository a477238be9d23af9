"""The log on Apache Kafka, with confluent-kafka: librdkafka, which works in threads of its own.

Its asyncio clients are not used. The producer collects records for a time or a number before it
sends them, and the consumer either waits for a full batch or crosses threads for each record.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, OffsetSpec

from schemas.streams import Topic
from schemas.units import Ms
from tunery.platform.bus.confluent_membership import membership
from tunery.platform.bus.kafka import (
    CLOSE_MS_MAX,
    RETRY_MS,
    KafkaSettings,
    replicas_of,
    topic_settings,
)
from tunery.platform.bus.kafka_producer import (
    BATCH_BYTES_MAX,
    REQUEST_BYTES_MAX,
    RETRY_BACKOFF_MS,
    KafkaWriter,
    Pending,
    Producer,
    SharedProducer,
)
from tunery.platform.bus.kafka_reader import FETCH_BYTES_MAX, FETCH_WAIT_MS_MAX, PARTITION_BYTES_MAX
from tunery.platform.bus.quiet import quieten
from tunery.runtime.backoff import every, retry
from tunery.runtime.bus.abstract import (
    Appended,
    AppendUnknown,
    Commit,
    OutOfRange,
    Record,
    Unavailable,
)
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.bus")
LIBRARY_LOG: Final = logging.getLogger("librdkafka")
THREADS_MAX: Final = 256  # a reader that waits takes one
POLL_S: Final = 0.1
RECONNECT_MS_MAX: Final = 1_000
QUEUED_KB_MAX: Final = 16_384  # of records that a reader has fetched ahead
READERS: Final = "tunery.readers"  # a consumer needs a group's name; none joins or commits
FORBIDDEN: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)
#: requests that had no effect, and may have one a moment later
TRANSIENT: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
K = TypeVar("K")
T = TypeVar("T")


class LibrdkafkaOptions:
    """Options of all clients of a process, and the last error that one of them reported."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.last_error: KafkaError | None = None
        self._options: dict[str, Any] = {
            "bootstrap.servers": settings.bootstrap,
            "reconnect.backoff.ms": RETRY_BACKOFF_MS,
            "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
            "error_cb": self._note,
            "logger": LIBRARY_LOG,
            **settings.librdkafka,
        }

    def __call__(self, **more: Any) -> dict[str, Any]:
        """Add options; underscores in names stand for dots."""
        return self._options | {name.replace("_", "."): value for name, value in more.items()}

    def _note(self, error: KafkaError) -> None:
        self.last_error = error


class ConfluentProducer:
    """Implements `Producer`. A thread waits for acknowledgements, and settles them together."""

    def __init__(self, options: LibrdkafkaOptions, wait_ms: Ms) -> None:
        self._options, self._wait_ms = options, wait_ms
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._outcomes: list[tuple[asyncio.Future[Appended], Appended | AppendUnknown]] = []
        self.client = LibrdkafkaProducer(
            options(
                acks="all",
                enable_idempotence=True,
                compression_type="zstd",
                linger_ms=0,
                batch_size=BATCH_BYTES_MAX,
                message_max_bytes=REQUEST_BYTES_MAX,
                message_timeout_ms=wait_ms,
                request_timeout_ms=wait_ms,
                retry_backoff_ms=RETRY_BACKOFF_MS,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="kafka-producer", daemon=True)
        self._thread.start()

    async def submit(
        self, topic: str, partition: int, key: bytes, value: bytes
    ) -> Awaitable[Appended]:
        """Raises Unavailable."""
        if self._is_closed:
            raise Unavailable("the producer is closed")
        future: asyncio.Future[Appended] = self._loop.create_future()
        deadline = self._loop.time() + self._wait_ms / 1_000
        while True:
            try:
                self.client.produce(
                    topic, value, key, partition, on_delivery=partial(self._note, future)
                )
            except BufferError as error:  # librdkafka's queue is full
                if self._loop.time() > deadline:
                    raise Unavailable(repr(error)) from error
                await asyncio.sleep(RETRY_BACKOFF_MS / 1_000)
            except KafkaException as error:
                raise Unavailable(repr(error)) from error
            else:
                return Pending(future, self._wait_ms)

    async def append_all(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Append one after the other: after one that failed, librdkafka may send what is queued.

        Raises AppendUnknown, Unavailable.
        """
        for key, value in records:
            await (await self.submit(topic, partition, key, value))

    async def discard(self) -> None:
        """Drop what is queued and in flight, and close the sockets."""
        self._is_closed = True
        self.client.purge(blocking=False)
        while self._thread.is_alive():  # noqa: ASYNC110  # a thread has no event of the loop
            await asyncio.sleep(POLL_S / 10)

    def _note(
        self, future: asyncio.Future[Appended], error: KafkaError | None, message: Message
    ) -> None:
        """Note the outcome of an append; called by `poll`, in its thread."""
        offset = message.offset()
        if error is not None:
            self._outcomes.append((future, AppendUnknown(str(error))))
        elif offset is None or offset < 0:  # a repeat of a record whose offset is not known
            self._outcomes.append((future, AppendUnknown("acknowledged without an offset")))
        else:
            self._options.last_error = None
            self._outcomes.append((future, Appended(offset, message.timestamp()[1])))

    def _serve(self) -> None:
        while not self._is_closed:
            self.client.poll(POLL_S)
            self._settle()
        self.client.poll(0)  # what was purged
        self._settle()
        self.client.close()

    def _settle(self) -> None:
        if not self._outcomes:
            return
        outcomes, self._outcomes = self._outcomes, []
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no caller to resume
            self._loop.call_soon_threadsafe(_settle_all, outcomes)


def _settle_all(
    outcomes: Sequence[tuple[asyncio.Future[Appended], Appended | AppendUnknown]],
) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue
        if isinstance(outcome, AppendUnknown):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class ConfluentReader:
    """Implements `Reader`. An outage shows as polls without records."""

    def __init__(
        self,
        threads: ThreadPoolExecutor,
        options: LibrdkafkaOptions,
        bounds: Callable[[str, int], Awaitable[tuple[int, int]]],
        topic: str,
        positions: Mapping[int, int],
    ) -> None:
        self._threads, self._bounds, self._topic = threads, bounds, topic
        self._positions = dict(positions)
        self._polling: asyncio.Future[list[Record | Message]] | None = None
        self._left: list[Record] = []  # of a poll whose caller did not wait for it
        self._consumer = Consumer(
            options(
                group_id=READERS,
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                auto_offset_reset="error",
                isolation_level="read_uncommitted",
                check_crcs=True,
                fetch_wait_max_ms=FETCH_WAIT_MS_MAX,
                fetch_max_bytes=FETCH_BYTES_MAX,
                fetch_message_max_bytes=PARTITION_BYTES_MAX,
                queued_max_messages_kbytes=QUEUED_KB_MAX,
                retry_backoff_ms=RETRY_BACKOFF_MS,
            )
        )
        self._consumer.assign([TopicPartition(topic, *where) for where in positions.items()])

    async def poll(self, wait_ms: Ms, records_max: int) -> Sequence[Record]:
        """Next records, none after `wait_ms`. Raises OutOfRange, Unavailable."""
        if not self._left:
            if self._polling is None:
                self._polling = asyncio.get_running_loop().run_in_executor(
                    self._threads, self._poll, wait_ms / 1_000, records_max
                )
            # a poll goes on where its caller was cancelled: the next one takes what it brings
            await asyncio.wait((self._polling,))
            polled, self._polling = self._polling, None
            for message in polled.result():
                if isinstance(message, Record):
                    self._left.append(message)
                else:
                    await self._report(message)
        records, self._left = self._left[:records_max], self._left[records_max:]
        return records

    async def close(self) -> None:
        if self._polling is not None:
            await asyncio.wait((self._polling,))
        await asyncio.get_running_loop().run_in_executor(self._threads, self._consumer.close)

    def _poll(self, wait_s: float, records_max: int) -> list[Record | Message]:
        """Wait for one record, and take those behind it. Records, and messages that are errors."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return []
        more = self._consumer.consume(records_max - 1, 0) if records_max > 1 else []
        return [
            message
            if message.error() is not None
            else Record(
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key() or b"",
                message.value() or b"",
            )
            for message in (first, *more)
        ]

    async def _report(self, message: Message) -> None:
        """Raises OutOfRange, Unavailable."""
        error, partition = message.error(), message.partition()
        if error.name() == "_AUTO_OFFSET_RESET":  # the position is outside the log
            start, end = await self._bounds(self._topic, partition)
            raise OutOfRange(self._topic, partition, self._positions[partition], start, end)
        level = logging.WARNING if error.code() in FORBIDDEN else logging.DEBUG
        log_event(LOG, level, "kafka.fetch_retried", topic=self._topic, why=str(error))


class ConfluentLog:
    """Implements `OperatedLog`. Clients are made as they are needed; `close` at the end."""

    def __init__(self, settings: KafkaSettings, clock: Clock | None = None) -> None:
        quieten()
        self._clock: Clock = clock or SystemClock()
        self.settings = settings
        self.session_timeout_ms = settings.session_timeout_ms
        self._options = LibrdkafkaOptions(settings)
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="kafka")
        self._shared = SharedProducer(
            self._connect, settings.bootstrap, settings.send_ms_max, self._later
        )
        self._admin: AdminClient | None = None
        self._background: set[asyncio.Task[None]] = set()

    async def create(self, topics: Sequence[Topic], partitions: int) -> None:
        """Create the topics that are missing; their partitions can be written then.

        Raises Unavailable.
        """
        async with self._named() as admin:
            there = await self._metadata(admin)
            absent = [topic for topic in topics if topic.name not in there.topics]
            if not absent:
                return
            replicas = replicas_of(self.settings, len(there.brokers))
            creations = admin.create_topics(
                [
                    NewTopic(
                        topic.name,
                        topic.partitions or partitions,
                        replicas,
                        config=topic_settings(topic, replicas),
                    )
                    for topic in absent
                ]
            )
            for name, creation in creations.items():
                await self._await_created(name, creation)
            names = [topic.name for topic in absent]
            while not _are_led(await self._metadata(admin), names):
                await self._clock.sleep(RETRY_MS)

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

    async def reader(self, topic: str, positions: Mapping[int, int]) -> ConfluentReader:
        return ConfluentReader(self._threads, self._options, self.bounds, topic, positions)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        # The end first: in the other order, a trim in between could pass it.
        end = await self._offsets(topic, (partition,), OffsetSpec.latest())
        start = await self._offsets(topic, (partition,), OffsetSpec.earliest())
        return start[partition], end[partition]

    async def ends(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        return await self._offsets(topic, partitions, OffsetSpec.latest())

    async def trim(self, topic: str, partition: int, before: int) -> None:
        async with self._named():
            where = TopicPartition(topic, partition, before)
            await self._once_ready(lambda admin: admin.delete_records([where]))

    async def committed(self, group: str, topic: str) -> Mapping[int, Commit]:
        """Raises Unavailable."""
        async with self._named():
            [saved] = (
                await self._once_ready(
                    lambda admin: admin.list_consumer_group_offsets(
                        [ConsumerGroupTopicPartitions(group)]
                    )
                )
            ).values()
        return {
            position.partition: Commit(position.offset, position.metadata or "")
            for position in saved.topic_partitions
            if position.topic == topic and position.offset >= 0
        }

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """Save positions. Raises Unavailable."""
        positions = [
            TopicPartition(topic, partition, commit.offset, commit.metadata)
            for partition, commit in commits.items()
        ]
        async with self._named():
            [saved] = (
                await self._once_ready(
                    lambda admin: admin.alter_consumer_group_offsets(
                        [ConsumerGroupTopicPartitions(group, positions)]
                    )
                )
            ).values()
            for position in saved.topic_partitions:
                if position.error is not None:
                    raise KafkaException(position.error)

    async def members(self, group: str) -> int:
        """Raises Unavailable."""
        async with self._named():
            try:
                answers = await self._once_ready(
                    lambda admin: admin.describe_consumer_groups([group])
                )
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return 0
                raise
        return len(answers[group].members)

    async def recreate(self, topic: Topic, partitions: int) -> None:
        async with self._named() as admin:
            await asyncio.wrap_future(admin.delete_topics([topic.name])[topic.name])
            while topic.name in (await self._metadata(admin)).topics:
                await self._clock.sleep(RETRY_MS)
        await self.create([topic], partitions)

    def membership(
        self, group: str, topic: str
    ) -> AbstractAsyncContextManager[AsyncIterator[frozenset[int]]]:
        return membership(self._threads, self._options, group, topic, self.settings)

    async def close(self) -> None:
        self._shared.close()
        if self._background:
            await asyncio.wait(self._background, timeout=CLOSE_MS_MAX / 1_000)
        self._admin = None
        self._threads.shutdown(wait=False)

    async def _connect(self, wait_ms: Ms) -> Producer:
        """Raises Unavailable."""
        producer = ConfluentProducer(self._options, wait_ms)
        try:
            # a new client connects by itself, and says nothing of it: any answer will do
            await self._in_thread(partial(producer.client.list_topics, timeout=wait_ms / 1_000))
        except KafkaException as error:
            self._later(producer.discard())
            raise self._unavailable(error) from error
        except BaseException:
            self._later(producer.discard())
            raise
        return producer

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _metadata(self, admin: AdminClient) -> ClusterMetadata:
        """Raises KafkaException."""
        wait_s = self.settings.request_ms_max / 1_000
        return await self._in_thread(partial(admin.list_topics, timeout=wait_s))

    async def _offsets(
        self, topic: str, partitions: Sequence[int], which: OffsetSpec
    ) -> dict[int, int]:
        """Raises Unavailable."""
        wanted = {TopicPartition(topic, partition): which for partition in partitions}
        async with self._named():
            answers = await self._once_ready(lambda admin: admin.list_offsets(wanted))
        return {where.partition: answer.offset for where, answer in answers.items()}

    async def _await_created(self, name: str, creation: "Future[None]") -> None:
        """Raises Unavailable, KafkaException."""
        try:
            await asyncio.wrap_future(creation)
        except KafkaException as error:
            code = error.args[0].code()
            if code in FORBIDDEN:
                raise Unavailable(
                    f"topic {name} does not exist, and this principal may not create it; "
                    "an operator does, with `tunery kafka prepare`"
                ) from error
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    async def _once_ready(
        self, ask: Callable[[AdminClient], Mapping[K, "Future[T]"]]
    ) -> dict[K, T]:
        """Answers of a broker that may first have to make a topic, or to lead a partition."""

        async def ask_once() -> dict[K, T]:
            answers = ask(self._client())
            return dict(
                zip(
                    answers,
                    await asyncio.gather(*map(asyncio.wrap_future, answers.values())),
                    strict=True,
                )
            )

        def raise_permanent(error: Exception, _: int) -> None:
            code = error.args[0].code()
            if code == KafkaError.FENCED_LEADER_EPOCH:
                self._admin = None  # it would ask for an epoch from before a restart for minutes
            elif code not in TRANSIENT:
                raise error

        return await retry(
            ask_once,
            (KafkaException,),
            clock=self._clock,
            backoff=every(RETRY_MS),
            on_failure=raise_permanent,
        )

    @contextlib.asynccontextmanager
    async def _named(self) -> AsyncIterator[AdminClient]:
        """A client for requests, within a time limit, and with errors named as ours."""
        try:
            async with asyncio.timeout(self.settings.request_ms_max / 1_000):
                yield self._client()
            self._options.last_error = None  # it is over: a later failure has another cause
        except (KafkaException, TimeoutError) as error:
            raise self._unavailable(error) from error

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._options())
        return self._admin

    def _unavailable(self, error: Exception) -> Unavailable:
        before = "" if self._options.last_error is None else f", after {self._options.last_error}"
        return Unavailable(f"Kafka at {self.settings.bootstrap}: {error!r}{before}")

    def _later(self, closing: Coroutine[Any, Any, None]) -> None:
        """Finish `closing` in the background: callers do not wait for a client they threw away."""
        task = asyncio.get_running_loop().create_task(closing)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _are_led(metadata: ClusterMetadata, topics: Sequence[str]) -> bool:
    """Return whether the broker names a leader for every partition of these topics."""
    described = [metadata.topics.get(topic) for topic in topics]
    return all(
        topic is not None
        and topic.error is None
        and all(part.error is None and part.leader >= 0 for part in topic.partitions.values())
        for topic in described
    )
