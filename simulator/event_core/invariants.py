"""Invariants of any run, as pure functions of its records and today's rules."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

from msgspec import structs

from examples.first_stream import SEATS_MAX, SeatsExpired, SeatsHeld, SeatsReleased, TicketRecorded
from schemas import errors
from schemas.envelope import FIRST_LEVEL, Claim, Rejected
from schemas.levels import level_of
from schemas.streams import Stream
from simulator.event_core.run import NEWEST
from simulator.event_core.streams import SeatsCounted
from simulator.event_core.views import Rows, rebuild_rows
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.hosts.owner import Settled
from tunery.runtime.hosts.projector import command_result_of
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.codec import codec_of, decode_record
from tunery.runtime.journal.decision import decide_record, read_command
from tunery.runtime.journal.fold import Fold, advance
from tunery.runtime.journal.reader import Accepted, Judged, read_record
from tunery.runtime.store.abstract import CommandResult
from tunery.runtime.verbs import Aggregate

StreamPartition = tuple[str, int]
REFUSALS: Final = ("full", "not_held", "not_awaited", errors.LEVEL_TOO_LOW)
FIRST: Final = "p0"  # decides as the older release does
LAST: Final = f"p{NEWEST}"  # as the newer, where there is one


@dataclass
class History:
    """One partition after a run: its records, and how today's rules judge them.

    stale: void because of a newer claim; elsewhere: commands that another release would decide
    otherwise; bases: operators' claims, as (offset, base).
    """

    accepted: list[Accepted] = field(default_factory=list)
    bases: list[tuple[int, int]] = field(default_factory=list)
    claims: int = 0
    void: int = 0
    stale: int = 0
    elsewhere: int = 0
    violations: list[str] = field(default_factory=list)

    def events(self) -> Iterator[Any]:
        """Yield the events of all entries that count."""
        return (event for decision in self.accepted for event in decision.events)


Decider = Callable[[str], Aggregate[Any]]


class _Reading:
    """Folds a partition, deciding every accepted entry once more from its command.

    That is the strongest check there is: exactly one entry per command, in order, each decided on
    the state that all entries before it give, by the release that had claimed the partition.
    """

    def __init__(
        self, decider: Decider, partition: int, commands: list[Record], keys: SenderKeys
    ) -> None:
        self.keys = keys
        self.aggregate, self.decider, self.commands = decider(FIRST), decider, commands
        self.stream, self.history = decider(LAST).stream, History()
        self.name, self.fold = f"{self.stream.name}/{partition}", Fold(self.aggregate.initial)

    def read(self, journal: list[Record]) -> History:
        history, codec = self.history, codec_of(self.stream)
        for record in journal:
            try:
                judged = read_record(self.stream, codec, self.fold.position, record)
            except PartitionStopped as stopped:
                history.violations.append(f"agreement: the journal itself diverges: {stopped}")
                break
            if judged.accepted is not None:
                self._decide_again(record, judged.accepted)
            elif judged.claim is not None:
                history.claims += 1
                if judged.claim.base is None:
                    self.aggregate = self.decider(judged.claim.owner)
                else:
                    history.bases.append((record.offset, judged.claim.base))
            else:
                self._explain(record, judged)
            if history.violations:
                break
            self.fold = structs.replace(self.fold, position=judged.position)
        return history

    def _decide_again(self, record: Record, decision: Accepted) -> None:
        history, cause = self.history, decision.entry.cause
        history.accepted.append(decision)
        if cause >= len(self.commands):
            history.violations.append(f"once: {self.name}@{record.offset} has no command")
            return
        # An owner may take a command's time for less than the broker says, and never for more.
        at = min(self.commands[cause].timestamp, decision.entry.at)
        command = self.commands[cause]._replace(timestamp=at)
        answers = {
            decider: decide_record(
                aggregate, self.fold, command, record.offset, self.keys, level=decision.entry.level
            ).value
            for decider, aggregate in ((FIRST, self.decider(FIRST)), (LAST, self.decider(LAST)))
            if decider == FIRST or aggregate is not self.decider(FIRST)
        }
        history.elsewhere += len(set(answers.values())) > 1
        expected = answers.get(LAST) if self.aggregate is self.decider(LAST) else None
        expected = expected or answers[FIRST]
        if expected != record.value:
            history.violations.append(
                f"fold: {self.name}@{record.offset} is {record.value!r}, "
                f"the state before it gives {expected!r}"
            )
        else:
            self.fold = advance(
                self.aggregate, self.fold, decision.entry, decision.events, decision.position
            )

    def _explain(self, record: Record, judged: Judged) -> None:
        """Void is a record of an older epoch, a copy, or one whose forerunner was lost.

        Another answer to a command that was answered in the same epoch is none of these.
        """
        history = self.history
        history.void += 1
        history.stale += judged.reason == "epoch"
        entry = decode_record(record.value)
        if judged.reason == "epoch" or isinstance(entry, Claim):
            return
        decided = history.accepted[entry.cause : entry.cause + 1]
        if any(decision.value != record.value for decision in decided):
            history.violations.append(
                f"silence: {self.name}@{record.offset} contradicts the entry of its cause "
                f"{entry.cause} and was voided"
            )


def read_history(
    decider: Decider,
    partition: int,
    journal: list[Record],
    commands: list[Record],
    keys: SenderKeys = UNSIGNED,
) -> History:
    """`decider`: how the process of that name decides; `keys`: by which it knows senders."""
    return _Reading(decider, partition, commands, keys).read(journal)


def undecided(stream: Stream, history: History, commands: list[Record]) -> list[str]:
    """Progress: every command has its entry, under the command's own id."""
    name = stream.name
    if len(history.accepted) != len(commands):
        return [f"progress: {name} decided {len(history.accepted)} of {len(commands)} commands"]
    return [
        f"once: {name} entry {decision.entry.cause} is of {decision.entry.command_id}"
        for decision, command in zip(history.accepted, commands, strict=True)
        if read_command(stream, command, decision.entry.cause).id != decision.entry.command_id
    ]


def within_limit(accepted: Iterable[Accepted]) -> list[str]:
    """At no prefix does a tenant hold more than the limit. Counted without any fold of ours."""
    held: dict[str, int] = {}
    for decision in accepted:
        for event in decision.events:
            match event:
                case SeatsHeld(seats=seats):
                    held[decision.entry.key] = held.get(decision.entry.key, 0) + seats
                case SeatsReleased(seats=seats) | SeatsExpired(seats=seats):
                    held[decision.entry.key] = held.get(decision.entry.key, 0) - seats
                case _:
                    continue
            if not 0 <= held.get(decision.entry.key, 0) <= SEATS_MAX:
                return [
                    f"limit: {decision.entry.key} holds {held[decision.entry.key]} of {SEATS_MAX}"
                ]
    return []


def decided_once(accepted: Iterable[Accepted]) -> list[str]:
    """An idempotency key, and a source of a reaction, changes something at most once."""
    seen: dict[str, str] = {}
    violations: list[str] = []
    for decision in accepted:
        if not any(
            isinstance(event, SeatsHeld | SeatsReleased | TicketRecorded | SeatsCounted)
            for event in decision.events
        ):
            continue
        for mark in _marks(decision):
            if mark in seen:
                violations.append(
                    f"dedupe: {mark} was decided as {seen[mark]} and {decision.entry.command_id}"
                )
            seen[mark] = decision.entry.command_id
    return violations


def _marks(decision: Accepted) -> list[str]:
    entry, marks = decision.entry, []
    if entry.source is not None:
        marks.append(f"source {entry.source}")
    if entry.idempotency is not None:
        marks.append(f"key {entry.tenant}/{entry.idempotency.key}")
    return marks


def ordered(accepted: Iterable[Accepted]) -> list[str]:
    """`at` never decreases; `seq` counts without gaps per key; causes without gaps."""
    at, seqs, violations = 0, dict[str, int](), list[str]()
    for cause, decision in enumerate(accepted):
        entry = decision.entry
        if entry.at < at:
            violations.append(f"time: at went back from {at} to {entry.at}")
        if entry.seq != seqs.get(entry.key, 0) + 1:
            violations.append(
                f"order: seq of {entry.key} went from {seqs.get(entry.key)} to {entry.seq}"
            )
        if entry.cause != cause:
            violations.append(f"order: cause {entry.cause} came as number {cause}")
        at, seqs[entry.key] = entry.at, entry.seq
    return violations


def same_view(name: str, history: History, seen: list[bytes], complete: bool) -> list[str]:
    """A reader accepted the same bytes in the same order; all of them when it must have."""
    truth = [decision.value for decision in history.accepted]
    if seen != truth[: len(seen)]:
        return [f"agreement: {name} accepted other records than the log holds"]
    if complete and len(seen) < len(truth):
        return [f"agreement: {name} accepted {len(seen)} of {len(truth)} records"]
    return []


def no_silent_loss(name: str, history: History, seen: list[bytes]) -> list[str]:
    """A reader that has read the lost end of a journal never continues silently.

    The next entry it would take carries the hash of the one before, so it must stop there. Until
    there is such an entry it cannot know.
    """
    truth = [decision.value for decision in history.accepted]
    shared = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(truth, seen, strict=False))
    )
    if shared == len(seen):
        return []
    if len(truth) > len(seen) or set(seen[shared:]) & set(truth[shared:]):
        return [f"agreement: {name} went on in another journal and did not say so"]
    return []


def only_accepted(
    settled: Iterable[Settled], histories: Mapping[StreamPartition, History]
) -> list[str]:
    """Every entry that an owner read back is accepted at that offset."""
    truth = {
        (partition[0], partition[1], decision.header.offset, decision.entry.command_id)
        for partition, history in histories.items()
        for decision in history.accepted
    }
    return [
        f"read-back: {decision} was settled and is not accepted"
        for decision in settled
        if decision[:4] not in truth
    ]


def reactions_complete(seats: Iterable[Accepted], tally: Iterable[Accepted]) -> list[str]:
    """The tally equals the sum of all seats that were ever held."""
    held, counted = dict[str, int](), dict[str, int]()
    for decision in seats:
        for event in decision.events:
            if isinstance(event, SeatsHeld):
                key = f"{decision.entry.key}-tally"
                held[key] = held.get(key, 0) + event.seats
    for decision in tally:
        for event in decision.events:
            if isinstance(event, SeatsCounted):
                counted[decision.entry.key] = event.total
    return [] if held == counted else [f"reactions: held {held}, counted {counted}"]


def no_refusal(accepted: Iterable[Accepted]) -> list[str]:
    """Nothing in these runs is malformed, so nothing may be refused as malformed or internal."""
    return [
        f"refusal: {event.code}: {event.reason}"
        for decision in accepted
        for event in decision.events
        if isinstance(event, Rejected) and event.code not in REFUSALS
    ]


def at_their_level(accepted: Sequence[Accepted]) -> list[str]:
    """No event is written below the level that it came with, and the level never falls."""
    violations, level = [], FIRST_LEVEL
    for decision in accepted:
        needed = max(map(level_of, decision.events), default=FIRST_LEVEL)
        if not max(level, needed) <= decision.entry.level:
            violations.append(
                f"level: {decision.header.stream}/{decision.header.partition} is at level "
                f"{decision.entry.level} after {level}, and an event of it needs {needed}"
            )
        level = decision.entry.level
    return violations


def not_too_far(history: History, before: int, end: int) -> bool:
    """Undecided commands, and the last decided one, are never trimmed."""
    decided = sum(decision.header.offset < end for decision in history.accepted)
    base = max((base for offset, base in history.bases if offset < end), default=0)
    return before < max(decided - base, 1)


def ticketed_once(accepted: Iterable[Accepted], worked: Mapping[str, int]) -> list[str]:
    """Each hold got one ticket, and the effect ran for it, or gave up."""
    holds: set[str] = set()
    tickets: dict[str, list[bool]] = {}
    for entry in accepted:
        for event in entry.events:
            match event:
                case SeatsHeld():
                    holds.add(entry.entry.command_id)
                case TicketRecorded(hold_id=hold_id, issued=issued):
                    tickets.setdefault(hold_id, []).append(issued)
                case _:
                    pass
    violations = [
        f"effect: {hold_id} has the outcomes {outcomes}"
        for hold_id, outcomes in tickets.items()
        if len(outcomes) > 1 or hold_id not in holds
    ]
    violations += [
        f"effect: {hold_id} has no outcome" for hold_id in sorted(holds - tickets.keys())
    ]
    return violations + [
        f"effect: {hold_id} has an outcome, and the effect never ran"
        for hold_id, (issued, *_) in tickets.items()
        if issued and worked.get(hold_id, 0) < 1
    ]


def same_rows(rows: Rows, accepted: Iterable[Accepted]) -> list[str]:
    """The rows are those of a rebuild from zero."""
    return [
        f"rows: {table} {key} is {rows[table].get(key)}, rebuilt it is {rebuilt.get(key)}"
        for table, rebuilt in rebuild_rows(accepted).items()
        for key in sorted(rebuilt.keys() | rows[table].keys())
        if rebuilt.get(key) != rows[table].get(key)
    ]


def commands_answered(
    results: Mapping[str, CommandResult | None], accepted: Iterable[Accepted]
) -> list[str]:
    """A client that waits for a command gets what its first entry says."""
    wanted: dict[str, CommandResult] = {}
    for decision in accepted:
        if decision.entry.source is None:
            wanted.setdefault(decision.entry.command_id, command_result_of(decision))
    return [
        f"outcome: of {command_id} is {results.get(command_id)}, should be {result}"
        for command_id, result in wanted.items()
        if results.get(command_id) != result
    ]
