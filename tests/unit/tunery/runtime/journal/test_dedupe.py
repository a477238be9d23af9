from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from examples.first_stream import SeatsHeld
from schemas import errors
from schemas.envelope import (
    GENESIS,
    Entry,
    Envelope,
    Idempotency,
    Reason,
    Rejected,
    Repeated,
    Source,
)
from schemas.units import DAY_MS
from tunery.runtime.journal.dedupe import (
    BY_BODY_MS,
    KEPT_MS,
    Conflict,
    Repeat,
    Seen,
    recognise,
    remember,
)

AT = 1_700_000_000_000
DONE = (SeatsHeld(seats=1, until=0),)
REFUSED = (Rejected(code="full", reason=Reason(code="y")),)


def command(command_id: str, **rest: Any) -> Envelope:
    return Envelope(id=command_id, key="t", tenant="t", body=Raw(b"{}"), **rest)


def after(seen: Seen, envelope: Envelope, at: int, events: tuple[Any, ...]) -> Seen:
    entry = Entry(
        epoch=0,
        cause=0,
        prev=GENESIS,
        at=at,
        command_id=envelope.id,
        key=envelope.key,
        tenant=envelope.tenant,
        seq=1,
        source=envelope.source,
        idempotency=envelope.idempotency,
    )
    return remember(seen, entry, events)


def by_key(command_id: str, body: str = "x", key: str = "k") -> Envelope:
    return command(command_id, idempotency=Idempotency(key=key, body=body))


def by_body(command_id: str, retry: bool) -> Envelope:
    mark = Idempotency(key="x", body="x", by_body=True, retry=retry)
    return command(command_id, idempotency=mark)


def decide(seen: Seen, envelope: Envelope, at: int) -> tuple[Seen, bool]:
    """As the host does: a repeat is journaled as such, anything else is done."""
    match recognise(seen, envelope, at):
        case Repeat(of=of):
            return after(seen, envelope, at, (Repeated(of=of),)), False
        case _:
            return after(seen, envelope, at, DONE), True


def test_a_header_key_counts_for_thirty_days_of_at() -> None:
    seen = after(Seen(), by_key("1"), AT, DONE)
    assert recognise(seen, by_key("2"), AT + KEPT_MS) == Repeat("1")
    assert recognise(seen, by_key("2"), AT + KEPT_MS + 1) is None
    assert recognise(seen, by_key("2", key="other"), AT) is None


def test_another_body_under_the_same_key_is_a_conflict_and_changes_nothing() -> None:
    seen = after(Seen(), by_key("1"), AT, DONE)
    assert recognise(seen, by_key("2", body="y"), AT) == Conflict()
    conflict = (Rejected(code=errors.IDEMPOTENCY_CONFLICT, reason=Reason(code="y")),)
    assert after(seen, by_key("2", body="y"), AT, conflict) == seen


def test_a_refused_command_may_be_tried_again_but_its_copy_is_not_decided() -> None:
    seen = after(Seen(), by_key("1"), AT, REFUSED)
    assert recognise(seen, by_key("2"), AT) is None
    assert recognise(seen, by_key("1"), AT) == Repeat("1")
    seen = after(seen, by_key("2"), AT, DONE)
    assert recognise(seen, by_key("1"), AT) == Repeat("1")
    assert recognise(seen, by_key("3"), AT) == Repeat("2")


def test_tenants_do_not_share_keys() -> None:
    seen = after(Seen(), by_key("1"), AT, DONE)
    mark = Idempotency(key="k", body="x")
    other = Envelope(id="2", key="u", tenant="u", body=Raw(b"{}"), idempotency=mark)
    assert recognise(seen, other, AT) is None


def test_without_a_header_only_a_retry_is_a_repeat_and_only_for_ten_minutes() -> None:
    seen = after(Seen(), by_body("1", retry=False), AT, DONE)
    assert recognise(seen, by_body("2", retry=False), AT) is None
    assert recognise(seen, by_body("2", retry=True), AT + BY_BODY_MS) == Repeat("1")
    assert recognise(seen, by_body("2", retry=True), AT + BY_BODY_MS + 1) is None


def test_a_retry_that_overtakes_its_request_absorbs_it_once() -> None:
    seen, done = decide(Seen(), by_body("retry", retry=True), AT)
    assert done
    seen, done = decide(seen, by_body("request", retry=False), AT + 1)
    assert not done
    seen, done = decide(seen, by_body("retry again", retry=True), AT + 2)
    assert not done
    _, done = decide(seen, by_body("a new request", retry=False), AT + 3)
    assert done


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 2))))
def test_only_later_positions_of_a_source_are_decided(
    positions: list[tuple[int, int, int]],
) -> None:
    seen, highest = Seen(), (-1, -1, -1)
    for position in positions:
        envelope = command("c", source=Source("job", 3, *position))
        assert (recognise(seen, envelope, AT) is None) == (position > highest)
        seen = after(seen, envelope, AT, DONE)
        highest = max(highest, position)
    assert recognise(seen, command("c", source=Source("job", 4, 0, 0, 0)), AT) is None


@pytest.mark.parametrize("days", [30, 31, 60])
def test_expired_idempotency_keys_are_dropped_daily(days: int) -> None:
    seen = after(Seen(), by_key("1"), AT, DONE)
    seen = after(seen, by_key("2", key="later"), AT + days * DAY_MS, DONE)
    kept = {slot.rpartition("/")[2] for slot in seen.clients}
    assert kept == ({"k", "later"} if days == 30 else {"later"})


def test_a_key_used_again_is_kept_from_its_last_use() -> None:
    seen = after(Seen(), by_key("1"), AT, REFUSED)
    seen = after(seen, by_key("2"), AT + 20 * DAY_MS, DONE)
    seen = after(seen, by_key("3", key="other"), AT + 40 * DAY_MS, DONE)
    assert recognise(seen, by_key("4"), AT + 40 * DAY_MS) == Repeat("2")
