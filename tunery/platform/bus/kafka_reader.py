"""Reading from Kafka by position, without a consumer group.

A service has dozens of readers. A consumer of aiokafka brings two connections, metadata and a
coordinator of its own to each; these share one client's metadata, and each has one connection to
a broker, on which a long poll waits. The next poll is under way before what came is taken.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    LeaderNotAvailableError,
    NodeNotReadyError,
    OffsetOutOfRangeError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords

from schemas.units import Ms
from tunery.runtime.bus.abstract import OutOfRange, Record, Unavailable
from tunery.runtime.tasks import stop_tasks
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.bus")
FETCH_WAIT_MS_MAX: Final = 5_000  # long polls: data ends them at once, idle ones cost little
FETCH_BYTES_MAX: Final = 52_428_800
PARTITION_BYTES_MAX: Final = 1_048_576  # a larger batch comes whole, alone
READ_UNCOMMITTED: Final = 0
REFUSALS: Final = (TopicAuthorizationFailedError, SaslAuthenticationFailed)
NO_LEADER: Final = -1  # aiokafka's leader of a partition whose broker has gone
CONNECT_MS_MAX: Final = 3_000
REQUEST_MS_MAX: Final = 40_000  # of one fetch with its long poll; aiokafka's own default
FEW_BYTES: Final = 65_536  # in an answer: the reader is not behind
RETRY_BACKOFF_MS: Final = 500  # while the broker is away every reader asks for it this often
Bounds = Callable[[str, int], Awaitable[tuple[int, int]]]


class SharedClient:
    """Metadata of all readers of a process; each reader has connections of its own."""

    def __init__(self, bootstrap: str, login: Mapping[str, Any]) -> None:
        self._bootstrap, self._login = bootstrap, login
        self._client: Any = None
        self._lock = asyncio.Lock()

    async def connected(self) -> Any:
        """Raises Unavailable."""
        try:
            async with asyncio.timeout(CONNECT_MS_MAX / 1_000), self._lock:
                if self._client is None:
                    client = AIOKafkaClient(
                        bootstrap_servers=self._bootstrap,
                        **self._login,
                        retry_backoff_ms=RETRY_BACKOFF_MS,
                        request_timeout_ms=REQUEST_MS_MAX,
                    )
                    await client.bootstrap()
                    self._client = client
                return self._client
        except (KafkaError, OSError, TimeoutError) as error:
            raise Unavailable(f"Kafka at {self._bootstrap}: {error!r}") from error

    async def connect(self, node: int) -> Any:
        """Open a connection to a broker of the metadata. Raises KafkaError, OSError."""
        broker = (await self.connected()).cluster.broker_metadata(node)
        if broker is None:
            raise NodeNotReadyError(f"no broker {node} in the metadata")
        return await create_conn(
            broker.host, broker.port, request_timeout_ms=REQUEST_MS_MAX, **self._login
        )

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class _Fetched(NamedTuple):
    """Records of one partition from offset `position` on."""

    partition: int
    position: int
    following: int  # offset of the next fetch
    records: Iterator[Record]


class KafkaReader:
    """Implements `Reader`. An outage shows as polls without records: it asks until one answers."""

    def __init__(
        self,
        shared: SharedClient,
        client: Any,
        bounds: Bounds,
        topic: str,
        positions: Mapping[int, int],
        gather_ms: Ms = 0,
    ) -> None:
        """gather_ms: after an answer with few records, how long more are left to gather."""
        self._connect, self._client, self._bounds, self._topic = (
            shared.connect,
            client,
            bounds,
            topic,
        )
        self._gather_ms = gather_ms
        self._next_fetch_s: dict[int, float] = {}  # by node, on the loop's clock
        self._connections: dict[int, Any] = {}  # by node
        self._positions = dict(positions)  # where the next fetch of a partition begins
        self._fetches: dict[int | None, asyncio.Task[list[_Fetched]]] = {}  # by node
        self._ready: deque[Iterator[Record]] = deque()

    async def poll(self, wait_ms: Ms, records_max: int) -> Sequence[Record]:
        """Next records, none after `wait_ms`. Raises OutOfRange, Unavailable."""
        if not self._positions:
            await asyncio.sleep(wait_ms / 1_000)
            return ()
        if records := self._take(records_max):
            return records
        self._fetch_all()
        await asyncio.wait(
            self._fetches.values(), timeout=wait_ms / 1_000, return_when=asyncio.FIRST_COMPLETED
        )
        try:
            self._collect()
        except OffsetOutOfRangeError as error:
            raise await self._out_of_range(error) from error
        return self._take(records_max)

    async def close(self) -> None:
        await stop_tasks(self._fetches.values())
        for connection in self._connections.values():
            connection.close()

    def _fetch_all(self) -> None:
        """One long poll at each node that leads some of the partitions, where none waits yet."""
        by_node: dict[int | None, list[int]] = defaultdict(list)
        for partition in self._positions:
            by_node[self._leader(partition)].append(partition)
        for node in by_node.keys() - self._fetches.keys():
            self._fetches[node] = asyncio.create_task(self._fetch(node, by_node[node]))

    def _collect(self) -> None:
        """Take what came, and ask on. Raises OffsetOutOfRangeError."""
        for node, task in list(self._fetches.items()):
            if not task.done():
                continue
            del self._fetches[node]
            for fetched in task.result():
                # after a move of the leader two nodes may have been asked for the same
                if fetched.position != self._positions[fetched.partition]:
                    continue
                self._positions[fetched.partition] = fetched.following
                self._ready.append(fetched.records)
        if self._ready:
            self._fetch_all()

    def _take(self, records_max: int) -> list[Record]:
        records: list[Record] = []
        while self._ready and len(records) < records_max:
            records.extend(islice(self._ready[0], records_max - len(records)))
            if len(records) < records_max:
                self._ready.popleft()
        return records

    async def _fetch(self, node: int | None, partitions: Sequence[int]) -> list[_Fetched]:
        """Raises OffsetOutOfRangeError; any other error is a pause without records."""
        positions = {partition: self._positions[partition] for partition in partitions}
        try:
            if node is None:
                await self._look_up(partitions)
                return []
            connection = self._connections.get(node)
            if connection is None or not connection.connected():
                connection = self._connections[node] = await self._connect(node)
            loop = asyncio.get_running_loop()
            if (early_s := self._next_fetch_s.pop(node, 0) - loop.time()) > 0:
                await asyncio.sleep(early_s)
            answer = await connection.send(self._request(positions))
            fetched = self._parse(answer, positions)
            if fetched and _size(answer) < FEW_BYTES:
                self._next_fetch_s[node] = loop.time() + self._gather_ms / 1_000
            return fetched
        except OffsetOutOfRangeError:
            raise
        except (KafkaError, OSError, TimeoutError) as error:
            level = logging.WARNING if isinstance(error, REFUSALS) else logging.DEBUG
            log_event(LOG, level, "kafka.fetch_retried", topic=self._topic, why=repr(error))
            if isinstance(error, TimeoutError) and node in self._connections:
                self._connections.pop(node).close()  # a late answer would be taken for the next one
            self._client.force_metadata_update()
            await asyncio.sleep(RETRY_BACKOFF_MS / 1_000)
            return []

    async def _look_up(self, partitions: Sequence[int]) -> None:
        """Raises LeaderNotAvailableError when the leader of one is still unknown."""
        await self._client.add_topic(self._topic)
        await self._client.force_metadata_update()
        if None in {self._leader(partition) for partition in partitions}:
            raise LeaderNotAvailableError(self._topic)

    def _leader(self, partition: int) -> int | None:
        leader: int | None = self._client.cluster.leader_for_partition(
            TopicPartition(self._topic, partition)
        )
        return None if leader == NO_LEADER else leader

    def _request(self, positions: Mapping[int, int]) -> FetchRequest:
        wanted = [(number, offset, PARTITION_BYTES_MAX) for number, offset in positions.items()]
        return FetchRequest(
            FETCH_WAIT_MS_MAX, 1, FETCH_BYTES_MAX, READ_UNCOMMITTED, [(self._topic, wanted)]
        )

    def _parse(self, answer: Any, positions: Mapping[int, int]) -> list[_Fetched]:
        fetched: list[_Fetched] = []
        for _, partitions in answer.topics:
            for number, code, *_, data in partitions:
                error = for_code(code)
                if error is OffsetOutOfRangeError:
                    topic_partition = TopicPartition(self._topic, number)
                    raise OffsetOutOfRangeError({topic_partition: positions[number]})
                if code:
                    raise error(f"{self._topic}/{number}")
                if data:
                    fetched.append(_check_batches(number, positions[number], data))
        return fetched

    async def _out_of_range(self, error: OffsetOutOfRangeError) -> OutOfRange:
        """Raises Unavailable."""
        (topic, partition), offset = next(iter(error.args[0].items()))
        start, end = await self._bounds(topic, partition)
        return OutOfRange(topic, partition, offset, start, end)


def _size(answer: Any) -> int:
    return sum(len(data) for _, partitions in answer.topics for *_, data in partitions if data)


def _check_batches(partition: int, position: int, data: bytes) -> _Fetched:
    """Check the batches and find where they end; records are decoded as they are taken.

    Raises CorruptRecordException.
    """
    memory, batches = MemoryRecords(data), []
    while memory.has_next():
        batch = memory.next_batch()
        if not batch.validate_crc():
            raise CorruptRecordException(f"checksum of a batch in partition {partition}")
        batches.append(batch)
    if not batches:
        raise CorruptRecordException(f"a batch in partition {partition} came in part")
    records = _decode(partition, position, batches)
    return _Fetched(partition, position, batches[-1].next_offset, records)


def _decode(partition: int, position: int, batches: Sequence[Any]) -> Iterator[Record]:
    for batch in batches:
        if batch.is_control_batch:
            continue
        for record in batch:
            if record.offset >= position:  # the first batch may begin before it
                # a record may have no key or no value (a tombstone), though we write none
                yield Record(
                    partition,
                    record.offset,
                    record.timestamp,
                    record.key or b"",
                    record.value or b"",
                )
