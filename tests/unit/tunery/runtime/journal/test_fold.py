from examples.first_stream import SEATS_AGGREGATE, SeatsHeld, TenantSeats
from schemas.envelope import GENESIS, Entry
from tunery.runtime.journal.acceptance import Acceptance
from tunery.runtime.journal.codec import raw_events
from tunery.runtime.journal.fold import Fold, advance, advance_all, context_of
from tunery.runtime.journal.reader import Accepted, Position


def entry(seq: int, key: str = "acme") -> Entry:
    held = raw_events((SeatsHeld(seats=1, until=9),))
    return Entry(
        epoch=0,
        cause=seq - 1,
        prev=GENESIS,
        at=1_000 + seq,
        command_id=f"command-{seq}",
        key=key,
        tenant=key,
        seq=seq,
        events=held,
    )


def position(offset: int) -> Position:
    return Position(offset, Acceptance(cause=offset - 2))


def test_an_entry_changes_the_state_and_all_that_is_known_of_the_last_one() -> None:
    fold = advance(
        SEATS_AGGREGATE,
        Fold(SEATS_AGGREGATE.initial),
        entry(1),
        (SeatsHeld(seats=1, until=9),),
        position(2),
    )
    assert len(fold.state["acme"].held) == 1
    assert (fold.at, fold.command_id, fold.last_offset) == (1_001, "command-1", 1)
    assert (fold.position, dict(fold.seqs)) == (position(2), {"acme": 1})


def test_a_batch_folds_entry_by_entry_and_ends_at_its_position() -> None:
    accepted = tuple(
        Accepted(
            "seats", 0, entry(seq, key), (SeatsHeld(seats=1, until=9),), position(seq + 1), b""
        )
        for seq, key in ((1, "acme"), (2, "acme"), (3, "other"))
    )
    fold = advance_all(SEATS_AGGREGATE, Fold(SEATS_AGGREGATE.initial), accepted, position(9))
    assert {key: len(seats.held) for key, seats in fold.state.items()} == {"acme": 2, "other": 1}
    assert (fold.position, fold.last_offset, fold.command_id) == (position(9), 3, "command-3")
    assert dict(fold.seqs) == {"acme": 2, "other": 3}
    assert isinstance(fold.state["other"], TenantSeats)


def test_the_context_of_an_entry_is_what_its_command_had() -> None:
    context = context_of(entry(4))
    assert (context.at, context.key, context.tenant) == (1_004, "acme", "acme")
    assert (context.command_id, context.seq) == ("command-4", 4)
