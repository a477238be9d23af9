"""Appending journal records: one after the other, and with a window in flight.

Ours chains, encodes, appends and reads back: the acknowledged offset is the expected one, so the
acceptance rule holds for the very bytes that are in the log. The bare client sends such bytes to
a topic with the same settings, from a producer with the same settings, and waits likewise.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from statistics import median
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaProducer

from bench.log.jobs import BEGIN_MS, PARTITION
from schemas.envelope import Claim, Entry
from schemas.streams import FOREVER, Topic
from tunery.runtime.bus.abstract import Appended, Log, Writer
from tunery.runtime.journal.acceptance import INITIAL, Acceptance, judge
from tunery.runtime.journal.codec import encode
from tunery.runtime.journal.ports import HostLimits

OURS: Final = Topic("tunery.bench.appends", "tenant", FOREVER, ("bench",), ("bench",))
BARE: Final = Topic("tunery.bench.bare", "tenant", FOREVER, ("bench",), ("bench",))
BARE_SETTINGS: Final[dict[str, Any]] = {
    "acks": "all",
    "enable_idempotence": True,
    "compression_type": "zstd",
    "max_batch_size": 262_144,
}
PAYLOAD_BYTES: Final = 600  # an entry of about 1 kB, as those of `job` are
WARM_UP: Final = 50
ROUNDS: Final = 3


class Chained:
    """The writing half of an owner without its decider: each record continues the chain."""

    def __init__(self, writer: Writer, claimed: Appended, claim: Claim) -> None:
        self._writer = writer
        self.ahead, _ = judge(INITIAL, claimed.offset, claim, b"")
        self._expected = claimed.offset + 1
        self._events = (msgspec.Raw(msgspec.json.encode("event" * (PAYLOAD_BYTES // 5))),)

    def entry(self, state: Acceptance) -> tuple[Entry, bytes]:
        """The next one after `state`, and its bytes."""
        entry = Entry(
            epoch=state.epoch,
            cause=state.cause + 1,
            prev=state.prev,
            at=BEGIN_MS,
            command_id="00000000-0000-4000-8000-000000000000",
            key="tenant-1",
            tenant="tenant-1",
            seq=state.cause + 2,
            events=self._events,
        )
        return entry, encode(entry)

    async def submit(self) -> Awaitable[None]:
        """Append the next entry. Raises RuntimeError when readers would not accept it."""
        entry, value = self.entry(self.ahead)
        expected = self._expected
        self.ahead, reason = judge(self.ahead, expected, entry, value)
        if reason is not None:
            raise RuntimeError(f"the record would be void: {reason}")
        self._expected += 1
        return self._read_back(await self._writer.submit(b"tenant-1", value), expected)

    async def _read_back(self, pending: Awaitable[Appended], expected: int) -> None:
        """Compare the offset: without another writer in between, readers accept the entry."""
        appended = await pending
        if appended.offset != expected:
            raise RuntimeError(f"acknowledged at {appended.offset}, expected {expected}")


async def measure(
    log: Log, options: Mapping[str, Any], one_by_one: int, in_flight: int
) -> dict[str, float]:
    """p50 of single appends in ms, appends/s with the window in flight; ours and bare."""
    await log.create((OURS, BARE), PARTITION + 1)
    writer = await log.writer(OURS.name, PARTITION)
    claim = Claim(owner="bench", nonce="0")
    ours = Chained(writer, await writer.append(b"", encode(claim)), claim)
    producer = AIOKafkaProducer(**options, **BARE_SETTINGS)
    await producer.start()
    value = ours.entry(ours.ahead)[1]

    async def send() -> Awaitable[Any]:
        pending: Awaitable[Any] = await producer.send(BARE.name, value, partition=PARTITION)
        return pending

    try:
        singles = await alternate(ours.submit, send, one_by_one)
        rates = [
            (await append_rate(ours.submit, in_flight), await append_rate(send, in_flight))
            for _ in range(ROUNDS)
        ]
    finally:
        await producer.stop()
        await writer.close()
    return {
        "append_p50_ms": singles[0],
        "bare_append_p50_ms": singles[1],
        "pipelined_per_s": max(rate for rate, _ in rates),
        "bare_pipelined_per_s": max(rate for _, rate in rates),
    }


Submit = Callable[[], Awaitable[Awaitable[Any]]]


async def alternate(ours: Submit, bare: Submit, times: int) -> tuple[float, float]:
    """Medians in ms, taken in turn so that both see the same machine."""
    both: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_UP + times):
        for submit, times_ms in zip((ours, bare), both, strict=True):
            began = time.perf_counter()
            await (await submit())
            if number >= WARM_UP:
                times_ms.append(1_000 * (time.perf_counter() - began))
    return median(both[0]), median(both[1])


async def append_rate(submit: Submit, times: int) -> float:
    """Acknowledged per second, with the owner's window in flight, awaited in order."""
    flights: deque[Awaitable[Any]] = deque()
    began = time.perf_counter()
    for _ in range(times):
        if len(flights) >= HostLimits.window:
            await flights.popleft()
        flights.append(await submit())
    while flights:
        await flights.popleft()
    return times / (time.perf_counter() - began)
