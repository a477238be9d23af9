"""The two clients of Kafka, in turns: the same appends and decisions over each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from statistics import median
from typing import Final

from bench.log.appends import Chained, alternate, append_rate
from bench.log.jobs import PARTITION
from bench.log.owners import OwnerPorts, decision_rate, stream_of
from schemas.envelope import Claim
from schemas.streams import FOREVER, Topic
from tunery.platform.blobs.s3 import S3Blobs
from tunery.platform.bus.broker_settings import Driver
from tunery.platform.bus.drivers import open_log
from tunery.platform.connections import patient_kafka_settings, s3_settings
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.bus.abstract import Log, Writer
from tunery.runtime.clock import SystemClock
from tunery.runtime.journal.codec import encode

DRIVERS: Final[tuple[Driver, Driver]] = ("aiokafka", "confluent")
ROUNDS: Final = 3


async def measure(
    settings: RuntimeSettings, one_by_one: int, in_flight: int, commands: int
) -> dict[str, float]:
    """Medians of both, by driver and figure, and those of the second over those of the first."""
    async with both(settings) as bundles:
        writers = {driver: await _writer(bundles[driver].log, driver) for driver in DRIVERS}
        chains = {driver: await _chained(writers[driver]) for driver in DRIVERS}
        first, second = (chains[driver].submit for driver in DRIVERS)
        singles = await alternate(first, second, one_by_one)
        rates: dict[Driver, list[float]] = {driver: [] for driver in DRIVERS}
        decided: dict[Driver, list[float]] = {driver: [] for driver in DRIVERS}
        for _ in range(ROUNDS):
            for driver in DRIVERS:
                rates[driver].append(await append_rate(chains[driver].submit, in_flight))
        for turn in range(ROUNDS):
            for driver in DRIVERS:
                stream = stream_of(f"{driver}.{turn}")
                decided[driver].append(await decision_rate(bundles[driver], stream, commands))
        for writer in writers.values():
            await writer.close()
    figures: dict[str, float] = {}
    for driver, single_ms in zip(DRIVERS, singles, strict=True):
        figures[f"{driver}_append_p50_ms"] = single_ms
        figures[f"{driver}_pipelined_per_s"] = median(rates[driver])
        figures[f"{driver}_decisions_per_s"] = median(decided[driver])
    return figures | {
        f"confluent_{name}_ratio": figures[f"confluent_{name}_{unit}"]
        / figures[f"aiokafka_{name}_{unit}"]
        for name, unit in (("append", "p50_ms"), ("pipelined", "per_s"), ("decisions", "per_s"))
    }


@asynccontextmanager
async def both(settings: RuntimeSettings) -> AsyncIterator[dict[Driver, OwnerPorts]]:
    """The ports of an owner, with a log over each client."""
    reached, blobs = patient_kafka_settings(settings), S3Blobs(s3_settings(settings))
    bundles: dict[Driver, OwnerPorts] = {
        driver: OwnerPorts("bench", open_log(replace(reached, driver=driver)), SystemClock(), blobs)
        for driver in DRIVERS
    }
    try:
        yield bundles
    finally:
        for bundle in bundles.values():
            await bundle.log.close()
        await blobs.close()


async def _writer(log: Log, driver: Driver) -> Writer:
    topic = Topic(f"tunery.bench.{driver}", "tenant", FOREVER, ("bench",), ("bench",))
    await log.create((topic,), PARTITION + 1)
    return await log.writer(topic.name, PARTITION)


async def _chained(writer: Writer) -> Chained:
    claim = Claim(owner="bench", nonce="0")
    return Chained(writer, await writer.append(b"", encode(claim)), claim)
