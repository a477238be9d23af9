"""The soak's client process: sends commands at a steady rate, some twice, and reads the replies.

It speaks Kafka and SQL by itself and writes its own JSON: nothing here but the login is the core's.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import random
import signal
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import asyncpg
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tunery.platform.kafka_login import KafkaLogin
from tunery.platform.settings import load

TOPIC: Final = "tunery.requests.commands.v1"
TENANTS: Final = tuple(f"tenant-{number}" for number in range(64))
SEND_S_MAX: Final = 3.0
RETRY_S: Final = 0.2
TWICE_PERCENT: Final = 5
DROP_PERCENT: Final = 3
KEEP_PERCENT: Final = 2
AT_ONCE_MAX: Final = 256
REPLIES_EVERY_S: Final = 1.0
REPLIES: Final = """
SELECT command_id, stream, partition, "offset", code, repeated_of FROM soak.command_results
WHERE stream = 'requests' AND written_at > now() - interval '10 s'
"""


class Client:
    """Sends `rate` requests a second. A request is asked again until one copy is acknowledged."""

    def __init__(
        self, options: Mapping[str, Any], dsn: str, diary: Path, rate: float, seed: int
    ) -> None:
        self._producer: Any = AIOKafkaProducer(
            **options,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=5_000,
        )
        self._dsn, self._rate = dsn, rate
        self._random = random.Random(seed)
        self._diary = diary.open("a", buffering=1, encoding="utf-8")
        self._in_flight = asyncio.Semaphore(AT_ONCE_MAX)
        self._kept: set[str] = set()
        self._replied: set[tuple[Any, ...]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        await self._producer.start()
        loop = asyncio.get_running_loop()
        replies = loop.create_task(self._replies())
        begun = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                await self._in_flight.acquire()
                group.create_task(self._request())
                wait_s = begun + (number + 1) / self._rate - loop.time()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), max(0.0, wait_s))
                if stop.is_set():
                    break
        await asyncio.sleep(2 * REPLIES_EVERY_S)
        replies.cancel()
        await self._producer.stop()

    def _write(self, **fields: Any) -> None:
        self._diary.write(json.dumps(fields) + "\n")

    def _way(self, tenant: str) -> str:
        drawn = self._random.randrange(100)
        if drawn < KEEP_PERCENT and tenant not in self._kept:
            self._kept.add(
                tenant
            )  # at most one for each tenant, which could hold no other need otherwise
            return "keep"
        return "drop" if drawn < KEEP_PERCENT + DROP_PERCENT else "answer"

    async def _request(self) -> None:
        """One request; it may be sent twice, or again because no acknowledgement came."""
        try:
            tenant, need = self._random.choice(TENANTS), uuid.uuid4().hex
            body = {"type": "Ask.v1", "need": need, "way": self._way(tenant)}
            twice = self._random.randrange(100) < TWICE_PERCENT
            same = self._random.random() < 0.5
            command_id = str(uuid.uuid4())
            while not await self._send(need, tenant, command_id, body):
                await asyncio.sleep(RETRY_S)
                command_id = str(uuid.uuid4())
            if twice:
                again = command_id if same else str(uuid.uuid4())
                await asyncio.sleep(self._random.choice((0.0, 0.5, 5.0)))
                await self._send(need, tenant, again, body)
        finally:
            self._in_flight.release()

    async def _send(self, need: str, tenant: str, command_id: str, body: dict[str, str]) -> bool:
        """Send a command; whether it was acknowledged. If not, it may still arrive later."""
        text = json.dumps(body, sort_keys=True)
        envelope = {
            "id": command_id,
            "key": tenant,
            "tenant": tenant,
            "body": body,
            "idempotency": {"key": need, "body": hashlib.sha256(text.encode()).hexdigest()},
        }
        self._write(what="send", need=need, id=command_id)
        try:
            async with asyncio.timeout(SEND_S_MAX):
                acknowledged = await self._producer.send_and_wait(
                    TOPIC, json.dumps(envelope).encode(), key=tenant.encode()
                )
        except (KafkaError, OSError, TimeoutError):
            return False
        self._write(
            what="ack", id=command_id, partition=acknowledged.partition, offset=acknowledged.offset
        )
        return True

    async def _replies(self) -> None:
        """Read replies as the gateway does: from the results of commands in the database."""
        connection: Any = None
        while True:
            await asyncio.sleep(REPLIES_EVERY_S)
            try:
                if connection is None or connection.is_closed():
                    connection = await asyncpg.connect(self._dsn, timeout=SEND_S_MAX)
                for row in await connection.fetch(REPLIES, timeout=SEND_S_MAX):
                    if tuple(row) not in self._replied:
                        self._replied.add(tuple(row))
                        self._write(what="reply", **dict(row))
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                if connection is not None:
                    connection.terminate()


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = Client(
        {
            "bootstrap_servers": os.environ["TUNERY_KAFKA_BOOTSTRAP"],
            **load(KafkaLogin).client_options(),
        },
        os.environ["TUNERY_POSTGRES_DSN"],
        Path(os.environ["SOAK_FOLDER"]) / "client.diary",
        float(os.environ["SOAK_RATE"]),
        int(os.environ["SOAK_SEED"]),
    )
    print(json.dumps({"event": "process.ready"}), flush=True)
    await client.run(stop)


if __name__ == "__main__":
    asyncio.run(main())
