import pytest

from schemas.envelope import GENESIS, Claim, Entry
from tunery.runtime.journal.acceptance import INITIAL, Acceptance, Diverged, judge, record_hash
from tunery.runtime.journal.codec import decode_record, encode
from tunery.runtime.journal.reader import Position, load_position


def entry(epoch: int, cause: int, prev: bytes = GENESIS, opened: int | None = -1) -> Entry:
    return Entry(
        epoch=epoch,
        cause=cause,
        prev=prev,
        at=1,
        command_id="c",
        key="k",
        tenant="k",
        seq=0,
        opened=opened,
    )


def claimed(state: Acceptance, offset: int, base: int | None = None) -> Acceptance:
    after, reason = judge(state, offset, Claim(owner="o", nonce="n", base=base), b"claim")
    assert reason == "claim"
    return after


def test_an_entry_of_the_current_epoch_and_next_cause_is_accepted_and_chained() -> None:
    first = entry(0, 0)
    state, reason = judge(claimed(INITIAL, 0), 1, first, encode(first))
    assert reason is None
    assert state == Acceptance(0, 0, 0, record_hash(encode(first)), 0, False, -1, -1)
    second = entry(0, 1, state.prev)
    state, reason = judge(state, 2, second, encode(second))
    assert (state.cause, reason) == (1, None)


def test_an_older_epoch_is_void_even_with_a_broken_chain() -> None:
    state = claimed(claimed(INITIAL, 0), 5)
    assert judge(state, 6, entry(0, 0, b"x" * 32), b"v") == (state, "epoch")


def test_an_epoch_that_was_never_claimed_is_divergence() -> None:
    with pytest.raises(Diverged, match="newer than any claim"):
        judge(claimed(INITIAL, 0), 1, entry(3, 0), b"v")


def test_an_epoch_between_two_claims_that_followed_each_other_is_divergence() -> None:
    """A log that lost its end, read by one that had read it: the claim came into the gap."""
    state = claimed(claimed(INITIAL, 4), 6)
    assert judge(state, 7, entry(4, 0), b"v") == (state, "epoch")
    with pytest.raises(Diverged, match="epoch 5 is of a claim that was not there"):
        judge(state, 7, entry(5, 0), b"v")


@pytest.mark.parametrize("cause", [-1, 1, 7])
def test_any_cause_but_the_next_is_void_before_the_chain_is_looked_at(cause: int) -> None:
    state = claimed(INITIAL, 0)
    assert judge(state, 1, entry(0, cause, b"x" * 32), b"v") == (state, "cause")


@pytest.mark.parametrize("cause", [3, 4, 5, 6])
def test_an_owner_that_began_from_another_state_is_divergence_whatever_the_cause(
    cause: int,
) -> None:
    """A log that lost its end: readers that had read it may be ahead of its owner, or behind."""
    state = claimed(Acceptance(0, 3, 4, b"p" * 32, 0, False), 8)
    with pytest.raises(Diverged, match="5 was accepted at the claim by its owner, 4 here"):
        judge(state, 9, entry(8, cause, b"p" * 32, opened=5), b"v")


def test_records_and_positions_from_before_that_was_kept_are_not_compared() -> None:
    old = Acceptance(0, 3, 4, b"p" * 32, 0, False)
    assert judge(old, 9, entry(3, 5, b"p" * 32, opened=2), b"v")[1] is None
    assert judge(claimed(old, 8), 9, entry(8, 5, b"p" * 32, opened=None), b"v")[1] is None


def test_a_broken_chain_is_divergence() -> None:
    with pytest.raises(Diverged, match="hash chain"):
        judge(claimed(INITIAL, 0), 1, entry(0, 0, b"x" * 32), b"v")


def test_a_claim_keeps_cause_and_chain_and_an_operators_claim_sets_base_and_incarnation() -> None:
    state = Acceptance(0, 3, 9, b"p" * 32, 0, False)
    assert claimed(state, 12) == Acceptance(0, 12, 9, b"p" * 32, 0, False, 9, 3)
    assert claimed(state, 12, base=10) == Acceptance(12, 12, 9, b"p" * 32, 10, True, 9, 3)


def test_records_and_positions_survive_their_encoding() -> None:
    record = entry(4, 7, b"\x00\xff" * 16)
    assert decode_record(encode(record)) == record
    position = Position(9, Acceptance(1, 4, 7, b"\x00\xff" * 16, -3, False))
    assert load_position(position.dump()) == position
