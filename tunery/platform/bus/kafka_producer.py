"""Appending to Kafka. A producer is thrown away after any doubt: it would retry for ever."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from schemas.units import Ms
from tunery.runtime.bus.abstract import Appended, AppendUnknown, Unavailable, check_size

REQUEST_BYTES_MAX: Final = 8_388_608
BATCH_BYTES_MAX: Final = 262_144
RETRY_BACKOFF_MS: Final = 50
HOLD_OFF_MS: Final = 200  # after a failed connection, how long sends fail at once

Later = Callable[[Coroutine[Any, Any, None]], None]


class Producer(Protocol):
    """A connected idempotent producer of either client."""

    async def submit(
        self, topic: str, partition: int, key: bytes, value: bytes
    ) -> Awaitable[Appended]:
        """Queue a record; the result is awaited for its offset. Raises Unavailable."""

    async def append_all(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Append keys and values, none before those ahead of it.

        Raises AppendUnknown, Unavailable.
        """

    async def discard(self) -> None:
        """Stop sending and close the sockets."""


Connect = Callable[[Ms], Awaitable[Producer]]


class AiokafkaProducer:
    """Implements `Producer` with aiokafka."""

    def __init__(self, producer: Any, wait_ms: Ms) -> None:
        self._producer, self._wait_ms = producer, wait_ms

    @classmethod
    async def connect(cls, options: Mapping[str, Any], wait_ms: Ms, later: Later) -> Producer:
        """Raises Unavailable."""
        producer = AIOKafkaProducer(
            **options,
            acks="all",
            enable_idempotence=True,
            compression_type="zstd",
            linger_ms=0,
            max_batch_size=BATCH_BYTES_MAX,
            max_request_size=REQUEST_BYTES_MAX,
            request_timeout_ms=wait_ms,
            retry_backoff_ms=RETRY_BACKOFF_MS,
        )
        connected = cls(producer, wait_ms)
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                await producer.start()
        except (KafkaError, OSError, TimeoutError) as error:
            later(connected.discard())
            raise Unavailable(f"Kafka at {options['bootstrap_servers']}: {error!r}") from error
        except BaseException:
            later(connected.discard())
            raise
        return connected

    async def submit(
        self, topic: str, partition: int, key: bytes, value: bytes
    ) -> Awaitable[Appended]:
        """Raises Unavailable."""
        try:
            future = await self._producer.send(topic, value=value, key=key, partition=partition)
        except (KafkaError, OSError) as error:
            raise Unavailable(repr(error)) from error
        return Pending(future, self._wait_ms)

    async def append_all(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Append batch after batch, each of which the broker takes as a whole or not at all.

        Raises AppendUnknown.
        """
        left = deque(records)
        try:
            while left:
                batch = self._producer.create_batch()
                while left and batch.append(key=left[0][0], value=left[0][1], timestamp=None):
                    left.popleft()
                batch.close()
                async with asyncio.timeout(self._wait_ms / 1_000):
                    await (await self._producer.send_batch(batch, topic, partition=partition))
        except (KafkaError, OSError, TimeoutError) as error:
            raise AppendUnknown(repr(error)) from error

    async def discard(self) -> None:
        """Stop sending and close the sockets. The client's own stop would flush, and so send more.

        An acknowledgement that cannot come any more is waited for within a time limit. No public
        name ends a producer before its flush (aiokafka issues 1013 and 1101): while the broker is
        away its `stop` never returns, and keeps sending.
        """
        self._producer._closed = True
        await self._producer._sender.close()
        await self._producer.client.close()


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Read the outcome of an abandoned append, so that asyncio does not warn of it."""
    if not future.cancelled():
        future.exception()


class Pending(Awaitable[Appended]):
    """An append in flight; awaiting it gives the acknowledgement or raises AppendUnknown."""

    __slots__ = ("_future", "_wait_ms")

    def __init__(self, future: asyncio.Future[Any], wait_ms: Ms) -> None:
        future.add_done_callback(_retrieve)
        self._future, self._wait_ms = future, wait_ms

    def __await__(self) -> Generator[Any, None, Appended]:
        return self._outcome().__await__()

    async def _outcome(self) -> Appended:
        try:
            if not self._future.done():
                async with asyncio.timeout(self._wait_ms / 1_000):
                    await self._future
            metadata = self._future.result()
        except (KafkaError, OSError, TimeoutError) as error:
            raise AppendUnknown(repr(error)) from error
        return Appended(metadata.offset, metadata.timestamp)


class KafkaWriter:
    """Implements `Writer` with its own producer."""

    def __init__(self, producer: Producer, topic: str, partition: int, later: Later) -> None:
        self._producer, self._topic, self._partition = producer, topic, partition
        self._later = later

    async def submit(self, key: bytes, value: bytes) -> Awaitable[Appended]:
        """Queue the record; await the result for its offset. Raises Unavailable, TooLarge."""
        check_size(value)
        return await self._producer.submit(self._topic, self._partition, key, value)

    async def append(self, key: bytes, value: bytes) -> Appended:
        return await (await self.submit(key, value))

    async def close(self) -> None:
        self._later(self._producer.discard())


class SharedProducer:
    """One producer for all commands of a process; replaced when an outcome is unknown."""

    def __init__(self, connect: Connect, bootstrap: str, wait_ms: Ms, later: Later) -> None:
        self._connect_one, self._bootstrap = connect, bootstrap
        self._wait_ms, self._later = wait_ms, later
        self._producer: Producer | None = None
        self._lock = asyncio.Lock()
        self._closed_until = 0.0

    async def send(self, topic: str, partition: int, key: bytes, value: bytes) -> Appended:
        """Raises AppendUnknown, Unavailable, TooLarge."""
        check_size(value)
        producer = await self._connect()
        try:
            async with asyncio.timeout(self._wait_ms / 1_000):
                pending = await producer.submit(topic, partition, key, value)
        except (Unavailable, TimeoutError) as error:
            self._drop(producer)
            raise Unavailable(repr(error)) from error
        try:
            return await pending
        except AppendUnknown:
            self._drop(producer)
            raise

    async def send_all(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Raises AppendUnknown, Unavailable, TooLarge."""
        for _, value in records:
            check_size(value)
        producer = await self._connect()
        try:
            await producer.append_all(topic, partition, records)
        except (AppendUnknown, Unavailable):
            self._drop(producer)
            raise

    def close(self) -> None:
        if self._producer is not None:
            self._drop(self._producer)

    async def _connect(self) -> Producer:
        if self._producer is not None:
            return self._producer
        async with self._lock:  # held for `_wait_ms` at most; those who wait then fail at once
            if self._producer is None:
                loop = asyncio.get_running_loop()
                if loop.time() < self._closed_until:
                    raise Unavailable(f"Kafka at {self._bootstrap} did not answer a moment ago")
                try:
                    self._producer = await self._connect_one(self._wait_ms)
                except Unavailable:
                    self._closed_until = loop.time() + HOLD_OFF_MS / 1_000
                    raise
            return self._producer

    def _drop(self, producer: Producer) -> None:
        if self._producer is producer:
            self._producer = None
            self._later(producer.discard())
