"""The event core with one rule broken at a time. Each must be caught by the invariants."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from msgspec import structs

from schemas.envelope import Entry, Envelope
from schemas.units import Ms
from tunery.runtime.bus.abstract import AppendUnknown
from tunery.runtime.journal import acceptance, decision, dedupe, partition, reactor, snapshots
from tunery.runtime.journal.acceptance import Acceptance, Diverged, Reason, record_hash
from tunery.runtime.journal.dedupe import Conflict, Repeat, Seen
from tunery.runtime.journal.reader import Position
from tunery.runtime.testing import door
from tunery.runtime.testing.faults import Faults, Step
from tunery.runtime.testing.scenario import TAIL_LOST


@dataclass(frozen=True)
class Mutant:
    """`place.name` is replaced by `broken`. `invariants`: what its violations may be named."""

    name: str
    place: Any
    attribute: str
    broken: Any
    invariants: tuple[str, ...]
    faults: Faults | None = None  # None: as the seed draws them

    @contextmanager
    def alive(self) -> Iterator[None]:
        """The rule is broken inside the block."""
        missing = object()
        before = self.place.__dict__.get(self.attribute, missing)
        setattr(self.place, self.attribute, self.broken)
        try:
            yield
        finally:
            if before is missing:
                delattr(self.place, self.attribute)
            else:
                setattr(self.place, self.attribute, before)


def _accept(state: Acceptance, entry: Entry, value: bytes) -> tuple[Acceptance, None]:
    return Acceptance(
        state.incarnation, state.epoch, entry.cause, record_hash(value), state.base, False
    ), None


Judgement = tuple[Acceptance, Reason | None]


def _epoch_off(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    if entry.cause != state.cause + 1:
        return state, "cause"
    if entry.prev != state.prev:
        raise Diverged("chain")
    return _accept(state, entry, value)


def _cause_off(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    if entry.epoch < state.epoch:
        return state, "epoch"
    if entry.prev != state.prev:
        raise Diverged("chain")
    return _accept(state, entry, value)


def _cause_and_chain_off(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    return (state, "epoch") if entry.epoch < state.epoch else _accept(state, entry, value)


def _chain_off(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    if entry.epoch < state.epoch:
        return state, "epoch"
    if entry.cause != state.cause + 1:
        return state, "cause"
    return _accept(state, entry, value)


def _chain_first(state: Acceptance, entry: Entry, value: bytes) -> Judgement:
    if entry.prev != state.prev:
        raise Diverged("chain")
    return _chain_off(state, entry, value)


async def _no_read_back(self: Any, term: Any) -> None:
    flight = term.flights.popleft()
    await flight.acknowledged
    _settled(self, term, flight)


async def _blind_retry(self: Any, term: Any) -> None:
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


def _without(kind: str) -> Callable[[Seen, Envelope, Ms], Repeat | Conflict | None]:

    def broken(seen: Seen, envelope: Envelope, at: Ms) -> Repeat | Conflict | None:
        if (envelope.source is not None) == (kind == "reactions"):
            return None
        return dedupe.recognise(seen, envelope, at)

    return broken


async def _send_once(
    self: Any, topic: str, key: bytes, value: bytes, where: int, place: Any
) -> None:
    try:
        await self._log.send(topic, key, value, where)
    except AppendUnknown:
        return


async def _trim_too_far(self: Any, topic: str, where: int, before: int) -> None:
    await self.pass_through()
    self.broker.on_trim(topic, where, before + 1)
    await self.broker.memory.trim(topic, where, before + 1)


_open_snapshot = snapshots.Snapshots._open


async def _forgetful(self: Any, pointer: Any) -> Any:
    return structs.replace(await _open_snapshot(self, pointer), seen=Seen())


async def _position_alone(self: Any, pointer: Any) -> Any:
    fold = await _open_snapshot(self, pointer)
    return structs.replace(fold, position=Position(fold.position.offset))


TAIL: Final = Faults(steps=(Step(12_000, TAIL_LOST),))
MUTANTS: Final = (
    Mutant("epoch check off", acceptance, "_entry", _epoch_off, ("agreement", "false stop")),
    Mutant("cause check off", acceptance, "_entry", _cause_off, ("agreement", "false stop")),
    Mutant(
        "cause check and hash chain off",
        acceptance,
        "_entry",
        _cause_and_chain_off,
        ("agreement", "fold", "once"),
    ),
    Mutant("hash chain off", acceptance, "_entry", _chain_off, ("agreement",), TAIL),
    Mutant("hash chain tested first", acceptance, "_entry", _chain_first, ("false stop",)),
    Mutant("no read-back", partition.PartitionOwner, "_settle", _no_read_back, ("read-back",)),
    Mutant(
        "blind retry of an unknown append",
        partition.PartitionOwner,
        "_settle",
        _blind_retry,
        ("read-back",),
    ),
    Mutant("clients' repeats decided", decision, "recognise", _without("clients"), ("dedupe",)),
    Mutant("reactions' repeats decided", decision, "recognise", _without("reactions"), ("dedupe",)),
    Mutant("at not clamped", decision, "max", lambda _, broker_at: broker_at, ("time",)),
    Mutant("reaction skipped in doubt", reactor.Reactor, "_insist", _send_once, ("reactions",)),
    Mutant("last decided command trimmed", door.Door, "trim", _trim_too_far, ("trim",)),
    Mutant("snapshot without what was seen", snapshots.Snapshots, "_open", _forgetful, ("dedupe",)),
    Mutant(
        "snapshot without acceptance state",
        snapshots.Snapshots,
        "_open",
        _position_alone,
        ("false stop",),
    ),
)
