"""Cost of accounts and access control: the broker of a stack and an open one, in turn.

The bare client sends the same bytes to both, fsynced one by one as on a single machine. Connecting
is measured to an open connection that may send: a password is checked each time.
"""

import time
from collections.abc import Awaitable, Mapping
from statistics import median
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from bench.log.appends import BARE, BARE_SETTINGS, PAYLOAD_BYTES, Submit, alternate, append_rate
from bench.log.jobs import PARTITION
from tunery.platform.bus.kafka import KafkaLog, KafkaSettings
from tunery.platform.connections import patient

CONNECTIONS: Final = 20
VALUE: Final = b"x" * PAYLOAD_BYTES


async def measure(
    secured: KafkaSettings, opened: KafkaSettings, one_by_one: int, in_flight: int
) -> dict[str, float]:
    """p50 of an append and of a new connection in ms, appends/s with a window in flight."""
    producers = []
    for settings in (secured, opened):
        log = KafkaLog(patient(settings))
        await log.create((BARE,), PARTITION + 1)
        await log.close()
        producers.append(await connect(settings.client_options))
    ours, bare = map(sender, producers)
    try:
        singles = await alternate(ours, bare, one_by_one)
        rates = await append_rate(ours, in_flight), await append_rate(bare, in_flight)
    finally:
        for producer in producers:
            await producer.stop()
    connected = [await connect_ms(settings) for settings in (secured, opened)]
    return {
        "secured_append_p50_ratio": singles[0] / singles[1],
        "open_append_p50_ms": singles[1],
        "secured_pipelined_ratio": rates[0] / rates[1],
        "open_pipelined_per_s": rates[1],
        "secured_connect_p50_ms": connected[0],
        "open_connect_p50_ms": connected[1],
    }


def sender(producer: Any) -> Submit:
    async def send() -> Awaitable[Any]:
        pending: Awaitable[Any] = await producer.send(BARE.name, VALUE, partition=PARTITION)
        return pending

    return send


async def connect(options: Mapping[str, Any]) -> Any:
    producer = AIOKafkaProducer(**options, **BARE_SETTINGS)
    await producer.start()
    return producer


async def connect_ms(settings: KafkaSettings) -> float:
    """The median of some connections, one after the other."""
    times_ms = []
    for _ in range(CONNECTIONS):
        began = time.perf_counter()
        producer = await connect(settings.client_options)
        times_ms.append(1_000 * (time.perf_counter() - began))
        await producer.stop()
    return median(times_ms)
