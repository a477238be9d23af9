"""Everything the owner of a partition knows: a fold of its journal, nothing else."""

from typing import Any, Generic, TypeVar

from immutables import Map
from msgspec import Struct, structs

from schemas.envelope import Context, Entry
from schemas.units import Ms
from tunery.runtime.journal.dedupe import Seen, remember
from tunery.runtime.journal.reader import START, Accepted, Position
from tunery.runtime.verbs import Aggregate

S = TypeVar("S")


class Fold(Struct, Generic[S], frozen=True, gc=False):
    """The fold of a partition's journal up to an offset."""

    state: S  # the decider's state of all keys of the partition
    # next journal offset, and the state of the acceptance rule before it
    position: Position = START
    # at, command_id: broker time and command of the last accepted entry
    at: Ms = 0
    command_id: str = ""
    seqs: Map[str, int] = Map()  # number of the last accepted entry, by key
    seen: Seen = Seen()  # what duplicates of commands are recognised by
    last_offset: int = -1  # journal offset of the last accepted entry; -1: there is none


def context_of(entry: Entry) -> Context:
    """The context that `evolve` gets for an accepted entry."""
    return Context(
        at=entry.at,
        key=entry.key,
        tenant=entry.tenant,
        command_id=entry.command_id,
        seq=entry.seq,
        sender=entry.sender,
        level=entry.level,
    )


def advance(
    aggregate: Aggregate[S],
    fold: Fold[S],
    entry: Entry,
    events: tuple[Any, ...],
    position: Position,
) -> Fold[S]:
    """The fold after an accepted entry. Raises what `evolve` raises."""
    context, state, evolve = context_of(entry), fold.state, aggregate.evolve
    for event in events:
        state = evolve(state, event, context)
    return Fold(
        state,
        position,
        entry.at,
        entry.command_id,
        fold.seqs.set(entry.key, entry.seq),
        remember(fold.seen, entry, events),
        position.offset - 1,
    )


def advance_all(
    aggregate: Aggregate[S], fold: Fold[S], accepted: tuple[Accepted, ...], position: Position
) -> Fold[S]:
    """The fold after a batch that ends at `position`."""
    for item in accepted:
        fold = advance(aggregate, fold, item.entry, item.events, item.position)
    return structs.replace(fold, position=position)
