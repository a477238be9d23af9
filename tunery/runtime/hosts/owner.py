"""The single writer of one partition: claim, fold, decide, append, read back.

Correctness never depends on being the only one: two owners may run at once, and the acceptance
rule lets at most one of them count. Whenever anything is in doubt the fold is thrown away.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from schemas.envelope import Claim, Envelope, RefusalOrder, Tick
from schemas.units import Ms
from tunery.runtime.bus.abstract import (
    Appended,
    AppendUnknown,
    BusError,
    OutOfRange,
    Reader,
    Record,
    Unavailable,
    Writer,
)
from tunery.runtime.hosts.broker_time import BrokerTime
from tunery.runtime.hosts.decisions import DecisionMeter, log_decision
from tunery.runtime.hosts.standby import Standbys, fold_more
from tunery.runtime.hosts.tick_schedule import TickSchedule
from tunery.runtime.ids import NewId
from tunery.runtime.journal.acceptance import Divergence, Poison
from tunery.runtime.journal.codec import encode
from tunery.runtime.journal.decision import Decided, decide_record, read_command
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.ports import HostLimits, JournalPorts
from tunery.runtime.journal.reader import JournalReader
from tunery.runtime.journal.refusals import read_refusal
from tunery.runtime.journal.snapshots import Snapshots
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.metrics import CLAIMS, STAND_DOWNS
from tunery.runtime.telemetry.trail import NO_TRAIL, Trail
from tunery.runtime.verbs import Aggregate
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.journal")
PAUSES_PER_SESSION: Final = 5  # a pause is two heartbeats
DOUBLINGS_MAX: Final = 6
TICK: Final = msgspec.Raw(msgspec.json.encode(Tick()))

S = TypeVar("S")


class Settled(NamedTuple):
    """A command whose entry was read back as accepted."""

    stream: str
    partition: int
    offset: int
    command_id: str
    events: tuple[Any, ...] = ()
    at: Ms = 0  # time of the entry, as its events see it
    key: str = ""  # key of the entry
    trail: Trail = NO_TRAIL  # correlation of the entry


class StandDown(Exception):
    """Another process may own the partition: the owner drops its state and claims again later."""


@dataclass
class _Flight(Generic[S]):
    """A record that was submitted and is not yet acknowledged."""

    acknowledged: Awaitable[Appended]
    expected: int
    decided: Decided[S]


@dataclass
class _Term(Generic[S]):
    """State of an owner from one claim of its partition to the next."""

    writer: Writer
    commands: Reader
    # fold, settled: the state with and without the records in flight
    fold: Fold[S]
    settled: Fold[S]
    time: BrokerTime  # bounds for timestamps of the broker
    # an operator's order to refuse the first command of this term
    refusal: RefusalOrder | None = None
    # the times at which keys want a tick, by `fold`; None: no key ever does
    schedule: TickSchedule[S] | None = None
    is_ahead: bool = False  # the timestamp of the last command was later than `time` allows
    queue: deque[Record] = field(default_factory=deque)  # commands that were read and not decided
    flights: deque[_Flight[S]] = field(default_factory=deque)  # records not yet acknowledged
    # unsaved, saved_ms: number of entries since the last snapshot, and its monotonic time
    unsaved: int = 0
    saved_ms: Ms = 0
    chores: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # background tasks, by name

    def is_busy(self, chore: str) -> bool:
        return chore in self.chores and not self.chores[chore].done()

    def start(self, chore: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a chore in the background, so that decisions do not wait for it."""
        self.chores[chore] = asyncio.create_task(work)

    def end(self) -> None:
        for task in self.chores.values():
            task.cancel()


class PartitionOwner(Generic[S]):
    """Runs one partition until cancelled.

    serving: the last claim succeeded, and commands are being decided under it.
    settled: the fold up to the last entry that was read back; None before the first claim.
    """

    def __init__(
        self,
        parts: JournalPorts,
        aggregate: Aggregate[S],
        partition: int,
        owner: str,
        fresh_id: NewId,
        limits: HostLimits,
        on_settled: Callable[[Settled], None],
        on_poison: Callable[[Poison | None], None] = lambda _: None,
        standbys: Standbys[S] | None = None,
    ) -> None:
        """`on_poison` gets the command that cannot be decided, and None once it is refused."""
        self._on_settled, self._on_poison = on_settled, on_poison
        self._standbys = standbys
        self._log, self._clock, self._limits = parts.log, parts.clock, limits
        self._keys, self._levels = parts.keys, parts.levels
        self._aggregate, self._stream, self._partition = aggregate, aggregate.stream, partition
        self._owner, self._fresh_id = owner, fresh_id
        self._meter = DecisionMeter(aggregate.stream.name)
        self._futile_claims = 0
        self._looked_ms = self._clock.monotonic_ms()
        self._trimmed_ms = self._clock.monotonic_ms()
        self._untrimmed = 0
        self._snapshots = Snapshots(parts, aggregate, partition)
        self.serving = False
        self.settled: Fold[S] | None = None

    async def run(self) -> None:
        """Claim and serve, again after each doubt. Raises PartitionStopped for an operator.

        A command that cannot be decided is waited for: an operator may have it refused.
        """
        while True:
            beat("waiting")
            self.serving = False
            try:
                async with AsyncExitStack() as cleanup:
                    await self._serve(await self._begin(cleanup))
            except (StandDown, AppendUnknown) as doubt:
                self._log_event(logging.WARNING, "owner.stood_down", why=doubt)
                STAND_DOWNS.labels(self._stream.name).inc()
                wait_ms = self._back_off_ms()
            except (Unavailable, OutOfRange) as outage:
                self._log_event(logging.WARNING, "owner.log_unavailable", why=outage)
                wait_ms = self._limits.retry_ms
            except Poison as poison:
                self.serving = False
                self._on_poison(poison)
                await self._until_refused()
                self._on_poison(None)
                wait_ms = 0
            self.serving = False
            await self._clock.sleep(wait_ms)

    def _log_event(self, level: int, event: str, **fields: Any) -> None:
        log_event(LOG, level, event, stream=self._stream.name, partition=self._partition, **fields)

    def _back_off_ms(self) -> Ms:
        """The pause before the next claim: 1.2 to 2 times two heartbeats of the group, at random.

        It doubles with each claim in a row under which no entry settled, so that a process that
        wakes up from a long pause does not fight its successor for the epoch.
        """
        pause_ms = self._log.session_timeout_ms // PAUSES_PER_SESSION
        spread = int(self._fresh_id()[:4], 16) * 800 // 0xFFFF
        doubled = 1 << min(self._futile_claims, DOUBLINGS_MAX)
        return min(pause_ms * (1_200 + spread) // 1_000 * doubled, self._limits.back_off_ms_max)

    async def _until_refused(self) -> None:
        """Wait until an operator refuses the next command or raises the level of the log, or
        another process has decided the command.
        """
        if self.settled is None:
            raise RuntimeError("a command is decided under a claim")
        partition, position = self._partition, self.settled.position
        level = self._levels.of(self._stream.name)
        while True:
            reader = JournalReader(self._log, self._stream, {partition: position})
            try:
                await reader.open()
                while reader.positions[partition].acceptance.cause == position.acceptance.cause:
                    beat("waiting")
                    raised = self._levels.of(self._stream.name) > level
                    if raised or self._refusal(reader) is not None:
                        return
                    await reader.read(self._limits.idle_wait_ms)
                return
            except Unavailable as outage:
                self._log_event(logging.WARNING, "owner.log_unavailable", why=outage)
            finally:
                await reader.close()
            await self._clock.sleep(self._limits.retry_ms)

    def _refusal(self, reader: JournalReader) -> RefusalOrder | None:
        """An operator's last order about the command that follows what was read."""
        following = reader.positions[self._partition].acceptance.cause + 1
        for record in reversed(reader.refusing.get(self._partition, [])):
            refusal = read_refusal(self._stream, record, self._keys)
            if refusal is None:
                self._log_event(logging.ERROR, "owner.refusal_unproven", offset=record.offset)
            elif refusal.cause == following:
                return refusal
        return None

    # --- the beginning of a term ------------------------------------------------------------------

    async def _begin(self, cleanup: AsyncExitStack) -> _Term[S]:
        """Claim the partition, fold the journal up to the claim, find the next command."""
        topic = self._stream.journal.name
        warm = None if self._standbys is None else self._standbys.take(self._partition)
        start = await self._snapshots.load(None if warm is None else warm.fold)
        saved = start.position.acceptance.cause
        if warm is not None and start is warm.fold:
            saved = warm.saved
        # Closed once the claim is read: a reader left open would fetch all that we write.
        async with AsyncExitStack() as reading:
            reader = JournalReader(self._log, self._stream, {self._partition: start.position})
            reading.push_async_callback(reader.close)
            await reader.open()
            fold = start
            while not reader.caught_up(self._partition):
                fold = await self._fold_more(reader, fold)
            writer = await self._log.writer(topic, self._partition)
            cleanup.push_async_callback(writer.close)
            claim = Claim(owner=self._owner, nonce=self._fresh_id())
            claimed = await writer.append(b"", encode(claim))
            self._futile_claims += 1
            while fold.position.offset <= claimed.offset:
                fold = await self._fold_more(reader, fold)
            if reader.claims.get(self._partition) != (claimed.offset, claim):
                raise StandDown("a later claim")
            refusal = self._refusal(reader)
        commands = await self._commands(fold)
        cleanup.push_async_callback(commands.close)
        self.settled, self.serving = fold, True
        self._log_event(
            logging.INFO,
            "owner.serving",
            epoch=claimed.offset,
            folded=fold.position.offset - start.position.offset,
        )
        CLAIMS.labels(self._stream.name).inc()
        time = BrokerTime(self._clock, fold.at, claimed.timestamp)
        term = _Term(writer, commands, fold, fold, time, refusal)
        if self._aggregate.deadlines is not None:
            term.schedule = TickSchedule(
                self._aggregate.deadlines, fold.state, self._limits, self._fresh_id
            )
        term.unsaved = fold.position.acceptance.cause - saved
        term.saved_ms = self._clock.monotonic_ms()
        cleanup.callback(term.end)
        return term

    async def _fold_more(self, reader: JournalReader, fold: Fold[S]) -> Fold[S]:
        return await fold_more(self._aggregate, reader, self._partition, fold, self._limits)

    async def _commands(self, fold: Fold[S]) -> Reader:
        """A reader at the next command to decide. Raises Divergence when it cannot be trusted."""
        topic, acceptance = self._stream.commands.name, fold.position.acceptance
        following = acceptance.cause + 1 - acceptance.base
        start, end = await self._log.bounds(topic, self._partition)
        first = following if acceptance.fresh else following - 1
        if not start <= first <= following <= end:
            await self._stand_down_if_written(fold)
            why = f"commands {first} to {following} are expected in a log of [{start}, {end})"
            raise self._lost(following, why)
        reader = await self._log.reader(topic, {self._partition: first})
        try:
            if not acceptance.fresh:
                await self._check_last(reader, fold)
        except BaseException:
            await reader.close()
            raise
        return reader

    async def _stand_down_if_written(self, fold: Fold[S]) -> None:
        """Commands that are missing were trimmed by a successor, if there is one.

        A process that trims has written decisions before, so its claim comes after ours in the log.
        """
        _, end = await self._log.bounds(self._stream.journal.name, self._partition)
        if end > fold.position.offset:
            raise StandDown("a successor has decided and trimmed commands")

    async def _check_last(self, reader: Reader, fold: Fold[S]) -> None:
        """Check that the last decided command is still the one that the journal names."""
        records: list[Record] = []
        try:
            while not records:
                beat("waiting")
                records.extend(await reader.poll(self._limits.idle_wait_ms, 1))
        except OutOfRange as error:
            raise StandDown(f"the command was trimmed meanwhile: {error}") from error
        cause = fold.position.acceptance.cause
        command_id = read_command(self._stream, records[0], cause).id
        if command_id != fold.command_id:
            why = f"the last decided command was {fold.command_id}, the log has {command_id}"
            raise self._lost(records[0].offset, why)

    def _lost(self, offset: int, why: str) -> Divergence:
        hint = "; after a known loss, or a new topic, an operator claims with a new base"
        return Divergence(f"{self._stream.name} (commands)", self._partition, offset, why + hint)

    # --- the term ---------------------------------------------------------------------------------

    async def _serve(self, term: _Term[S]) -> None:
        """Decide ahead while up to a window of records is in flight, settle them in order."""
        limits = self._limits
        while True:
            is_busy = bool(term.queue or term.flights)
            beat("working" if is_busy else "waiting")
            # Deadlines are a matter of time: commands that never stop must not keep them waiting.
            looked_ms_ago = self._clock.monotonic_ms() - self._looked_ms
            if is_busy and looked_ms_ago >= limits.tick_again_ms:
                await self._tick(term)
            if not term.queue:
                await self._refill(term)
            try:
                while term.queue and len(term.flights) < limits.window:
                    await self._decide(term, term.queue.popleft())
            except Poison:
                while term.flights:  # what was decided before it counts
                    await self._settle(term)
                raise
            if term.flights:
                await self._settle(term)

    async def _refill(self, term: _Term[S]) -> None:
        wait_ms = 0
        if not term.flights:
            self._trim(term)
            wait_ms = await self._tick(term)
        try:
            term.queue.extend(await term.commands.poll(wait_ms, self._limits.commands_per_read))
        except OutOfRange as error:
            # A successor may have trimmed them; otherwise the next term names the loss.
            raise StandDown(f"commands are gone: {error}") from error

    async def _decide(self, term: _Term[S], record: Record) -> None:
        acceptance, expected = term.fold.position.acceptance, term.fold.position.offset
        following = acceptance.cause + 1 - acceptance.base
        if record.offset != following:
            raise self._lost(record.offset, f"command {following} is missing")
        bounded = self._bounded(term, record)
        with self._meter.measure(self._clock.now_ms() - bounded.timestamp):
            decided = decide_record(
                self._aggregate,
                term.fold,
                bounded,
                expected,
                self._keys,
                term.refusal,
                self._levels.of(self._stream.name),
            )
        pending = await term.writer.submit(decided.key, decided.value)
        term.flights.append(_Flight(pending, expected, decided))
        term.fold = decided.fold
        if term.schedule is not None:
            term.schedule.note(decided.fold.state, decided.entry, decided.events)

    def _bounded(self, term: _Term[S], record: Record) -> Record:
        """Return the command with a plausible timestamp. The first implausible one is logged."""
        believed = term.time.believe(record.timestamp)
        ahead_ms = record.timestamp - believed
        if ahead_ms > 0 and not term.is_ahead:
            self._log_event(logging.ERROR, "owner.broker_time_ahead", ahead_ms=ahead_ms)
        term.is_ahead = ahead_ms > 0
        return record._replace(timestamp=believed)

    async def _settle(self, term: _Term[S]) -> None:
        """Await the oldest append. At exactly the expected offset no other writer came between."""
        flight = term.flights.popleft()
        appended = await flight.acknowledged
        if appended.offset < flight.expected:
            why = f"an append was acknowledged here, and {flight.expected} was next"
            raise Divergence(self._stream.name, self._partition, appended.offset, why)
        if appended.offset > flight.expected:
            raise StandDown(
                f"another process wrote between {flight.expected} and {appended.offset}"
            )
        term.settled = self.settled = flight.decided.fold
        term.time.believe(appended.timestamp)
        self._futile_claims = 0
        self._untrimmed += 1
        term.unsaved += 1
        self._snapshot(term)
        decided = flight.decided
        log_decision(self._stream.name, self._partition, flight.expected, decided)
        self._meter.count(decided.events)
        self._on_settled(
            Settled(
                self._stream.name,
                self._partition,
                flight.expected,
                decided.fold.command_id,
                decided.events,
                decided.entry.at,
                decided.entry.key,
                Trail(decided.entry.correlation, decided.entry.traceparent),
            )
        )
        if self._untrimmed >= self._limits.trim_every:
            self._trim(term, now=True)

    def _snapshot(self, term: _Term[S]) -> None:
        """Keep the settled fold by number of entries, or by age; in the background, one at once."""
        limits, now_ms = self._limits, self._clock.monotonic_ms()
        aged = now_ms - term.saved_ms >= limits.snapshot_every_ms
        weight = self._snapshots.bytes_last // limits.snapshot_bytes_of_entry
        many = max(limits.snapshot_every, weight)
        if term.unsaved < (limits.snapshot_least if aged else many):
            return
        if not term.is_busy("snapshot"):
            term.unsaved, term.saved_ms = 0, now_ms
            term.start("snapshot", self._snapshots.save(term.settled))

    async def _tick(self, term: _Term[S]) -> Ms:
        """Send a tick for each key that is due; how long to wait for commands then."""
        self._looked_ms = self._clock.monotonic_ms()
        if term.schedule is None:
            return self._limits.idle_wait_ms
        at = max(term.fold.at, term.time.now())
        due = term.schedule.take_due(term.fold.state, at)
        state = term.fold.state
        sent = await asyncio.gather(*(self._send_tick(state, *tick) for tick in due.items()))
        for key in (key for key, is_sent in zip(due, sent, strict=True) if not is_sent):
            term.schedule.note_tick(term.fold.state, key, at, had_effect=False)
        earliest = term.schedule.earliest()
        if earliest is None or earliest <= at:  # ticks on their way end the wait for commands
            return self._limits.idle_wait_ms
        return min(earliest - at, self._limits.idle_wait_ms)

    async def _send_tick(self, state: S, key: str, command_id: str) -> bool:
        """Send a tick for a key; return whether it is known to be in the log."""
        tenant = key if self._stream.key == "tenant" else ""
        if self._aggregate.tenant_of is not None:
            tenant = self._aggregate.tenant_of(state, key)
        envelope = Envelope(
            id=command_id,
            key=key,
            tenant=tenant,
            body=TICK,
        )
        signed = self._keys.sign(self._stream.name, encode(envelope))
        topic = self._stream.commands.name
        try:
            await self._log.send(topic, key.encode(), signed, self._partition)
        except BusError as error:
            self._log_event(logging.INFO, "owner.tick_not_sent", why=error)
            return False
        return True

    def _trim(self, term: _Term[S], now: bool = False) -> None:
        """Delete decided commands, but for the last one: the next owner compares with it."""
        now_ms = self._clock.monotonic_ms()
        due = now_ms - self._trimmed_ms >= self._limits.trim_every_ms
        if self._untrimmed == 0 or not (due or now) or term.is_busy("trim"):
            return
        self._trimmed_ms, self._untrimmed = now_ms, 0
        acceptance = term.settled.position.acceptance
        term.start("trim", self._trim_before(acceptance.cause - acceptance.base))

    async def _trim_before(self, offset: int) -> None:
        try:
            await self._log.trim(self._stream.commands.name, self._partition, offset)
        except BusError as error:
            self._log_event(logging.WARNING, "owner.commands_not_trimmed", why=error)
