"""The log of a run as its clients and its audit see it: random numbers, requests, decisions."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec

from schemas.envelope import Envelope, Idempotency, Message
from schemas.streams import PARTITIONS, Stream
from schemas.topics import POOL, STREAMS
from schemas.units import Ms
from simulator.engine.broker import Broker
from simulator.engine.cluster import keys_as
from simulator.engine.faulty_port import FaultyPort
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable
from tunery.runtime.bus.sender import Sender
from tunery.runtime.hosts.broker_time import AHEAD_MS_MAX
from tunery.runtime.journal.reader import START, Accepted, JournalReader

PATIENCE_S: Final = 8  # before a client sends its request again
RETRY_MS: Final = 500
READ_WAIT_MS: Final = 3_600_000
RECORDS_MAX: Final = 1_000
Reader = Callable[[Accepted], None]
_opened: Final = msgspec.json.Decoder(Envelope).decode


class SimLog:
    """`decisions`: accepted entries by stream, in order, as a reader without faults sees them.

    pause_ms: how long clients wait before they send a request again.
    """

    def __init__(
        self, seed: int, broker: Broker, streams: Sequence[Stream], pause_ms: Ms = 0
    ) -> None:
        self.pause_ms = pause_ms
        self.seed, self.broker, self.streams = seed, broker, streams
        self.violations: list[str] = []
        self.decisions: dict[str, list[Accepted]] = {stream.name: [] for stream in streams}
        self.readers: list[Reader] = []
        self._decided: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._answers: dict[str, tuple[Any, ...]] = {}

    def port(self, name: str) -> tuple[FaultyPort, Callable[[str], Sender]]:
        """A port to the log of its own, and the sender of a principal that goes through it."""
        rng = self.chance(name)
        port = FaultyPort(self.broker, name, rng)

        def sender_as(principal: str) -> Sender:
            return Sender(port, STREAMS, lambda: fresh_id(rng), keys_as(principal))

        return port, sender_as

    def chance(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    @property
    def healed(self) -> bool:
        return self.broker.healed

    # --- decisions --------------------------------------------------------------------------------

    async def follow(self, stream: Stream) -> None:
        partitions = sorted(self.broker.active[stream.journal.name])
        reader = JournalReader(self.broker.memory, stream, dict.fromkeys(partitions, START))
        await reader.open()
        while True:
            for batch in (await reader.read(READ_WAIT_MS)).values():
                self._publish(stream.name, batch.accepted)

    def _publish(self, stream: str, entries: Iterable[Accepted]) -> None:
        for decision in entries:
            self.decisions[stream].append(decision)
            self._check_time(decision)
            self.broker.trace(f"{stream}@{decision.header.offset} {describe(decision)}")
            if decision.entry.idempotency is not None:
                self._answers.setdefault(decision.entry.idempotency.key, decision.events)
                self._decided[decision.entry.idempotency.key].set()
            for read in self.readers:
                read(decision)

    def _check_time(self, decision: Accepted) -> None:
        """Time never runs back, so one that is far ahead would stand until the truth is there."""
        ahead_ms = decision.header.at - self.broker.clock.true_ms()
        if ahead_ms > AHEAD_MS_MAX + 1_000:
            self.violations.append(f"time: {decision.header.stream} is {ahead_ms} ms ahead")

    async def listen(self, stream: Stream, respond: Callable[[Envelope, Any], object]) -> None:
        """Hear each command of a stream once, in place of the owner that it does not have."""
        topic, answered = stream.commands.name, set[str]()
        reader = await self.broker.memory.reader(topic, dict.fromkeys(range(PARTITIONS), 0))
        while True:
            for record in await reader.poll(READ_WAIT_MS, RECORDS_MAX):
                envelope = _opened(record.value)
                if envelope.id not in answered:
                    answered.add(envelope.id)
                    respond(envelope, _decoder(stream.name).decode(envelope.body))

    # --- commands ---------------------------------------------------------------------------------

    async def ask(
        self,
        port: FaultyPort,
        sender: Sender,
        stream: str,
        tenant: str,
        mark: str,
        body: Message,
        *,
        key: str | None = None,
        copies: bool = False,
    ) -> tuple[Any, ...]:
        """Send a command until it is decided; returns its outcome.

        key: of the stream; None: the tenant. copies: all tries have one id, so none is granted
        after another was refused.
        """
        decided, retry = self._decided[mark], False
        command_id = fresh_id(port.rng) if copies else None
        while not decided.is_set():
            idempotency = Idempotency(key=mark, body=mark, retry=retry)
            try:
                owner = "" if stream == POOL.name else tenant
                await sender.send(
                    stream,
                    key or tenant,
                    owner,
                    body,
                    idempotency=idempotency,
                    command_id=command_id,
                )
                async with asyncio.timeout(PATIENCE_S):
                    await decided.wait()
            except (AppendUnknown, Unavailable, TimeoutError):
                retry = True
                if self.pause_ms:
                    await port.sleep(self.pause_ms)
            await port.pass_through(0)
        return self._answers[mark]

    def all_decided(self) -> bool:
        """True if every command in the log is decided."""
        broker = self.broker
        return all(
            len(self.decisions[stream.name])
            == sum(
                len(broker.history[stream.commands.name, partition])
                for partition in broker.active[stream.commands.name]
            )
            for stream in self.streams
        )

    def commands(self, stream: str) -> Iterator[tuple[Accepted, Envelope, Any]]:
        """Every accepted entry of a stream with the command that it decides."""
        for decision in self.decisions[stream]:
            yield decision, *self.command_of(decision)

    def command_of(self, decision: Accepted) -> tuple[Envelope, Any]:
        """The command that an entry decides."""
        stream = STREAMS[decision.stream]
        records = self.broker.history[stream.commands.name, decision.header.partition]
        envelope = _opened(records[decision.entry.cause].value)
        return envelope, _decoder(decision.stream).decode(envelope.body)


@cache
def _decoder(stream: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(STREAMS[stream].command)


async def insist(
    port: FaultyPort,
    sender: Sender,
    stream: str,
    key: str,
    body: Message,
    partition: int | None = None,
    tenant: str | None = None,
) -> None:
    """Send until the command is in the log, perhaps several times; repeats change nothing."""
    if tenant is None:
        tenant = "" if stream == "pool" else key
    while True:
        try:
            await sender.send(stream, key, tenant, body, partition=partition)
        except (AppendUnknown, Unavailable):
            await port.sleep(RETRY_MS)
        else:
            return


def describe(decision: Accepted) -> str:
    """One line of a timeline: an entry's tenant, its events and their jobs, leases and nodes."""
    names = ("job_id", "attempt", "token", "node_id", "outcome", "cause", "code")
    events = []
    for event in decision.events:
        values = {name: getattr(event, name, None) for name in names}
        known = ", ".join(str(getattr(v, "lease", v)) for v in values.values() if v is not None)
        events.append(f"{type(event).__name__}({known})")
    return f"{decision.header.key}: {' '.join(events) or 'nothing'}"


def fresh_id(rng: Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))
