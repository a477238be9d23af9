"""Rebuild a stream's states from offset 0, and compare them: `tunery replay --verify`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from schemas.streams import PARTITIONS
from tunery.runtime.bus.abstract import Log, Record
from tunery.runtime.bus.reading import records_now
from tunery.runtime.journal.codec import codec_of
from tunery.runtime.journal.fold import Fold, advance
from tunery.runtime.journal.reader import read_record
from tunery.runtime.verbs import Aggregate

S = TypeVar("S")


@dataclass(frozen=True)
class Replay(Generic[S]):
    """A partition folded from its first record. `void` counts claims, too."""

    partition: int
    fold: Fold[S]
    accepted: int
    void: int


def replay(aggregate: Aggregate[S], partition: int, records: Iterable[Record]) -> Replay[S]:
    """Fold all records of a partition, from offset 0. Pure. Raises Divergence, Unreadable."""
    fold, accepted, void = Fold(aggregate.initial), 0, 0
    for record in records:
        fold, is_accepted = fold_record(aggregate, fold, record)
        accepted, void = accepted + is_accepted, void + (not is_accepted)
    return Replay(partition, fold, accepted, void)


def fold_record(aggregate: Aggregate[S], fold: Fold[S], record: Record) -> tuple[Fold[S], bool]:
    """The fold after the next record, and whether the record was accepted. Pure.

    Raises Divergence, Unreadable.
    """
    stream = aggregate.stream
    judged = read_record(stream, codec_of(stream), fold.position, record)
    if judged.accepted is None:
        return msgspec.structs.replace(fold, position=judged.position), False
    item = judged.accepted
    return advance(aggregate, fold, item.entry, item.events, item.position), True


async def read_all(log: Log, topic: str, partition: int) -> list[Record]:
    """All records that the partition has now. Raises OutOfRange, Unavailable."""
    return [record async for record in records_now(log, topic, partition)]


async def replay_stream(log: Log, aggregate: Aggregate[S]) -> list[Replay[S]]:
    """Every partition of the stream from offset 0 to where it ends now."""
    topic = aggregate.stream.journal.name
    return [
        replay(aggregate, partition, await read_all(log, topic, partition))
        for partition in range(PARTITIONS)
    ]
