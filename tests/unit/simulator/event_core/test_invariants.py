"""Each invariant holds on a sound journal, and names what is wrong with an unsound one."""

from typing import Any

import pytest
from msgspec.structs import replace

from examples.first_stream import (
    SEATS,
    SEATS_AGGREGATE,
    SEATS_MAX,
    HoldSeats,
    ReleaseSeats,
    SeatsExpired,
    SeatsHeld,
    SeatsReleased,
    TicketRecorded,
)
from schemas.envelope import (
    Claim,
    Entry,
    Envelope,
    Idempotency,
    Message,
    Reason,
    Rejected,
    Repeated,
    Source,
)
from simulator.event_core.invariants import (
    History,
    commands_answered,
    decided_once,
    no_refusal,
    no_silent_loss,
    not_too_far,
    only_accepted,
    ordered,
    reactions_complete,
    read_history,
    same_rows,
    same_view,
    ticketed_once,
    undecided,
    within_limit,
)
from simulator.event_core.releases import SEATS_STRICTER
from simulator.event_core.streams import SeatsCounted
from simulator.event_core.views import rebuild_rows
from tests.unit.simulator.event_core.journal import SmallJournal
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.owner import Settled
from tunery.runtime.hosts.projector import command_result_of
from tunery.runtime.journal.codec import codec_of, decode_record, encode, raw_events
from tunery.runtime.journal.decision import decide_record
from tunery.runtime.journal.fold import Fold, advance
from tunery.runtime.journal.reader import read_record
from tunery.runtime.verbs import Aggregate

FULL = Rejected(code="full", reason=Reason(code="seats_at_most"))
PARTITION = partition_of(b"ada")


def held(seats: int, until: int = 9_000) -> SeatsHeld:
    return SeatsHeld(seats=seats, until=until)


# --- one partition, read again --------------------------------------------------------------------


class WrittenPartition:
    """Records of one partition as its owner writes them: commands and the journal."""

    def __init__(self, aggregate: Aggregate[Any] = SEATS_AGGREGATE, owner: str = "p0") -> None:
        self.commands: list[Record] = []
        self.journal: list[Record] = []
        self.fold = Fold(aggregate.initial)
        self.claim(aggregate, owner)

    def claim(self, aggregate: Aggregate[Any], owner: str, base: int | None = None) -> None:
        self.aggregate = aggregate
        self._append(encode(Claim(owner=owner, nonce=owner, base=base)))
        self._follow()

    def send(self, *bodies: Message) -> None:
        for body in bodies:
            number = len(self.commands)
            envelope = Envelope(
                id=f"{number:032x}", key="ada", tenant="ada", body=raw_events((body,))[0]
            )
            record = Record(PARTITION, number, 1_000 + number, b"ada", encode(envelope))
            self.commands.append(record)
            expected = len(self.journal)
            self._append(decide_record(self.aggregate, self.fold, record, expected).value)
            self._follow()

    def _append(self, value: bytes) -> None:
        self.journal.append(Record(PARTITION, len(self.journal), 0, b"ada", value))

    def _follow(self) -> None:
        judged = read_record(SEATS, codec_of(SEATS), self.fold.position, self.journal[-1])
        if judged.accepted is None:
            self.fold = replace(self.fold, position=judged.position)
        else:
            accepted = judged.accepted
            self.fold = advance(
                self.aggregate, self.fold, accepted.entry, accepted.events, accepted.position
            )

    def history(self, newer_from: str = "p9") -> History:
        def decider(owner: str) -> Aggregate[Any]:
            return SEATS_STRICTER if int(owner[1:]) >= int(newer_from[1:]) else SEATS_AGGREGATE

        return read_history(decider, PARTITION, self.journal, self.commands)


def test_a_sound_partition_is_decided_once_more_to_the_byte() -> None:
    written = WrittenPartition()
    written.send(HoldSeats(seats=2), HoldSeats(seats=4), ReleaseSeats(seats=1))
    history = written.history()
    assert history.violations == []
    assert (len(history.accepted), history.claims, history.void) == (3, 1, 0)
    assert undecided(SEATS, history, written.commands) == []


def test_an_entry_that_its_state_does_not_give_is_found_at_its_offset() -> None:
    written = WrittenPartition()
    written.send(HoldSeats(seats=2))
    entry = decode_record(written.journal[1].value)
    assert isinstance(entry, Entry)
    forged = replace(entry, events=raw_events((held(3),)))
    written.journal[1] = written.journal[1]._replace(value=encode(forged))
    (violation,) = written.history().violations
    assert violation.startswith(f"fold: seats/{PARTITION}@1 is ")


def test_an_entry_without_a_command_is_found() -> None:
    written = WrittenPartition()
    written.send(HoldSeats(seats=1))
    written.commands.clear()
    assert written.history().violations == [f"once: seats/{PARTITION}@1 has no command"]


def test_a_journal_with_a_hole_diverges() -> None:
    written = WrittenPartition()
    written.send(HoldSeats(seats=1), HoldSeats(seats=1))
    del written.journal[1]
    (violation,) = written.history().violations
    assert violation.startswith("agreement: the journal itself diverges")


def test_what_an_older_epoch_wrote_after_a_claim_is_stale_and_no_violation() -> None:
    written = WrittenPartition()
    written.send(HoldSeats(seats=1))
    late = decide_record(
        SEATS_AGGREGATE,
        written.fold,
        written.commands[0]._replace(offset=1),
        len(written.journal) + 1,
    ).value
    written.claim(SEATS_AGGREGATE, "p1")
    written.journal.append(Record(PARTITION, len(written.journal), 0, b"ada", late))
    history = written.history()
    assert history.violations == []
    assert (history.claims, history.void, history.stale) == (2, 1, 1)


def test_another_answer_in_the_same_epoch_is_silence_although_it_is_void() -> None:
    written = WrittenPartition()
    written.send(HoldSeats(seats=1))
    entry = decode_record(written.journal[1].value)
    assert isinstance(entry, Entry)
    other = replace(entry, events=raw_events((held(4),)))
    written.journal.append(Record(PARTITION, 2, 0, b"ada", encode(other)))
    (violation,) = written.history().violations
    assert violation.startswith(
        f"silence: seats/{PARTITION}@2 contradicts the entry of its cause 0"
    )


def test_a_copy_of_an_entry_is_void_and_says_nothing_new() -> None:
    written = WrittenPartition()
    written.send(HoldSeats(seats=1))
    written.journal.append(written.journal[1]._replace(offset=2))
    history = written.history()
    assert (history.violations, history.void, history.stale) == ([], 1, 0)


def test_each_process_is_judged_by_the_release_that_claimed() -> None:
    written = WrittenPartition()
    written.send(HoldSeats(seats=SEATS_MAX - 1), ReleaseSeats(seats=SEATS_MAX - 1))
    written.claim(SEATS_STRICTER, "p9")
    written.send(HoldSeats(seats=SEATS_MAX))  # one seat less may be held now
    history = written.history("p9")
    assert history.violations == []
    assert history.elsewhere > 0
    assert isinstance(history.accepted[-1].events[0], Rejected)
    assert written.history("p10").violations[0].startswith("fold: ")


def test_an_operators_claim_is_listed_with_its_base() -> None:
    written = WrittenPartition()
    written.send(HoldSeats(seats=1))
    written.claim(SEATS_AGGREGATE, "operator", base=1)
    assert written.history().bases == [(2, 1)]


def test_a_command_without_an_entry_and_an_entry_of_another_command_are_progress_and_once() -> None:
    written = WrittenPartition()
    written.send(HoldSeats(seats=1), ReleaseSeats(seats=1))
    history = written.history()
    one_more = [*written.commands, written.commands[0]._replace(offset=2)]
    assert undecided(SEATS, history, one_more) == ["progress: seats decided 2 of 3 commands"]
    swapped = [written.commands[1], written.commands[0]]
    assert [text.split(":")[0] for text in undecided(SEATS, history, swapped)] == ["once", "once"]


# --- rules over accepted entries ------------------------------------------------------------------


def test_the_limit_is_counted_for_each_tenant_at_each_prefix() -> None:
    journal = SmallJournal()
    journal.add(held(SEATS_MAX))
    journal.add(held(SEATS_MAX), key="bob")
    journal.add(SeatsReleased(seats=2))
    journal.add(held(2))
    journal.add(SeatsExpired(seats=SEATS_MAX))
    assert within_limit(journal.accepted) == []
    journal.add(held(1), key="bob")
    assert within_limit(journal.accepted) == [f"limit: bob holds {SEATS_MAX + 1} of {SEATS_MAX}"]


def test_more_released_than_held_is_outside_the_limit_too() -> None:
    journal = SmallJournal()
    journal.add(held(1))
    journal.add(SeatsExpired(seats=2))
    assert within_limit(journal.accepted) == [f"limit: ada holds -1 of {SEATS_MAX}"]


def test_a_source_and_an_idempotency_key_change_something_once() -> None:
    source = Source("job", 3, 0, 7, 0)
    once = Idempotency(key="k", body="b")
    journal = SmallJournal()
    journal.add(held(1), source=source, idempotency=once)
    journal.add(Repeated(of="seats-0"), source=source, idempotency=once)
    journal.add(held(1), key="bob", idempotency=once)  # keys are of a tenant
    assert decided_once(journal.accepted) == []
    journal.add(SeatsReleased(seats=1), source=source)
    journal.add(TicketRecorded(hold_id="seats-0", issued=True), idempotency=once)
    assert decided_once(journal.accepted) == [
        f"dedupe: source {source} was decided as seats-0 and seats-3",
        "dedupe: key ada/k was decided as seats-0 and seats-4",
    ]


def test_time_numbers_and_causes_go_forward_without_gaps() -> None:
    journal = SmallJournal()
    journal.add(held(1), at=5)
    journal.add(held(1), at=5, key="bob")
    journal.add(held(1), at=6)
    assert ordered(journal.accepted) == []
    assert ordered(journal.accepted[1:]) == [
        "order: cause 1 came as number 0",
        "order: seq of ada went from None to 2",
        "order: cause 2 came as number 1",
    ]
    journal.add(held(1), at=4)
    assert ordered(journal.accepted) == ["time: at went back from 6 to 4"]


def test_only_refusals_that_the_rules_of_seats_make_are_allowed() -> None:
    journal = SmallJournal()
    journal.add(FULL)
    assert no_refusal(journal.accepted) == []
    reason = Reason(code="body_unreadable")
    journal.add(Rejected(code="malformed", reason=reason))
    assert no_refusal(journal.accepted) == [f"refusal: malformed: {reason}"]


# --- readers --------------------------------------------------------------------------------------


def history_of(journal: SmallJournal) -> History:
    return History(accepted=journal.accepted)


def three_entries() -> tuple[History, list[bytes]]:
    journal = SmallJournal()
    for _ in range(3):
        journal.add(held(1))
    return history_of(journal), [decision.value for decision in journal.accepted]


def test_a_reader_may_be_behind_and_may_not_differ() -> None:
    history, values = three_entries()
    assert same_view("r", history, values[:2], complete=False) == []
    assert same_view("r", history, values, complete=True) == []
    assert same_view("r", history, values[:2], complete=True) == [
        "agreement: r accepted 2 of 3 records"
    ]
    other = same_view("r", history, [values[0], b"other"], complete=False)
    assert other == ["agreement: r accepted other records than the log holds"]


@pytest.mark.parametrize(
    ("read", "silent"),
    [
        (["0", "1", "2"], False),
        (["0"], False),
        (["0", "1", "2", "lost"], False),  # it waits at the lost end
        (["0", "1", "lost", "2"], True),  # it went on with the new journal
        (["0", "lost"], True),  # the log has gone on, so it should have noticed
    ],
)
def test_a_reader_of_a_lost_end_waits_or_stops(read: list[str], silent: bool) -> None:
    history, values = three_entries()
    known = {str(number): value for number, value in enumerate(values)}
    seen = [known.get(name, name.encode()) for name in read]
    assert bool(no_silent_loss("r", history, seen)) is silent


def test_what_an_owner_read_back_is_in_the_journal_at_that_offset() -> None:
    journal = SmallJournal()
    journal.add(held(1))
    histories = {("seats", 0): history_of(journal)}
    assert only_accepted([Settled("seats", 0, 0, "seats-0")], histories) == []
    for settled in (Settled("seats", 0, 1, "seats-0"), Settled("seats", 0, 0, "seats-1")):
        (violation,) = only_accepted([settled], histories)
        assert violation.startswith("read-back: ")


# --- what follows from a journal ------------------------------------------------------------------


def test_the_tally_is_the_sum_of_all_holds() -> None:
    seats, tally = SmallJournal(), SmallJournal("tally")
    seats.add(held(2))
    seats.add(SeatsReleased(seats=2))
    seats.add(held(3))
    tally.add(SeatsCounted(seats=2, total=2), key="ada-tally")
    (violation,) = reactions_complete(seats.accepted, tally.accepted)
    assert violation == "reactions: held {'ada-tally': 5}, counted {'ada-tally': 2}"
    tally.add(SeatsCounted(seats=3, total=5), key="ada-tally")
    assert reactions_complete(seats.accepted, tally.accepted) == []


def test_each_hold_has_one_ticket_and_its_effect_ran() -> None:
    journal = SmallJournal()
    first, second = journal.add(held(1)), journal.add(held(1))
    journal.add(TicketRecorded(hold_id=first, issued=True))
    journal.add(TicketRecorded(hold_id=second, issued=False))  # it gave up
    assert ticketed_once(journal.accepted, {first: 2}) == []
    assert ticketed_once(journal.accepted, {}) == [
        f"effect: {first} has an outcome, and the effect never ran"
    ]


def test_a_ticket_too_many_too_few_or_of_no_hold_is_found() -> None:
    journal = SmallJournal()
    first, second = journal.add(held(1)), journal.add(held(1))
    journal.add(TicketRecorded(hold_id=first, issued=True))
    journal.add(TicketRecorded(hold_id=first, issued=False))
    journal.add(TicketRecorded(hold_id="nobody", issued=False))
    assert ticketed_once(journal.accepted, {first: 1}) == [
        f"effect: {first} has the outcomes [True, False]",
        "effect: nobody has the outcomes [False]",
        f"effect: {second} has no outcome",
    ]


def test_rows_are_those_of_a_rebuild() -> None:
    journal = SmallJournal()
    hold_id = journal.add(held(2))
    rows = rebuild_rows(journal.accepted)
    assert same_rows(rows, journal.accepted) == []
    changed = {**rows, "holds": {(hold_id,): {**rows["holds"][hold_id,], "seats": 3}}}
    (violation,) = same_rows(changed, journal.accepted)
    assert violation.startswith(f"rows: holds ('{hold_id}',) is ")
    left_over = {**rows, "totals": {("bob",): {"total": 1}}}
    (violation,) = same_rows(left_over, journal.accepted)
    assert violation == "rows: totals ('bob',) is {'total': 1}, rebuilt it is None"


def test_a_client_gets_the_first_entry_of_its_command_and_reactions_get_none() -> None:
    journal = SmallJournal()
    command_id = journal.add(FULL)
    journal.add(held(1), source=Source("job", 0, 0, 1, 0))
    result = command_result_of(journal.accepted[0])
    assert result.code == "full"
    assert commands_answered({command_id: result}, journal.accepted) == []
    (violation,) = commands_answered({command_id: None}, journal.accepted)
    assert violation.startswith(f"outcome: of {command_id} is None, should be ")


@pytest.mark.parametrize(
    ("before", "end", "allowed"),
    [(0, 3, True), (2, 3, True), (3, 3, False), (1, 1, False), (0, 0, True), (2, 2, False)],
)
def test_the_last_decided_command_and_those_after_it_are_never_trimmed(
    before: int, end: int, allowed: bool
) -> None:
    history, _ = three_entries()
    assert not_too_far(history, before, end) is allowed


def test_commands_are_counted_from_the_base_of_the_last_operators_claim() -> None:
    history, _ = three_entries()
    history.bases.append((1, 2))
    assert not_too_far(history, 0, 3)
    assert not not_too_far(history, 1, 3)
    assert not_too_far(history, 0, 1)  # the claim came later
