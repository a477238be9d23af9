"""What must hold after any run. Pure: works on the records alone, with today's rules."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from msgspec import structs

from schemas.envelope import Rejected
from tunery.runtime.bus.abstract import Record
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.codec import codec_of
from tunery.runtime.journal.decision import decide_record, read_command
from tunery.runtime.journal.fold import Fold, advance
from tunery.runtime.journal.partition import Settled
from tunery.runtime.journal.reader import Accepted, read_record
from tunery.runtime.testing.toy import LIMIT, Counted, Expired, GivenBack, Taken
from tunery.runtime.verbs import Aggregate

Place = tuple[str, int]


@dataclass
class History:
    """One partition after the run: its records, and what they mean by the rules of today."""

    accepted: list[Accepted] = field(default_factory=list)
    claims: int = 0
    void: int = 0
    violations: list[str] = field(default_factory=list)


def read_history(
    aggregate: Aggregate[Any], partition: int, journal: list[Record], commands: list[Record]
) -> History:
    """Fold the partition, deciding every accepted entry once more from its command.

    That is the strongest check there is: exactly one entry per command, in order, each decided on
    the state that all entries before it give.
    """
    stream, history = aggregate.stream, History()
    name, fold = f"{stream.name}/{partition}", Fold(aggregate.initial)
    for record in journal:
        try:
            judged = read_record(stream, codec_of(stream), fold.position, record)
        except PartitionStopped as stopped:
            history.violations.append(f"agreement: the journal itself diverges: {stopped}")
            return history
        if judged.accepted is None:
            history.claims += judged.claim is not None
            history.void += judged.claim is None
            fold = structs.replace(fold, position=judged.position)
            continue
        one = judged.accepted
        history.accepted.append(one)
        if one.entry.cause >= len(commands):
            history.violations.append(f"once: {name}@{record.offset} has no command")
            return history
        command = commands[one.entry.cause]
        expected = decide_record(aggregate, fold, command, record.offset)
        if expected.value != record.value:
            history.violations.append(
                f"fold: {name}@{record.offset} is {record.value!r}, "
                f"the state before it gives {expected.value!r}"
            )
            return history
        fold = advance(aggregate, fold, one.entry, one.events, one.position)
    return history


def undecided(aggregate: Aggregate[Any], history: History, commands: list[Record]) -> list[str]:
    """Progress: every command has its entry, under the command's own id."""
    name = aggregate.stream.name
    if len(history.accepted) != len(commands):
        return [f"progress: {name} decided {len(history.accepted)} of {len(commands)} commands"]
    return [
        f"once: {name} entry {one.entry.cause} is of {one.entry.command_id}"
        for one, command in zip(history.accepted, commands, strict=True)
        if read_command(aggregate.stream, command, one.entry.cause).id != one.entry.command_id
    ]


def within_limit(accepted: Iterable[Accepted]) -> list[str]:
    """At no prefix does a tenant hold more than the limit. Counted without any fold of ours."""
    held: dict[str, int] = {}
    for one in accepted:
        for event in one.events:
            match event:
                case Taken(places=places):
                    held[one.entry.key] = held.get(one.entry.key, 0) + places
                case GivenBack(places=places) | Expired(places=places):
                    held[one.entry.key] = held.get(one.entry.key, 0) - places
                case _:
                    continue
            if not 0 <= held.get(one.entry.key, 0) <= LIMIT:
                return [f"limit: {one.entry.key} holds {held[one.entry.key]} of {LIMIT}"]
    return []


def decided_once(accepted: Iterable[Accepted]) -> list[str]:
    """An idempotency key, and a source of a reaction, changes something at most once."""
    seen: dict[str, str] = {}
    found: list[str] = []
    for one in accepted:
        if not any(isinstance(event, Taken | GivenBack | Counted) for event in one.events):
            continue
        for mark in _marks(one):
            if mark in seen:
                found.append(
                    f"dedupe: {mark} was decided as {seen[mark]} and {one.entry.command_id}"
                )
            seen[mark] = one.entry.command_id
    return found


def _marks(one: Accepted) -> list[str]:
    entry, marks = one.entry, []
    if entry.source is not None:
        marks.append(f"source {entry.source}")
    if entry.idempotency is not None:
        marks.append(f"key {entry.tenant}/{entry.idempotency.key}")
    return marks


def ordered(accepted: Iterable[Accepted]) -> list[str]:
    """`at` never decreases; `seq` counts without gaps per key; causes without gaps."""
    at, seqs, found = 0, dict[str, int](), list[str]()
    for cause, one in enumerate(accepted):
        entry = one.entry
        if entry.at < at:
            found.append(f"time: at went back from {at} to {entry.at}")
        if entry.seq != seqs.get(entry.key, 0) + 1:
            found.append(
                f"order: seq of {entry.key} went from {seqs.get(entry.key)} to {entry.seq}"
            )
        if entry.cause != cause:
            found.append(f"order: cause {entry.cause} came as number {cause}")
        at, seqs[entry.key] = entry.at, entry.seq
    return found


def same_view(name: str, history: History, seen: list[bytes], complete: bool) -> list[str]:
    """A reader accepted the same bytes in the same order; all of them when it must have."""
    truth = [one.value for one in history.accepted]
    if seen != truth[: len(seen)]:
        return [f"agreement: {name} accepted other records than the log holds"]
    if complete and len(seen) < len(truth):
        return [f"agreement: {name} accepted {len(seen)} of {len(truth)} records"]
    return []


def no_silent_loss(name: str, history: History, seen: list[bytes]) -> list[str]:
    """A reader that saw the journal's lost end never goes on in the new one without a word.

    The next entry it would take carries the hash of the one before, so it must stop there. Until
    there is such an entry it cannot know.
    """
    truth = [one.value for one in history.accepted]
    shared = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(truth, seen, strict=False))
    )
    if shared == len(seen):
        return []
    if len(truth) > len(seen) or set(seen[shared:]) & set(truth[shared:]):
        return [f"agreement: {name} went on in another journal and did not say so"]
    return []


def only_accepted(settled: Iterable[Settled], histories: Mapping[Place, History]) -> list[str]:
    """What an owner took for read back is accepted, at that offset."""
    truth = {
        (place[0], place[1], one.header.offset, one.entry.command_id)
        for place, history in histories.items()
        for one in history.accepted
    }
    return [
        f"read-back: {one} was settled and is not accepted"
        for one in settled
        if tuple(one) not in truth
    ]


def reactions_complete(places: Iterable[Accepted], tally: Iterable[Accepted]) -> list[str]:
    """The tally is the sum of everything taken, to the unit."""
    taken, counted = dict[str, int](), dict[str, int]()
    for one in places:
        for event in one.events:
            if isinstance(event, Taken):
                key = f"{one.entry.key}-tally"
                taken[key] = taken.get(key, 0) + event.places
    for one in tally:
        for event in one.events:
            if isinstance(event, Counted):
                counted[one.entry.key] = event.total
    return [] if taken == counted else [f"reactions: taken {taken}, counted {counted}"]


def no_refusal(accepted: Iterable[Accepted]) -> list[str]:
    """Nothing in these runs is malformed, so nothing may be refused as malformed or internal."""
    return [
        f"refusal: {event.code}: {event.message}"
        for one in accepted
        for event in one.events
        if isinstance(event, Rejected) and event.code not in ("full", "not_held")
    ]
