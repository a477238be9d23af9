"""Rules of the event core, each broken in one way. `mutants.py` says where each belongs."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeAlias

from msgspec import Raw, structs

from examples.first_stream import (
    SEATS_AGGREGATE,
    HoldSeats,
    RecordTicket,
    Seats,
    SeatsCommand,
    TicketRecorded,
    decide_seats,
    refuse,
)
from schemas.envelope import FIRST_LEVEL, Claim, Context, Entry, Envelope, Message
from schemas.units import Ms
from tunery.runtime.bus.abstract import AppendUnknown
from tunery.runtime.hosts import effects, reactor
from tunery.runtime.hosts import owner as partition
from tunery.runtime.journal import dedupe, snapshots
from tunery.runtime.journal.acceptance import Acceptance, Diverged, Reason, record_hash
from tunery.runtime.journal.codec import Codec
from tunery.runtime.journal.dedupe import Conflict, Repeat, Seen
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import CommitResult, LeasedRow, RowBatch, SavedPosition
from tunery.runtime.store.changes import fold
from tunery.runtime.store.memory import MemoryStore
from tunery.runtime.tools.archiving import ArchiveReport
from tunery.runtime.watchdog import wait_forever

# --- levels ---------------------------------------------------------------------------------------


def any_level(_: Message) -> int:
    """Ignore levels: treat all messages as of the first level."""
    return FIRST_LEVEL


def all_events(_: Codec, entry: Entry) -> Sequence[Raw]:
    """No event may be skipped."""
    return entry.events


def level_falls(fold: Fold[Any], level: int) -> Fold[Any]:
    """The level is the one that this process knows."""
    acceptance = structs.replace(fold.position.acceptance, level=level)
    return structs.replace(fold, position=Position(fold.position.offset, acceptance))


# --- the acceptance rule --------------------------------------------------------------------------

Judgement: TypeAlias = tuple[Acceptance, Reason | None]


def _accept(state: Acceptance, entry: Entry, value: bytes) -> tuple[Acceptance, None]:
    return structs.replace(state, cause=entry.cause, prev=record_hash(value), fresh=False), None


def _compare_opened(state: Acceptance, entry: Entry) -> None:
    if entry.opened != state.opened:
        raise Diverged("opened")


def epoch_off(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    """Entries of an older epoch count. Raises Diverged."""
    if entry.cause != state.cause + 1:
        return state, "cause"
    if entry.prev != state.prev:
        raise Diverged("chain")
    return _accept(state, entry, value)


def opened_off(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    """The number at the claim is not compared. Raises Diverged."""
    if entry.epoch < state.epoch:
        return state, "epoch"
    if entry.epoch > state.epoch:
        raise Diverged("epoch")
    if entry.cause != state.cause + 1:
        return state, "cause"
    if entry.prev != state.prev:
        raise Diverged("chain")
    return _accept(state, entry, value)


def cause_off(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    """An entry may repeat or leave out commands. Raises Diverged."""
    if entry.epoch < state.epoch:
        return state, "epoch"
    _compare_opened(state, entry)
    if entry.prev != state.prev:
        raise Diverged("chain")
    return _accept(state, entry, value)


def cause_and_chain_off(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    if entry.epoch < state.epoch:
        return state, "epoch"
    _compare_opened(state, entry)
    return _accept(state, entry, value)


def chain_off(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    if entry.epoch < state.epoch:
        return state, "epoch"
    _compare_opened(state, entry)
    if entry.cause != state.cause + 1:
        return state, "cause"
    return _accept(state, entry, value)


def chain_first(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    """The hash is compared before the epoch. Raises Diverged."""
    if entry.prev != state.prev:
        raise Diverged("chain")
    return chain_off(state, entry, value)


def chain_before_cause(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    """The hash is compared before the number. Raises Diverged."""
    if entry.epoch >= state.epoch and entry.prev != state.prev:
        raise Diverged("chain")
    return chain_off(state, entry, value)


def chain_voided(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    return chain_off(state, entry, value) if entry.prev == state.prev else (state, "cause")


def base_ignored(state: Acceptance, offset: int, _: Claim) -> Acceptance:
    return structs.replace(state, epoch=offset, opened=state.cause)


# --- the owner ------------------------------------------------------------------------------------


async def no_read_back(self: Any, term: Any) -> None:
    flight = term.flights.popleft()
    await flight.acknowledged
    _settled(self, term, flight)


async def blind_retry(self: Any, term: Any) -> None:
    flight = term.flights.popleft()
    try:
        await flight.acknowledged
    except AppendUnknown:
        await term.writer.append(flight.decided.key, flight.decided.value)
    _settled(self, term, flight)


def _settled(owner: Any, term: Any, flight: Any) -> None:
    term.settled = owner.settled = flight.decided.fold
    owner._on_settled(
        partition.Settled(
            owner._stream.name,
            owner._partition,
            flight.expected,
            flight.decided.fold.command_id,
        )
    )


class _Agreeing(dict[int, Any]):
    """Returns for every partition a value that is equal to any claim."""

    def get(self, *_: Any) -> Any:
        return _Same()


class _Same:
    def __ne__(self, _: object) -> bool:
        return False


#: stands in for the reader's last claims, whatever is written there
later_claims_overlooked = property(lambda _: _Agreeing(), lambda *_: None)


async def last_not_compared(self: Any, reader: Any, _: Any) -> None:
    await reader.poll(1_000, 1)


def not_clamped(*values: Any, **options: Any) -> Any:
    """`max`, but of a state's time and the broker's it is the broker's."""
    return values[1] if len(values) == 2 else max(*values, **options)


async def trim_by_age(self: Any, _: int) -> None:
    topic = self._stream.commands.name
    _, end = await self._log.bounds(topic, self._partition)
    await self._log.trim(topic, self._partition, end)


def reads_the_clock(state: Seats, command: SeatsCommand, context: Context) -> tuple[Message, ...]:
    if isinstance(command, HoldSeats) and int(asyncio.get_running_loop().time()) % 2:
        return refuse("full", "wrong_time_of_day")
    return decide_seats(state, command, context)


# --- what was seen before -------------------------------------------------------------------------


def without(kind: str) -> Callable[[Seen, Envelope, Ms], Repeat | Conflict | None]:

    def broken(seen: Seen, envelope: Envelope, at: Ms) -> Repeat | Conflict | None:
        if (envelope.source is not None) == (kind == "reactions"):
            return None
        return dedupe.recognise(seen, envelope, at)

    return broken


def record_again(state: Seats, command: SeatsCommand, context: Context) -> tuple[Message, ...]:
    if isinstance(command, RecordTicket):
        return (TicketRecorded(hold_id=command.hold_id, issued=command.issued),)
    return decide_seats(state, command, context)


CLOCK_READ: Final = replace(SEATS_AGGREGATE, decide=reads_the_clock)
RECORDED_AGAIN: Final = replace(SEATS_AGGREGATE, decide=record_again)

# --- reactions ------------------------------------------------------------------------------------


async def send_once(self: Any, sends: Any) -> None:
    for where, records in sends.items():
        with suppress(AppendUnknown):
            await self._log.send_all(*where, records)


_send_all = reactor.Reactor._send_all


async def send_each(self: Any, sends: Any) -> None:
    """Send each record by itself: none waits for one in doubt before it."""
    alone = [{where: [record]} for where, records in sends.items() for record in records]
    await asyncio.gather(*(_send_all(self, send) for send in alone))


_take = reactor.Reactor.take


async def send_later(self: Any, batch: Any) -> None:
    """The position moves on before the reactions are sent."""
    self._sending = asyncio.create_task(_take(self, batch))


# --- snapshots ------------------------------------------------------------------------------------


async def trim_too_far(self: Any, topic: str, where: int, before: int) -> None:
    await self.pass_through()
    self.broker.on_trim(topic, where, before + 1)
    await self.broker.memory.trim(topic, where, before + 1)


async def delete_unarchived(log: Any, stream: Any, where: int, before_ms: Ms) -> ArchiveReport:
    """Kafka deletes what is behind the snapshots, and nothing was stored."""
    pointers = await snapshots.read_pointers(log, stream, where)
    before = min((each.offset for each in pointers.values()), default=0)
    await log.kept.trim(stream.journal.name, where, before)
    return ArchiveReport(stream=stream.name, partition=where, start=0, end=before)


_open_snapshot = snapshots.Snapshots._open


async def forgetful(self: Any, pointer: Any) -> Any:
    return structs.replace(await _open_snapshot(self, pointer), seen=Seen())


async def position_alone(self: Any, pointer: Any) -> Any:
    fold = await _open_snapshot(self, pointer)
    return structs.replace(fold, position=Position(fold.position.offset))


# --- projections and effects ----------------------------------------------------------------------


async def position_before_rows(self: Any, batch: RowBatch) -> CommitResult:
    """A commit in two steps: the process may die between them."""
    empty = replace(batch, changes=(), command_results=())
    done = await self._write(lambda: self._database.commit(empty))
    if done is CommitResult.DONE:
        await self._port.pass_through()
        self._database._apply(batch.projection, fold(batch.changes))
    return CommitResult(done)


async def commit_unfenced(self: Any, batch: RowBatch) -> CommitResult:
    saved = self._positions[batch.projection].get(batch.partition, SavedPosition())
    expected = saved.position.offset
    return await MemoryStore.commit(self, replace(batch, expected=expected))


async def lease_at_once(
    self: Any, kind: str, count: int, row_lease_ms: Ms, of_tenant_max: int | None = None
) -> Any:
    """Rows are worked on while the projection is still being built."""
    before = self._positions
    self._positions = {
        name: {partition: replace(saved, caught_up=True) for partition, saved in partitions.items()}
        for name, partitions in before.items()
    }
    try:
        return await MemoryStore.lease_rows(self, kind, count, row_lease_ms, of_tenant_max)
    finally:
        self._positions = before


async def flags_stay_down(_: Any, __: Any) -> None:
    """A flag lowered by another process is never raised again."""
    await wait_forever()


async def row_gone_when_sent(
    self: Any, leased: LeasedRow, delay_ms: Ms, failure: str | None = None, *, counts: bool = True
) -> None:
    """The row does not wait until the projection has read its outcome."""
    if delay_ms == effects.SETTLE_MS:
        await self.finish(leased)
    else:
        await self._write(lambda: self._database.release(leased, delay_ms, failure, counts=counts))
